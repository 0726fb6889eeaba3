"""Look at files with the daemon's eyes, for a command that root has started.

Whether a crew's program can be read depends on who reads it, so the command becomes the owner of
the state directory, which is who the daemon runs as. Where that one is a user that systemd makes
for the time of the service (its state is then in /var/lib/private), the service does not see
everybody's homes and temporary files either, whatever their modes say: so these are hidden here
in the same way, for this process alone. What is then not found, is not found by the service.

There is no way back: the command stays that user for its short rest.
"""

from __future__ import annotations

import ctypes
import os
import pwd
from pathlib import Path
from typing import Final

from smartlinkd.config import Problem

PRIVATE: Final = Path("/var/lib/private")
"""Where systemd keeps the state of services with DynamicUser=."""

HIDDEN: Final = ("/home", "/root", "/run/user", "/tmp", "/var/tmp")  # noqa: S108 - not used
"""What ProtectHome= and PrivateTmp= of our unit leave nothing of."""

_CLONE_NEWNS = 0x20000
_MS_REC_PRIVATE = ctypes.c_ulong(0x4000 | 0x40000)
_NO_FLAGS = ctypes.c_ulong(0)


def become_the_daemon(directory: Path) -> list[Problem]:
    """Become the owner of the state directory, if this process is root.

    Return what can then not be looked at with that user's eyes. Still root afterwards: there is no
    state directory, or root owns it.
    """
    if os.geteuid() != 0:
        return []
    try:
        owner = directory.stat()
        dynamic = directory.resolve().is_relative_to(PRIVATE)
    except OSError:
        fault = (
            "is not there yet, so its owner, the daemon's user, is not known. All was looked at as "
            "root. Not looked at: whether that user may read and start what the configuration "
            "names, and whether the interpreters of crews find CrewAI"
        )
        remedy = "check again as the daemon's user, or once the daemon has been started"
        return [Problem("state.directory", fault, remedy)]
    if owner.st_uid == 0:
        return []
    problems = _hide() if dynamic else []
    try:
        groups = os.getgrouplist(pwd.getpwuid(owner.st_uid).pw_name, owner.st_gid)
    except KeyError:  # a dynamic user of a service that does not run
        groups = [owner.st_gid]
    os.setgroups(groups)
    os.setgid(owner.st_gid)
    os.setuid(owner.st_uid)
    return problems


def _hide() -> list[Problem]:
    try:
        _call("unshare", _CLONE_NEWNS)
        _call("mount", b"none", b"/", None, _MS_REC_PRIVATE, None)
        for folder in HIDDEN:
            if Path(folder).is_dir():
                _call("mount", b"tmpfs", folder.encode(), b"tmpfs", _NO_FLAGS, b"mode=000")
    except OSError as error:
        fault = f"cannot be looked at as the service sees them ({error.strerror})"
        remedy = f"keep nothing that they need below {', '.join(HIDDEN)}"
        return [Problem("crews", fault, remedy)]
    return []


def _call(name: str, *arguments: object) -> None:
    """A function of the C library that returns 0, or sets errno."""
    libc = ctypes.CDLL(None, use_errno=True)
    if getattr(libc, name)(*arguments) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), name)
