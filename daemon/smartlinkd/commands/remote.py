"""Commands that a running daemon carries out: `status`, and those of accounts, crews, keys, tokens.

They are sent over the unix socket in the daemon's state directory. Only its own user and root can
open the socket, so there is no password.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from functools import partial
from pathlib import Path

import trio
from pydantic import JsonValue

from smartlinkd.admin.control_socket import NotRunning, call
from smartlinkd.commands.codes import FAILED, GOOD
from smartlinkd.commands.table import table
from smartlinkd.untrusted import escape_unprintable


def main(
    directory: Path,
    command: str,
    arguments: Mapping[str, JsonValue],
    *,
    only: str | None,
    as_json: bool,
) -> int:
    """Send a command to a daemon and print its answer. Return `GOOD` or `FAILED`.

    Args:
        directory: the daemon's state directory.
        only: print the value of this key only; None for all.
    """
    try:
        answer = trio.run(partial(call, directory, command, arguments))
    except NotRunning as why:
        print(f"smartlinkd: {why}", file=sys.stderr)
        return FAILED
    if as_json:
        print(json.dumps(answer, indent=2))
    elif not answer["ok"]:
        print(f"smartlinkd: {escape_unprintable(answer['error'])}", file=sys.stderr)
    elif only is not None:
        print(escape_unprintable(str(answer[only])))
    else:
        print(table({key: value for key, value in answer.items() if key != "ok"}))
    return GOOD if answer["ok"] else FAILED
