"""`smartlinkd check-config FILE`: say if the daemon would start, and what it would do.

Files are checked as the daemon's user. Root becomes the owner of the state directory, after reading
the credentials, which only root can read. If systemd makes that user for the time of the service
(its state is in /var/lib/private), homes and temporary files are hidden as the service's unit does.
The process stays that user. If the user is unknown, root checks as itself, says what it could not
check, and starts no interpreters of crews.
"""

from __future__ import annotations

import ctypes
import os
import pwd
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

from smartlinkd.browser.chromium import find_executable
from smartlinkd.browser.errors import LaunchFailed
from smartlinkd.commands.codes import FAILED, GOOD
from smartlinkd.config import ConfigError, Problem, Settings
from smartlinkd.config.crews import CrewTable
from smartlinkd.config.secret_files import BESIDE, shown_to
from smartlinkd.config.settings import SECRETS
from smartlinkd.config.sources import LONGEST_FILE, read_file
from smartlinkd.crews.catalog.catalog import Catalog, read_catalog
from smartlinkd.crews.model import Crew
from smartlinkd.path_checks import hidden_above
from smartlinkd.state_files import fault_of
from smartlinkd.validation import BadValue

PRIVATE: Final = Path("/var/lib/private")
"""Where systemd keeps the state of services with DynamicUser=."""

HIDDEN: Final = ("/home", "/root", "/run/user", "/tmp", "/var/tmp")  # noqa: S108 - not used
"""Folders that ProtectHome= and PrivateTmp= of our unit hide."""

_CLONE_NEWNS = 0x20000
_MS_REC_PRIVATE = ctypes.c_ulong(0x4000 | 0x40000)
_NO_FLAGS = ctypes.c_ulong(0)


def main(
    path: Path,
    read: Callable[[], Settings],
    *,
    private: Path = PRIVATE,
    hidden: Sequence[str] = HIDDEN,
) -> int:
    """Print what the daemon and its crews would be with the settings at `path`.

    Return `GOOD`, or `FAILED` if the daemon would start without some of its crews.

    Args:
        read: returns the settings.
        private: the folder of dynamic users' state.
        hidden: the folders that their services do not see.

    Raises:
        ConfigError: the daemon would not start. The error has all problems that can be found.
    """
    found: list[Problem] = []
    try:
        settings = read()
    except ConfigError as wrong:
        if wrong.rest is None:
            raise
        settings, found = wrong.rest, list(wrong.problems)
    unchecked = become_the_daemon(settings.state.directory, private=private, hidden=hidden)
    crews = tuple(_check_crew_file(path, entry, settings) for entry in settings.crews)
    settings = replace(settings, crews=crews)
    # Root in the place of an unknown user starts no interpreter of a crew.
    is_root_for_another = bool(unchecked) and os.geteuid() == 0
    catalog = read_catalog(settings, may_start_interpreters=not is_root_for_another)
    found += _file_problems(path, settings)
    if found:
        found += unchecked if crews else []
        found += (each for crew in catalog.broken for each in crew.problems)
        raise ConfigError(list(dict.fromkeys(found)))
    for warning in (*settings.warnings, *unchecked, *_notify_problems(settings)):
        print(f"warning: {warning}", file=sys.stderr)
    _warn_of_missing_browser(settings)
    broken = len(catalog.broken)
    verdict = f"starts, without {broken} of its {len(settings.crews)} crews" if broken else "OK"
    in_part = ", as far as could be looked at" if unchecked and settings.crews else ""
    print(f"{path}: {verdict}{in_part}")
    for line in (*_summary(settings), *_crew_lines(settings, catalog)):
        print(f"  {line}")
    for problem in (each for crew in catalog.broken for each in crew.problems):
        print(problem, file=sys.stderr)
    return FAILED if broken else GOOD


def _file_problems(path: Path, settings: Settings) -> Iterator[Problem]:
    """Yield the problems of the configuration, its secrets' files and the state directory."""
    found = fault_of(settings.state.directory)
    if found is not None:
        yield Problem("state.directory", *found)
    # A file in a hidden folder is a draft, which will be moved.
    if hidden_above(path) is None:
        remedy = f"let the daemon's user read it, and keep secrets in {path.parent / BESIDE}"
        yield from _read_problem(str(path), path, remedy, settings)
    for section, key in SECRETS:
        named = getattr(getattr(settings, section), f"{key}_file")
        if named is not None:
            credential = path.parent / BESIDE / f"{section}.{key}"
            remedy = f"make it a credential: move it to {credential}, and take this key out"
            yield from _read_problem(f"{section}.{key}_file", named, remedy, settings)


def _check_crew_file(config: Path, entry: CrewTable, settings: Settings) -> CrewTable:
    if entry.section is None or not entry.has_environment:
        return entry
    if entry.section.environment_file is None:
        return entry
    name, path = entry.key("environment_file"), entry.section.environment_file
    if path.is_relative_to(shown_to(config)):
        return entry  # the service can read it from its next start on
    remedy = "let the daemon's user read it, or make it a credential (docs/operating.md)"
    return replace(entry, problems=(*entry.problems, *_read_problem(name, path, remedy, settings)))


def _read_problem(name: str, path: Path, remedy: str, settings: Settings) -> Iterator[Problem]:
    try:
        read_file(path, LONGEST_FILE)
    except BadValue as fault:
        # systemd shows the service its state directory by a path that is closed to others.
        state = settings.state.directory
        if not path.is_relative_to(state) or os.access(state, os.X_OK):
            yield Problem(name, fault.fault, remedy)


def _warn_of_missing_browser(settings: Settings) -> None:
    """Warn if Chromium is missing. It is no problem: the file may be for another machine."""
    if not settings.needs_browser:
        return
    try:
        find_executable(settings.browser.executable)
    except LaunchFailed as missing:
        print(f"warning: {missing}", file=sys.stderr)


def _notify_problems(settings: Settings) -> list[Problem]:
    """Return a problem if the program that notifies the owner cannot be run."""
    if not settings.notify.command or os.access(settings.notify.command[0], os.X_OK):
        return []
    fault = "names a program that is not there, or that the daemon may not run"
    return [Problem("notify.command", fault, "correct the path, or `chmod 755` the program")]


def _summary(settings: Settings) -> list[str]:
    market = settings.marketplace
    open_to = ", ".join(map(str, settings.cookie.open_to)) or "nobody"
    has_key = settings.cookie.sync_key or "cookie.sync_key" in settings.encrypted
    key = "with" if has_key else "without"
    return [
        f"listens on {settings.server.bind}, keeps its state in {settings.state.directory}",
        f"cookie endpoints open to {open_to}; {key} a sync key",
        f"market {market.market} at {market.portal_url or 'its own addresses'}, "
        f"links by {settings.links.source}, products by {settings.products.source}",
    ]


def _crew_lines(settings: Settings, catalog: Catalog) -> list[str]:
    runners = {entry.name: entry.section.runner for entry in settings.crews if entry.section}
    return [
        f'crew "{name}" ({runners[name]}): inputs {_inputs(crew)}; at {_addresses(crew, catalog)}'
        for name, crew in catalog.crews.items()
    ]


def _inputs(crew: Crew) -> str:
    """Return the names of the inputs, optional ones in brackets."""
    return ", ".join(i.name if i.required else f"[{i.name}]" for i in crew.inputs) or "none"


def _addresses(crew: Crew, catalog: Catalog) -> str:
    places = catalog.paths(crew.name)
    if crew.bind is not None:
        places.append(str(crew.bind))
    return ", ".join(places)


def become_the_daemon(
    directory: Path, *, private: Path = PRIVATE, hidden: Sequence[str] = HIDDEN
) -> list[Problem]:
    """Become the owner of the state directory, if this process is root.

    An owner with state in `private` is a dynamic user, who does not see the folders in `hidden`.

    Return what cannot be checked as that user. The process stays root if there is no state
    directory, or root owns it.
    """
    if os.geteuid() != 0:
        return []
    try:
        owner = directory.stat()
        dynamic = directory.resolve().is_relative_to(private)
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
    problems = _hide(hidden) if dynamic else []
    try:
        groups = os.getgrouplist(pwd.getpwuid(owner.st_uid).pw_name, owner.st_gid)
    except KeyError:  # a dynamic user of a service that does not run
        groups = [owner.st_gid]
    os.setgroups(groups)
    os.setgid(owner.st_gid)
    os.setuid(owner.st_uid)
    return problems


def _hide(hidden: Sequence[str]) -> list[Problem]:
    try:
        _call("unshare", _CLONE_NEWNS)
        _call("mount", b"none", b"/", None, _MS_REC_PRIVATE, None)
        for folder in hidden:
            if Path(folder).is_dir():
                _call("mount", b"tmpfs", folder.encode(), b"tmpfs", _NO_FLAGS, b"mode=000")
    except OSError as error:
        fault = f"cannot be looked at as the service sees them ({error.strerror})"
        remedy = f"keep nothing that they need below {', '.join(hidden)}"
        return [Problem("crews", fault, remedy)]
    return []


def _call(name: str, *arguments: object) -> None:
    """Call a function of the C library that returns 0, or sets errno."""
    libc = ctypes.CDLL(None, use_errno=True)
    if getattr(libc, name)(*arguments) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), name)
