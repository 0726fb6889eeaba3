"""The owner is told of an account that is paused, by a request and by a program; and of a cookie
that is missing.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from threading import Thread
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from pathlib import Path

    from tests.e2e.conftest import Daemon, Portal, Running

pytestmark = pytest.mark.chromium

PROGRAM = "import os, sys; open(sys.argv[1], 'a').write(sys.stdin.read())"


@contextmanager
def receiver(bodies: list[dict[str, str]]) -> Iterator[str]:
    """An address that keeps what is posted to it."""

    class Keep(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            size = int(self.headers["Content-Length"])
            bodies.append(json.loads(self.rfile.read(size)))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: Any) -> None:
            """To nobody."""

    with HTTPServer(("127.0.0.1", 0), Keep) as server:
        thread = Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/tell?key=secret-of-the-address"
        server.shutdown()
        thread.join()


async def test_the_owner_is_told_when_an_account_is_paused(
    running: Running, portal: Portal, tmp_path: Path
) -> None:
    bodies: list[dict[str, str]] = []
    written = tmp_path / "told"
    command = [sys.executable, "-I", "-S", "-c", PROGRAM, str(written)]
    with receiver(bodies) as url, running(notify={"url": url, "command": command}) as daemon:
        daemon.wait_for_browser()
        daemon.secrets.add("secret-of-the-address")
        account = portal.account()
        await portal.arm("human_check", account)
        for _ in range(2):  # the second time it is paused already: no change
            answer = await daemon.convert(portal.link(portal.item()), account=account)
            assert answer.status_code == 502

        async def told_by_both() -> bool:
            return bool(bodies) and lines(written) != []

        await daemon.until("told by both", told_by_both)
        reported = await state_of(daemon, account.number)
    (body,) = bodies
    assert [json.loads(line) for line in lines(written)] == [body]
    assert body["event"] == "account_paused"
    assert (body["account"], body["state"]) == (account.number, "paused")
    assert (reported["state"], reported["since"]) == (body["state"], body["since"])
    assert body["text"].startswith(f"account {account.number} is now paused: ")
    assert body["state_directory"] == str(daemon.state)


async def test_the_owner_is_told_when_links_are_wanted_and_no_cookie_is_stored(
    running: Running, portal: Portal, tmp_path: Path
) -> None:
    written = tmp_path / "told"
    command = [sys.executable, "-I", "-S", "-c", PROGRAM, str(written)]
    with running(notify={"command": command}) as daemon:
        for _ in range(2):
            answer = await daemon.convert(portal.link(portal.item()), account=None)
            assert answer.status_code == 400

        async def told() -> bool:
            return lines(written) != []

        await daemon.until("told", told)
        await daemon.sync(portal.account())
    # The second one so soon because the daemon has ended.
    told_of = [(body["event"], body["state"]) for body in map(json.loads, lines(written))]
    assert told_of == [("cookie_missing", "missing"), ("cookie_back", "stored")]


def lines(written: Path) -> list[str]:
    """The whole ones."""
    return written.read_text().split("\n")[:-1] if written.exists() else []


async def state_of(daemon: Daemon, account: str) -> dict[str, str]:
    accounts = (await daemon.status())["accounts"]
    found: dict[str, str] = next(each for each in accounts if each["account"] == account)
    return found
