"""How a worker's process ended, and its execution's outcome: pure rules.

The worker's last message decides, whatever happens to its process afterwards. Without one the exit
decides, and the text claims only what is known: `OutOfMemory` is the reaper's own measurement,
while anybody may have sent a SIGKILL.
"""

from __future__ import annotations

import json
import signal
from dataclasses import dataclass, field
from typing import TypeAlias

from pydantic import JsonValue
from pydantic_core import from_json

from smartlinkd.crews.protocol import Failed, Result, quoted
from smartlinkd.processes.process_tree import ExitStatus
from smartlinkd.store.model import Status, WebhookTarget
from smartlinkd.untrusted import escape_unprintable

MAX_LAST_LINE = 300
"""Characters of a worker's last line in an error's text."""
OUT_OF_SIGHT = "the worker may still be running: its guardian was killed"
SHELL_SIGNALED = 128
"""A shell adds this to the number of the signal that has ended its command."""


@dataclass(frozen=True)
class Subject:
    """The execution that an entry or a webhook call is about, and its webhook targets."""

    execution_id: str
    meta: JsonValue = field(repr=False)
    webhooks: tuple[WebhookTarget, ...] = field(repr=False)


@dataclass(frozen=True)
class Outcome:
    """How an execution ended. A failure has no `result`, a success no `error`."""

    status: Status
    result: str | None = field(repr=False)
    result_json: JsonValue = field(repr=False)
    error: str | None
    token_usage: dict[str, JsonValue] | None


def failure(status: Status, error: str) -> Outcome:
    """Return the outcome of an execution that has no result."""
    return Outcome(status=status, result=None, result_json=None, error=error, token_usage=None)


def success(result: Result) -> Outcome:
    """Return the outcome of a worker that has a result.

    `result_json` is an object or None (contract, section 2): clients declare it as one. A text that
    is a JSON object counts as one.
    """
    usage, parsed = result.token_usage, result.output_json
    return Outcome(
        status=Status.COMPLETED,
        result=result.output,
        result_json=parsed if isinstance(parsed, dict) else _json_object(result.output),
        error=None,
        token_usage=None if usage is None else usage.model_dump(),
    )


@dataclass(frozen=True)
class ExitedWithoutResult:
    """The worker exited and had sent neither `result` nor `failed`."""

    code: int
    last_line: str

    @property
    def error(self) -> str:
        number = self.code - SHELL_SIGNALED
        meaning = (
            f" (a shell's word for a program ended by {ExitStatus(signal=number)})"
            if number in signal.valid_signals()
            else ""
        )
        return _with_last_line(
            f"the worker exited with code {self.code}{meaning} without a result", self.last_line
        )


@dataclass(frozen=True)
class KilledBySignal:
    """A signal that the daemon did not send ended the worker."""

    number: int
    last_line: str

    @property
    def error(self) -> str:
        text = f"the worker was ended by {ExitStatus(signal=self.number)}"
        if self.number == signal.SIGKILL:
            text += (
                ", which this daemon did not send: somebody else did, or the host itself was out "
                "of memory (then the kernel's log says so)"
            )
        return _with_last_line(text, self.last_line)


@dataclass(frozen=True)
class OutOfSight:
    """The worker's reaper was killed, so nobody knows how the worker ends, or if it has."""

    last_line: str

    @property
    def error(self) -> str:
        return _with_last_line(OUT_OF_SIGHT, self.last_line)


@dataclass(frozen=True)
class OutOfMemory:
    """All processes of the worker together used more than its limit. Both in bytes."""

    used: int
    limit: int

    @property
    def error(self) -> str:
        return (
            f"the worker was ended because it used {_mebibytes(self.used)} of memory, and its crew "
            f"may use {_mebibytes(self.limit)} (memory)"
        )


@dataclass(frozen=True)
class ProtocolBroken:
    """The worker broke the protocol. `quote` is what it sent, empty when it is no line."""

    reason: str
    quote: str

    @property
    def error(self) -> str:
        text = f"the worker broke the protocol: {self.reason}"
        return f"{text}. It sent: {self.quote}" if self.quote else text


ExitReason: TypeAlias = (
    Result
    | Failed
    | ExitedWithoutResult
    | KilledBySignal
    | OutOfSight
    | OutOfMemory
    | ProtocolBroken
)


def outcome_of(reason: ExitReason) -> Outcome:
    """Return the outcome of an execution whose worker was not stopped."""
    return success(reason) if isinstance(reason, Result) else failure(Status.ERROR, reason.error)


def silent_exit(
    status: ExitStatus, *, unfinished: str, stderr: str, memory_limit: int
) -> ExitReason:
    """Return the exit reason of a worker that sent neither `result` nor `failed`.

    `unfinished` is the part of a line that it sent last, without a newline.
    """
    if status.memory is not None:
        return OutOfMemory(used=status.memory, limit=memory_limit)
    if status.code == 0 and unfinished:
        return ProtocolBroken("its last line has no newline", quoted(unfinished))
    last_line = _last_line(stderr)
    if status.code is not None:
        return ExitedWithoutResult(status.code, last_line)
    if status.signal is not None:
        return KilledBySignal(status.signal, last_line)
    return OutOfSight(last_line)


def _json_object(text: str) -> JsonValue:
    """Return the JSON object that a text is, else None."""
    try:
        value: JsonValue = from_json(text, allow_inf_nan=False, cache_strings="keys")
        json.dumps(value, allow_nan=False)  # 1e400 is read as infinity
    except ValueError:
        return None
    return value if isinstance(value, dict) else None


def _last_line(text: str) -> str:
    last = escape_unprintable(text.rstrip().rpartition("\n")[2].strip())
    return last if len(last) <= MAX_LAST_LINE else f"{last[:MAX_LAST_LINE]}…"


def _with_last_line(text: str, last_line: str) -> str:
    return f"{text}; its last words: {last_line}" if last_line else text


def _mebibytes(size: int) -> str:
    return f"{size / 2**20:.1f} MiB"
