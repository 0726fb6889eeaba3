"""The environment that systemd passes: the notify socket, the watchdog's limit and descriptors.

See sd_listen_fds(3) and sd_watchdog_enabled(3). The variables are removed from the environment and
the descriptors made close-on-exec, so that no child (Chromium, workers) can notify systemd in the
daemon's name or hold its sockets.
"""

from __future__ import annotations

import os
from collections.abc import MutableMapping
from dataclasses import dataclass
from typing import Final

LISTEN_FDS_START: Final = 3
UNNAMED: Final = "unknown"
"""libsystemd's name for a descriptor without a name."""

_VARIABLES: Final = (
    *("NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID"),
    *("LISTEN_PID", "LISTEN_FDS", "LISTEN_FDNAMES", "LISTEN_PIDFDID", "FDSTORE"),
)


@dataclass(frozen=True)
class Descriptor:
    """An open file descriptor, with its name in systemd."""

    name: str
    number: int


@dataclass(frozen=True)
class SystemdEnvironment:
    """The values that systemd passed to this process.

    Attributes:
        notify_socket: an address, or "" without a service manager.
        watchdog_s: the longest time between two pings, or None without a watchdog.
    """

    notify_socket: str = ""
    watchdog_s: float | None = None
    descriptors: tuple[Descriptor, ...] = ()


NO_SYSTEMD: Final = SystemdEnvironment()


def pop_environment(environ: MutableMapping[str, str]) -> SystemdEnvironment:
    """Read systemd's variables and remove them from `environ`.

    Variables for another process count as unset.
    """
    found = {name: environ.pop(name, "") for name in _VARIABLES}
    return SystemdEnvironment(
        notify_socket=found["NOTIFY_SOCKET"],
        watchdog_s=_watchdog_s(found["WATCHDOG_USEC"], found["WATCHDOG_PID"]),
        descriptors=_descriptors(
            found["LISTEN_PID"], int(found["LISTEN_FDS"] or 0), found["LISTEN_FDNAMES"]
        ),
    )


def _watchdog_s(microseconds: str, pid: str) -> float | None:
    is_for_us = pid in ("", str(os.getpid()))
    return int(microseconds or 0) / 1e6 or None if is_for_us else None


def _descriptors(pid: str, count: int, names: str) -> tuple[Descriptor, ...]:
    if pid != str(os.getpid()):
        return ()
    named = names.split(":") if names else []
    named += [UNNAMED] * (count - len(named))
    descriptors = []
    for number, name in enumerate(named[:count], LISTEN_FDS_START):
        try:
            os.set_inheritable(number, False)
        except OSError:
            continue  # a program between systemd and this process closed it
        descriptors.append(Descriptor(name or UNNAMED, number))
    return tuple(descriptors)
