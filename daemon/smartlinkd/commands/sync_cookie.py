"""`smartlinkd sync-cookie`: store the cookie of standard input, with which links are made."""

from __future__ import annotations

import argparse
import json
import sys
from typing import Final

from pydantic import SecretStr

from smartlinkd.client import ClientError
from smartlinkd.commands.codes import GOOD, say
from smartlinkd.commands.server import require_server
from smartlinkd.wire import timestamp

MAX_COOKIE: Final = 512 * 1024
"""Bytes that are read: an export of a browser is larger than the cookie in it."""


def main(chosen: argparse.Namespace) -> int:
    """Store the cookie of standard input. Raises `ClientError`."""
    server = require_server(chosen)
    if sys.stdin.isatty():
        raise ClientError(
            "the cookie is read from standard input alone; pipe it in: "
            "`smartlinkd sync-cookie < cookies.txt`"
        )
    given = sys.stdin.buffer.read(MAX_COOKIE + 1)
    if len(given) > MAX_COOKIE:
        raise ClientError(f"standard input has more than {MAX_COOKIE // 1024} KiB; is it a cookie?")
    try:
        cookie = given.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise ClientError("the cookie on standard input is not UTF-8; copy it as text") from None
    with server.open() as daemon:
        synced = daemon.sync_cookie(
            SecretStr(cookie),
            account_name=chosen.account_name,
            replace_account=chosen.replace_account,
        )
    if chosen.json:
        print(json.dumps(synced.model_dump(mode="json")))
    else:
        print(f"stored for {synced.account_name} at {timestamp(synced.synced_at)}", file=sys.stderr)
    if synced.paused:
        say(
            "the account is still paused; when the portal's question is answered, run "
            "`smartlinkd account clear`"
        )
    return GOOD
