"""The channels to the owner: a POST to their address, a program of theirs, and Apprise's services.

The owner chose all, so an address may lead anywhere, this machine included. It may hold a key and
is never logged. The program gets an environment of its own, its own session and none of our
descriptors, and nothing of it is left after its deadline (`smartlinkd/processes/process_tree.py`).
"""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from ipaddress import ip_network
from pathlib import Path
from typing import Final, Protocol

import trio
from pydantic import SecretStr

from smartlinkd.net.egress import DEADLINE, Answered, open_sender
from smartlinkd.notify.texts import Language, title_and_text
from smartlinkd.processes.output import Redactor
from smartlinkd.processes.process_tree import run_process_tree
from smartlinkd.threads import NoThread, on_thread

COMMAND_DEADLINE: Final = 30.0
"""Seconds, as many as for the request."""
MAX_ERROR_LINE: Final = 200
"""Characters of the last line of a failed program's standard error; it is logged."""

_ANYWHERE: Final = (ip_network("0.0.0.0/0"), ip_network("::/0"))
_TRANSIENT: Final = (408, 425, 429)


class NotSent(Exception):  # noqa: N818 - it says what has not happened
    """The notice was not sent. `is_final` if another attempt would end the same."""

    def __init__(self, why: str, *, is_final: bool = False) -> None:
        super().__init__(why)
        self.is_final = is_final


class Channel(Protocol):
    """A channel to the owner. `name` is the setting that it comes from."""

    name: str

    async def send(self, body: Mapping[str, str]) -> None:
        """Make one attempt. Raises `NotSent`."""


class RequestChannel:
    """A POST of the body as JSON. Any 2xx is a success."""

    name = "notify.url"

    def __init__(self, url: SecretStr, *, deadline_s: float = DEADLINE) -> None:
        self._url = url
        self._deadline_s = deadline_s

    async def send(self, body: Mapping[str, str]) -> None:
        # A sender of its own: notices are rare, so no connection is kept.
        async with open_sender(_ANYWHERE, max_connections=1, deadline_s=self._deadline_s) as sender:
            outcome = await sender.post(self._url.get_secret_value(), {}, json.dumps(body).encode())
        if not isinstance(outcome, Answered):
            raise NotSent(outcome.why, is_final=outcome.is_final)
        status = outcome.status
        if not 200 <= status < 300:
            raise NotSent(f"HTTP {status}", is_final=status < 500 and status not in _TRANSIENT)


class CommandChannel:
    """A program that gets the body as JSON on standard input, and as variables.

    Exit code 0 is a success.
    """

    name = "notify.command"

    def __init__(self, command: Sequence[str], *, deadline_s: float = COMMAND_DEADLINE) -> None:
        self._command = tuple(command)
        self._deadline_s = deadline_s
        arguments = enumerate(command[1:], start=1)  # one of them may be a key
        self._redactor = Redactor({f"argument {number}": word for number, word in arguments})

    async def send(self, body: Mapping[str, str]) -> None:
        with ExitStack() as stack:
            # A pipe holds 16 times as much as a body, so the write does not block.
            stdin, end = os.pipe()
            stack.callback(os.close, stdin)
            os.write(end, json.dumps(body).encode() + b"\n")
            os.close(end)
            try:
                why = await self._run(stdin, body)
            except OSError as fault:
                raise NotSent(f"it could not be started: {fault}") from None
        if why is not None:
            raise NotSent(why)

    async def _run(self, stdin: int, body: Mapping[str, str]) -> str | None:
        """Run the program. Returns why it failed, or None."""
        async with run_process_tree(
            self._command, environment=_environment(body), working_folder=Path("/"), stdin=stdin
        ) as program:
            with trio.move_on_after(self._deadline_s):
                status = await program.wait()
                if status.code == 0:
                    return None
                stderr = self._redactor.redact_tail(program.stderr_tail)
                last = stderr.rstrip().rpartition("\n")[2][-MAX_ERROR_LINE:]
                return f"{status}; {last or 'without a word on standard error'}"
            return f"it did not end within {self._deadline_s:g} s"


class AppriseChannel:
    """A service that Apprise knows: Telegram, mail and a hundred others.

    Apprise blocks, and has no deadline. So it runs on a thread, one at a time, which nobody waits
    for after the deadline or at the daemon's end.
    """

    def __init__(
        self, name: str, url: SecretStr, language: Language, *, deadline_s: float = DEADLINE
    ) -> None:
        self.name = name
        self._url = url
        self._language: Language = language
        self._deadline_s = deadline_s
        self._limiter = trio.CapacityLimiter(1)

    async def send(self, body: Mapping[str, str]) -> None:
        title, text = title_and_text(body, self._language)
        is_sent = False
        with trio.move_on_after(self._deadline_s) as scope:
            try:
                is_sent = await on_thread(
                    self._notify, title, text, limiter=self._limiter, abandon_on_cancel=True
                )
            except NoThread as refusal:
                raise NotSent(str(refusal)) from None
        if scope.cancelled_caught:
            raise NotSent(f"no answer within {self._deadline_s:g} s")
        if not is_sent:
            raise NotSent("the service did not take it; try the address with the apprise program")

    def _notify(self, title: str, text: str) -> bool:
        # Hundreds of modules, for those who use it.
        from apprise import Apprise, AppriseAsset  # noqa: PLC0415

        for library in ("apprise", "urllib3"):  # they log addresses, which hold keys
            logging.getLogger(library).setLevel(logging.CRITICAL + 1)
        # Without a timeout of Apprise's own, it works on this thread alone.
        asset = AppriseAsset(app_id="smartlinkd", async_mode=False, service_timeout=0)
        apprise = Apprise(asset=asset)
        if not apprise.add(self._url.get_secret_value()):
            raise NotSent("Apprise does not know an address of this form", is_final=True)
        return bool(apprise.notify(title=title, body=text))


def _environment(body: Mapping[str, str]) -> dict[str, str]:
    """Return the program's whole environment: `SMARTLINKD_EVENT` and so on."""
    fields = {f"SMARTLINKD_{name.upper()}": value for name, value in body.items()}
    return {"PATH": os.defpath, "LANG": "C.UTF-8", **fields}
