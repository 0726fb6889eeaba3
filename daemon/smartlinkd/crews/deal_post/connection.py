"""The worker's end of the connection to the daemon (docs/crew-workers.md)."""

from __future__ import annotations

import json
import socket
import sys
from collections.abc import Mapping
from typing import Any, Final, TextIO

Json = dict[str, Any]

MAX_ERROR: Final = 16 * 1024
"""Characters that `failed` may have."""


class ToolFailed(Exception):  # noqa: N818 - says what happened
    """A tool did not do it; the text is the daemon's."""


class DaemonConnection:
    """One question at a time, so the next message is its answer, or `stop`."""

    def __init__(self, heard: TextIO, said: TextIO) -> None:
        self._heard = heard
        self._said = said
        self._calls = 0

    def say(self, type_: str, /, **fields: object) -> None:
        """Send a message; a field that is None is left out."""
        message = {name: value for name, value in fields.items() if value is not None}
        text = json.dumps({"type": type_, **message}, ensure_ascii=False)
        print(text, file=self._said, flush=True)

    def hear(self) -> Json:
        """The next message. Ends the process when that is `stop`, or the daemon has gone."""
        text = self._heard.readline()
        message: Json = json.loads(text) if text else {"type": "stop"}
        if message["type"] == "stop":
            sys.exit("stopped")
        return message

    def call(self, tool: str, arguments: Json) -> Any:
        """The result of one of the daemon's tools. Raises `ToolFailed`."""
        self._calls += 1
        self.say("tool_call", call_id=str(self._calls), tool=tool, arguments=arguments)
        answer = self.hear()
        if answer["error"] is not None:
            raise ToolFailed(answer["error"])
        return answer["result"]

    def fail(self, error: str) -> None:
        """Say that it came to nothing, and why."""
        self.say("failed", error=error[:MAX_ERROR])


def open_connection(environment: Mapping[str, str]) -> DaemonConnection:
    """What the daemon has opened for this process."""
    connection = socket.socket(fileno=int(environment["SMARTLINKD_FD"]))
    # One file for both directions would lose at each write what it has read ahead.
    return DaemonConnection(
        connection.makefile("r", encoding="utf-8", newline="\n"),
        connection.makefile("w", encoding="utf-8", newline="\n"),
    )
