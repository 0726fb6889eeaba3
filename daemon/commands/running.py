"""Commands for the daemon that runs: `status`, `account …`, `tokens revoke`, `2fa off`.

They speak to it over the unix socket in its state directory, which only its own user and root can
open: who may use the socket may do what it offers, so there is no password.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import trio

from daemon.commands.table import table
from daemon.control import NotRunning, call


def ask_running(directory: Path, command: str, *, as_json: bool) -> int:
    """Have the daemon whose state is in `directory` do `command`, and print its answer.

    1 when there is none, or when it refuses.
    """
    try:
        answer = trio.run(call, directory, command)
    except NotRunning as why:
        print(f"smartlinkd: {why}", file=sys.stderr)
        return 1
    if as_json:
        print(json.dumps(answer, indent=2))
    elif answer["ok"]:
        print(table({key: value for key, value in answer.items() if key != "ok"}))
    else:
        print(f"smartlinkd: {answer['error']}", file=sys.stderr)
    return 0 if answer["ok"] else 1
