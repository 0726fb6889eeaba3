"""Commands for the daemon that runs: `status`, and those of accounts, crews, keys and tokens.

They speak to it over the unix socket in its state directory, which only its own user and root can
open: who may use the socket may do what it offers, so there is no password.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from functools import partial
from pathlib import Path

import trio
from pydantic import JsonValue

from smartlinkd.commands.codes import FAILED, GOOD
from smartlinkd.commands.table import table
from smartlinkd.control import NotRunning, call
from smartlinkd.printable import escaped


def main(
    directory: Path,
    command: str,
    arguments: Mapping[str, JsonValue],
    *,
    only: str | None,
    as_json: bool,
) -> int:
    """Have the daemon whose state is in `directory` do `command`, and print its answer.

    With `only`, the value of that key alone, for scripts that need nothing else. `FAILED` when
    there is no daemon, or when it refuses.
    """
    try:
        answer = trio.run(partial(call, directory, command, arguments))
    except NotRunning as why:
        print(f"smartlinkd: {why}", file=sys.stderr)
        return FAILED
    if as_json:
        print(json.dumps(answer, indent=2))
    elif not answer["ok"]:
        print(f"smartlinkd: {escaped(answer['error'])}", file=sys.stderr)
    elif only is not None:
        print(escaped(str(answer[only])))
    else:
        print(table({key: value for key, value in answer.items() if key != "ok"}))
    return GOOD if answer["ok"] else FAILED
