"""What the service manager gives the daemon at its start, in variables and descriptors.

See sd_listen_fds(3) and sd_watchdog_enabled(3). The variables are taken out of the environment, and
the descriptors made such that no program inherits them: what the daemon starts (Chromium, crews'
workers) must not be able to speak in its name, or to hold its sockets.

Variables that are meant for another process, or that make no sense, count as not given: the daemon
runs under a shell that was given them as it runs under any.
"""

from __future__ import annotations

import os
from collections.abc import MutableMapping
from dataclasses import dataclass
from typing import Final

FIRST_DESCRIPTOR: Final = 3
MOST_DESCRIPTORS: Final = 1024
NAMELESS: Final = "unknown"
"""What libsystemd calls a descriptor without a name."""

_LONGEST_NUMBER: Final = 19  # digits; 64 bits have no more
_VARIABLES: Final = (
    *("NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID"),
    *("LISTEN_PID", "LISTEN_FDS", "LISTEN_FDNAMES", "LISTEN_PIDFDID", "FDSTORE"),
)


@dataclass(frozen=True)
class Descriptor:
    """An open one that is ours now, and what the manager calls it."""

    name: str
    number: int


@dataclass(frozen=True)
class Given:
    """All of it. `watchdog` is the seconds within which the manager wants to hear of us."""

    notify_socket: str = ""
    watchdog: float | None = None
    descriptors: tuple[Descriptor, ...] = ()


NOTHING: Final = Given()
"""There is no service manager."""


def take_over(environ: MutableMapping[str, str]) -> Given:
    """What was given to this very process. Once: afterwards it is no longer in `environ`."""
    found = {name: environ.pop(name, "") for name in _VARIABLES}
    return Given(
        notify_socket=found["NOTIFY_SOCKET"],
        watchdog=_watchdog(found["WATCHDOG_USEC"], found["WATCHDOG_PID"]),
        descriptors=_descriptors(
            found["LISTEN_PID"], _number(found["LISTEN_FDS"]), found["LISTEN_FDNAMES"]
        ),
    )


def _watchdog(microseconds: str, pid: str) -> float | None:
    ours = pid in ("", str(os.getpid()))
    return _number(microseconds) / 1e6 or None if ours else None


def _descriptors(pid: str, count: int, names: str) -> tuple[Descriptor, ...]:
    if pid != str(os.getpid()) or not 0 < count <= MOST_DESCRIPTORS:
        return ()
    named = names.split(":") if names else []
    named += [NAMELESS] * (count - len(named))
    descriptors = []
    for number, name in enumerate(named[:count], FIRST_DESCRIPTOR):
        try:
            os.set_inheritable(number, False)
        except OSError:
            continue  # closed by whoever started us in the manager's place
        descriptors.append(Descriptor(name or NAMELESS, number))
    return tuple(descriptors)


def _number(text: str) -> int:
    return int(text) if text.isascii() and text.isdigit() and len(text) <= _LONGEST_NUMBER else 0
