"""How a worker's process ended, and its execution's outcome: pure rules.

The worker's last message decides, whatever happens to its process afterwards. Without one the exit
decides, and the text claims only what is known: memory is the reaper's own measurement, while
anybody may have sent a SIGKILL.
"""

from __future__ import annotations

import signal
from dataclasses import dataclass, field
from typing import TypeAlias

from pydantic import ConfigDict, JsonValue, TypeAdapter, ValidationError

from smartlinkd.crews.protocol import Failed, JsonObject, Result, TokenUsage, quoted
from smartlinkd.processes.process_tree import ExitStatus
from smartlinkd.store.model import Status

SHELL_SIGNALED = 128
"""A shell adds this to the number of the signal that has ended its command."""
_JSON_OBJECT = TypeAdapter(JsonObject, config=ConfigDict(cache_strings="keys", defer_build=True))


@dataclass(frozen=True)
class Outcome:
    """How an execution ended. A failure has no `result`, a success no `error`."""

    status: Status
    result: str | None = field(default=None, repr=False)
    result_json: JsonValue = field(default=None, repr=False)
    error: str | None = None
    token_usage: TokenUsage | None = None


ExitReason: TypeAlias = Result | Failed
"""A worker's last message; for one that crashed or broke the protocol a `Failed` of ours."""


def outcome_of(reason: ExitReason) -> Outcome:
    """Return the outcome of an execution whose worker was not stopped.

    `result_json` is an object or None (contract, section 2): clients declare it as one. A text that
    is a JSON object counts as one.
    """
    if isinstance(reason, Failed):
        return Outcome(Status.ERROR, error=reason.error)
    parsed = reason.output_json
    return Outcome(
        status=Status.COMPLETED,
        result=reason.output,
        result_json=parsed if isinstance(parsed, dict) else _json_object(reason.output),
        token_usage=reason.token_usage,
    )


def protocol_broken(reason: str, quote: str = "") -> Failed:
    """Return the end of a worker that broke the protocol. `quote` is from the line it sent."""
    sent = f". It sent: {quote}" if quote else ""
    return Failed(error=f"the worker broke the protocol: {reason}{sent}")


def silent_exit(status: ExitStatus, *, unfinished: str, stderr: str, memory_limit: int) -> Failed:
    """Return the end of a worker that sent neither `result` nor `failed`.

    `unfinished` is the part of a line that it sent last, without a newline.
    """
    if status.memory is not None:
        used, limit = _mebibytes(status.memory), _mebibytes(memory_limit)
        return Failed(
            error=f"the worker was ended because it used {used} of memory, and its crew may use "
            f"{limit} (memory)"
        )
    if status.code == 0 and unfinished:
        return protocol_broken("its last line has no newline", quoted(unfinished))
    last_line = _last_line(stderr)
    words = f"; its last words: {last_line}" if last_line else ""
    return Failed(error=_silent_end(status) + words)


def _silent_end(status: ExitStatus) -> str:
    if status.code is not None:
        number = status.code - SHELL_SIGNALED
        meaning = (
            f" (a shell's word for a program ended by {ExitStatus(signal=number)})"
            if number in signal.valid_signals()
            else ""
        )
        return f"the worker exited with code {status.code}{meaning} without a result"
    if status.signal is None:
        return "the worker may still be running: its reaper was killed"
    text = f"the worker was ended by {ExitStatus(signal=status.signal)}"
    if status.signal == signal.SIGKILL:
        text += (
            ", which this daemon did not send: somebody else did, or the host itself was out of "
            "memory (then the kernel's log says so)"
        )
    return text


def _json_object(text: str) -> JsonValue:
    """Return the JSON object that a text is, else None."""
    try:
        return _JSON_OBJECT.validate_json(text)
    except ValidationError:
        return None


def _last_line(text: str) -> str:
    return quoted(text.rstrip().rpartition("\n")[2].strip())


def _mebibytes(size: int) -> str:
    return f"{size / 2**20:.1f} MiB"
