"""The two ways to tell the owner: a POST to their address, and a program of theirs.

Both are of their own choosing, so an address may lead anywhere, this machine included (webhooks of
crews are other people's, and may not). Redirects are not followed, as ever. Neither way tells more
than the notice: the address may hold a key in its path and is never logged, and the program gets an
environment of our making, its own session, none of our descriptors, and a deadline after which
nothing of it is left (see `smartlinkd/processes/guarded.py`).
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from ipaddress import ip_network
from pathlib import Path
from typing import Final, Protocol

import trio
from pydantic import SecretStr

from smartlinkd.late_imports import needed
from smartlinkd.net.outcomes import Answered
from smartlinkd.processes.guarded import guarded
from smartlinkd.processes.hiding import Hiding

COMMAND_DEADLINE: Final = 30.0
"""Seconds for the program, as for the request."""
LONGEST_LAST_WORD: Final = 200
"""Characters of a failed program's standard error that are logged."""

_ANYWHERE: Final = (ip_network("0.0.0.0/0"), ip_network("::/0"))
_TRY_AGAIN: Final = (408, 425, 429)


class NotTold(Exception):  # noqa: N818 - it says what has not happened
    """The owner was not told; `final` when another try would end the same."""

    def __init__(self, why: str, *, final: bool = False) -> None:
        super().__init__(why)
        self.final = final


class Way(Protocol):
    """How to tell somebody. `name` is the setting that it comes from."""

    name: str

    async def tell(self, body: Mapping[str, str]) -> None:
        """Once. Raises `NotTold`."""


class ByRequest:
    """A POST of the body as JSON; any 2xx is good."""

    name = "notify.url"

    def __init__(self, url: SecretStr) -> None:
        self._url = url

    async def tell(self, body: Mapping[str, str]) -> None:
        with needed(NotTold):
            from smartlinkd.net.egress import open_sender  # noqa: PLC0415 - see smartlinkd/late_imports.py
        # A sender of its own: what is told once a month needs no connection kept.
        async with open_sender(_ANYWHERE, max_connections=1) as sender:
            outcome = await sender.post(self._url.get_secret_value(), {}, json.dumps(body).encode())
        if not isinstance(outcome, Answered):
            raise NotTold(outcome.why, final=outcome.is_final)
        status = outcome.status
        if not 200 <= status < 300:
            raise NotTold(f"HTTP {status}", final=status < 500 and status not in _TRY_AGAIN)


class ByCommand:
    """A program, with the body as JSON on standard input and as variables; exit code 0 is good."""

    name = "notify.command"

    def __init__(self, command: Sequence[str]) -> None:
        self._command = tuple(command)
        arguments = enumerate(command[1:], start=1)  # one of them may be a key
        self._hiding = Hiding({f"argument {number}": word for number, word in arguments})

    async def tell(self, body: Mapping[str, str]) -> None:
        with ExitStack() as ours:
            # All of it is in the pipe before anybody reads: it holds 16 times as much.
            theirs, end = os.pipe()
            ours.callback(os.close, theirs)
            os.write(end, json.dumps(body).encode() + b"\n")
            os.close(end)
            try:
                why = await self._run(theirs, body)
            except OSError as fault:
                raise NotTold(f"it could not be started: {fault}") from None
        if why is not None:
            raise NotTold(why)

    async def _run(self, stdin: int, body: Mapping[str, str]) -> str | None:
        """Why it has not done it, if it has not."""
        async with guarded(
            self._command, environment=_environment(body), working_folder=Path("/"), stdin=stdin
        ) as program:
            with trio.move_on_after(COMMAND_DEADLINE):
                status = await program.wait()
                if status.code == 0:
                    return None
                said = self._hiding.hide_in_tail(program.stderr_tail)
                last = said.rstrip().rpartition("\n")[2][-LONGEST_LAST_WORD:]
                return f"{status}; {last or 'without a word on standard error'}"
            return f"it did not end within {COMMAND_DEADLINE:g} s"


def _environment(body: Mapping[str, str]) -> dict[str, str]:
    """All of its environment: `SMARTLINKD_EVENT` and so on."""
    told = {f"SMARTLINKD_{name.upper()}": value for name, value in body.items()}
    return {"PATH": os.defpath, "LANG": "C.UTF-8", **told}
