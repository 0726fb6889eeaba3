"""Completion in a shell: `smartlinkd completion bash`, and crews' names for it.

The daemon is asked for the names. When it does not answer within a second there are none, and
nothing is said.
"""

from __future__ import annotations

import argparse
import threading
from contextlib import suppress
from typing import Final

from argcomplete.shell_integration import shellcode

from smartlinkd.client import ClientError
from smartlinkd.commands.codes import GOOD
from smartlinkd.commands.server import Server, find_server

ANSWER_S: Final = 1.0


def main(chosen: argparse.Namespace) -> int:
    """Print the code that a shell evaluates."""
    print(shellcode(["smartlinkd"], shell=chosen.shell))
    return GOOD


def crew_names(parsed_args: argparse.Namespace, **_: object) -> list[str]:
    """Return the crews' names. Called by argcomplete, which takes those that fit."""
    try:
        server = find_server(parsed_args)
    except ClientError:
        return []
    if server is None or server.key is None:
        return []
    found: list[str] = []
    # The thread of a daemon that hangs ends with the process, which ends after the completion.
    asking = threading.Thread(target=_ask, args=(server, found), daemon=True)
    asking.start()
    asking.join(ANSWER_S)
    return found


def _ask(server: Server, found: list[str]) -> None:
    """Add the names to `found`. A person who is typing wants no message of a failure."""
    with suppress(ClientError), server.open() as daemon:
        found += [crew.name for crew in daemon.crews() if crew.name]
