"""The first use of each library that is imported late, in a process that can read nothing.

    python -m tests.first_uses [imported]    # after the daemon's own import of them

Prints a line for each: its name, and what it raised, or that it was fine.
"""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable
from datetime import timedelta
from ipaddress import ip_network
from pathlib import Path

import trio
from pydantic import SecretBytes, SecretStr

from smartlinkd import late_imports
from smartlinkd.auth.tokens import Tokens
from smartlinkd.auth.totp import SecondFactor, new_setup
from smartlinkd.crews.webhooks.dispatcher import WebhookDispatcher
from smartlinkd.journal.actor import Journal
from smartlinkd.journal.model import Retention
from smartlinkd.journal.sealing import Seal
from smartlinkd.net.client import HttpClient
from smartlinkd.net.egress_rules import check_url
from smartlinkd.notify.channels import RequestChannel
from tests.shortage import without_descriptors

KEYS = [
    bytes(32),
    *(start + bytes(32 - len(start)) for start in (b"\xff\xfe", b"\xfe\xff", b"\xef\xbb\xbf")),
    *(start * 8 for start in (b"\0aaa", b"a\0aa", b"a\0\0\0", b"\0\0\0a", b"\xff\xfeaa")),
    bytes(range(1, 33)),
]
"""Whose first bytes look like each of the encodings that JSON comes in."""
FACTOR = SecondFactor(SecretStr("A" * 32), ())
NOBODY = "http://127.0.0.1:9/"


def issue_and_read_tokens() -> None:
    for key in KEYS:
        tokens = Tokens(SecretBytes(key), SecretStr("hash"))
        token = tokens.issue("session", jti="1", epoch="2", now=1000.0)
        assert tokens.read(token, "session", now=1000.0).jti == "1"


def try_a_code() -> None:
    assert FACTOR.accept("000000", now=0.0) is None


def seal() -> None:
    one = Seal(SecretBytes(bytes(32)), "a test")
    assert one.open(one.seal(b"tea", "here"), "here") == b"tea"


def look_at_an_address() -> None:
    assert check_url("url", NOBODY, [ip_network("127.0.0.0/8")]) == NOBODY


async def ask() -> None:
    async with HttpClient() as http:
        await http.request("GET", NOBODY, deadline=1.0, max_body=1)


async def notify() -> None:
    await RequestChannel(SecretStr(NOBODY)).send({})


async def open_a_sender() -> None:
    retention = Retention(age=timedelta(days=1), count=1)
    journal = Journal(Path("/none"), key=SecretBytes(bytes(32)), retention=retention)
    async with await WebhookDispatcher(journal, allow=(), key=None)._sender():
        pass


USES = (issue_and_read_tokens, try_a_code, seal, look_at_an_address, ask, notify, open_a_sender)


async def look(use: Callable[[], Awaitable[None] | object]) -> None:
    """Print what becomes of it."""
    try:
        with without_descriptors():
            running = use()
            if isinstance(running, Awaitable):
                await running
    except Exception as error:  # noqa: BLE001 - whatever it is, that is to be seen
        print(use.__name__, type(error).__name__)
    else:
        print(use.__name__, "fine")


async def main() -> None:
    for use in USES:
        await look(use)
    if "imported" not in sys.argv:  # what draws the setup's picture never is
        await look(new_setup)


if __name__ == "__main__":
    if "imported" in sys.argv:
        late_imports._import()
    trio.run(main)
