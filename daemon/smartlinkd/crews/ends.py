"""How a worker can end, and what its execution's `error` then says: pure rules, no I/O.

What the worker said of its end stands, whatever became of it afterwards: many a runtime crashes
while it shuts down. Where it said nothing, its process tells, and only what is really known is
told. So `OutOfMemory` is the reaper's own doing, by measurement; a signal 9 that the daemon did
not send may have come from anybody, the kernel included, and is told as that.
"""

from __future__ import annotations

import signal
from dataclasses import dataclass
from typing import TypeAlias

from smartlinkd.crews.protocol import Failed, Result, quoted
from smartlinkd.processes.process_tree import ExitStatus
from smartlinkd.untrusted import escape_unprintable

# Characters of a worker's last line in an error's text.
LONGEST_LAST_LINE = 300
# Its reaper alone sees how it ends. What is left is ended by the fork server as a rule.
OUT_OF_SIGHT = "the worker may still be running: its guardian was killed"
# What a shell adds to the number of the signal that has ended its command.
SHELL_SIGNALED = 128


@dataclass(frozen=True)
class ExitedWithoutResult:
    """It left by itself, and had said neither `result` nor `failed`."""

    code: int
    last_words: str

    @property
    def error(self) -> str:
        number = self.code - SHELL_SIGNALED
        meaning = (
            f" (a shell's word for a program ended by {ExitStatus(signal=number)})"
            if number in signal.valid_signals()
            else ""
        )
        return _with_last_words(
            f"the worker exited with code {self.code}{meaning} without a result", self.last_words
        )


@dataclass(frozen=True)
class KilledBySignal:
    """A signal ended it that the daemon did not send."""

    number: int
    last_words: str

    @property
    def error(self) -> str:
        text = f"the worker was ended by {ExitStatus(signal=self.number)}"
        if self.number == signal.SIGKILL:
            text += (
                ", which this daemon did not send: somebody else did, or the host itself was out "
                "of memory (then the kernel's log says so)"
            )
        return _with_last_words(text, self.last_words)


@dataclass(frozen=True)
class OutOfSight:
    """Its reaper was killed: nobody knows how it ends, or whether it has."""

    last_words: str

    @property
    def error(self) -> str:
        return _with_last_words(OUT_OF_SIGHT, self.last_words)


@dataclass(frozen=True)
class OutOfMemory:
    """All its processes together were found to use more than its limit. Both in bytes."""

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
    """It did not keep to the protocol. `quote` is what it sent, empty when it is no line."""

    reason: str
    quote: str

    @property
    def error(self) -> str:
        text = f"the worker broke the protocol: {self.reason}"
        return f"{text}. It sent: {self.quote}" if self.quote else text


WorkerEnd: TypeAlias = (
    Result
    | Failed
    | ExitedWithoutResult
    | KilledBySignal
    | OutOfSight
    | OutOfMemory
    | ProtocolBroken
)


def silent_end(status: ExitStatus, *, unfinished: str, stderr: str, memory_limit: int) -> WorkerEnd:
    """The end of a worker that said nothing of its end.

    `unfinished` is the part of a line that it sent last, without a newline.
    """
    if status.memory is not None:
        return OutOfMemory(used=status.memory, limit=memory_limit)
    if status.code == 0 and unfinished:
        return ProtocolBroken("its last line has no newline", quoted(unfinished))
    last_words = _last_line(stderr)
    if status.code is not None:
        return ExitedWithoutResult(status.code, last_words)
    if status.signal is not None:
        return KilledBySignal(status.signal, last_words)
    return OutOfSight(last_words)


def _last_line(text: str) -> str:
    last = escape_unprintable(text.rstrip().rpartition("\n")[2].strip())
    return last if len(last) <= LONGEST_LAST_LINE else f"{last[:LONGEST_LAST_LINE]}…"


def _with_last_words(text: str, last_words: str) -> str:
    return f"{text}; its last words: {last_words}" if last_words else text


def _mebibytes(size: int) -> str:
    return f"{size / 2**20:.1f} MiB"
