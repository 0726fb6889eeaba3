"""`smartlinkd check-config FILE`: whether the daemon would start with it, and what it would do.

Whether a file can be read depends on who reads it. So root becomes the daemon's user (see
`as_service.py`) once it has read the credentials, which root alone can read for the daemon. What
the daemon has to read by itself is then read again. Where that user is not known, root looks
itself, says what it could not look at, and starts no interpreter of a crew.
"""

from __future__ import annotations

import ctypes
import os
import pwd
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Final

from smartlinkd.bad_value import BadValue
from smartlinkd.browser.errors import LaunchFailed
from smartlinkd.browser.executable import find
from smartlinkd.commands.codes import FAILED, GOOD
from smartlinkd.config import ConfigError, Problem, Settings
from smartlinkd.config.checks import out_of_reach
from smartlinkd.config.credentials import BESIDE, shown_to
from smartlinkd.config.crews import CrewTable
from smartlinkd.config.draft import secret_keys
from smartlinkd.config.files import LONGEST_FILE, read_file
from smartlinkd.crews.crew import Crew
from smartlinkd.crews.reading.catalog import Catalog, read_catalog
from smartlinkd.paths import hidden_above
from smartlinkd.processes.memory import memory_allowed
from smartlinkd.state import fault_of

PRIVATE: Final = Path("/var/lib/private")
"""Where systemd keeps the state of services with DynamicUser=."""

HIDDEN: Final = ("/home", "/root", "/run/user", "/tmp", "/var/tmp")  # noqa: S108 - not used
"""What ProtectHome= and PrivateTmp= of our unit leave nothing of."""

_CLONE_NEWNS = 0x20000
_MS_REC_PRIVATE = ctypes.c_ulong(0x4000 | 0x40000)
_NO_FLAGS = ctypes.c_ulong(0)


def main(path: Path, read: Callable[[], Settings]) -> int:
    """Print what the settings at `path`, which `read` gives, make of the daemon and its crews.

    Return `GOOD`, or `FAILED` if the daemon would start without some of its crews.

    Raises:
        ConfigError: the daemon would not start at all. It has every fault that can be found.
    """
    try:
        settings = read()
    except ConfigError as wrong:
        raise _all_of(path, wrong) from None
    blind = become_the_daemon(settings.state.directory)
    unmet = out_of_reach(settings, memory_allowed())
    for warning in (*settings.warnings, *blind, *_nobody_told(settings), *unmet):
        print(f"warning: {warning}", file=sys.stderr)
    settings = _read_again(path, settings)
    _tell_of_the_browser(settings)
    catalog = _look_at_crews(settings, blind)
    broken = len(catalog.broken)
    verdict = f"starts, without {broken} of its {len(settings.crews)} crews" if broken else "OK"
    in_part = ", as far as could be looked at" if blind and settings.crews else ""
    print(f"{path}: {verdict}{in_part}")
    for line in (*_summary(settings), *_crews(settings, catalog)):
        print(f"  {line}")
    for crew in catalog.broken:
        _tell(crew.problems)
    return FAILED if broken else GOOD


def _look_at_crews(settings: Settings, blind: list[Problem]) -> Catalog:
    """Look at what crews need. Root in the place of an unknown user starts no interpreter."""
    is_root_for_another = bool(blind) and os.geteuid() == 0
    return read_catalog(settings, may_start_interpreters=not is_root_for_another)


def _all_of(path: Path, wrong: ConfigError) -> ConfigError:
    """Return the error with the faults that only a look at what is named can find."""
    rest = wrong.rest
    if rest is None:
        return wrong
    blind = become_the_daemon(rest.state.directory)
    crews = tuple(_crew_read_again(path, entry, rest) for entry in rest.crews)
    broken = _look_at_crews(replace(rest, crews=crews), blind).broken
    of_crews = (each for crew in broken for each in crew.problems)
    unseen = blind if rest.crews else []
    return ConfigError(
        list(dict.fromkeys([*wrong.problems, *unseen, *_unusable(path, rest), *of_crews]))
    )


def _read_again(path: Path, settings: Settings) -> Settings:
    """The settings without the crews whose own file the daemon cannot read."""
    crews = tuple(_crew_read_again(path, entry, settings) for entry in settings.crews)
    problems = list(_unusable(path, settings))
    if problems:
        raise ConfigError([*problems, *(each for crew in crews for each in crew.problems)])
    return replace(settings, crews=crews)


def _unusable(path: Path, settings: Settings) -> Iterator[Problem]:
    """What the daemon cannot read of the configuration itself and of the secrets that it names; and
    a state directory that it would refuse."""
    found = fault_of(settings.state.directory)
    if found is not None:
        yield Problem("state.directory", *found)
    # One that lies where no service sees anything is a draft, and will lie elsewhere.
    if hidden_above(path) is None:
        remedy = f"let the daemon's user read it, and keep secrets in {path.parent / BESIDE}"
        yield from _fault(str(path), path, remedy, settings)
    for section, key in secret_keys():
        named = getattr(getattr(settings, section), f"{key}_file")
        if named is not None:
            credential = path.parent / BESIDE / f"{section}.{key}"
            remedy = f"make it a credential: move it to {credential}, and take this key out"
            yield from _fault(f"{section}.{key}_file", named, remedy, settings)


def _crew_read_again(config: Path, entry: CrewTable, settings: Settings) -> CrewTable:
    if entry.section is None or entry.section.environment_file is None:
        return entry
    name, path = entry.key("environment_file"), entry.section.environment_file
    if path.is_relative_to(shown_to(config)):
        return entry  # the service can read that, from its next start on
    remedy = "let the daemon's user read it, or make it a credential (docs/operating.md)"
    return replace(entry, problems=(*entry.problems, *_fault(name, path, remedy, settings)))


def _fault(name: str, path: Path, remedy: str, settings: Settings) -> Iterator[Problem]:
    try:
        read_file(path, LONGEST_FILE)
    except BadValue as fault:
        # The service is shown its state directory by a way that only systemd can open.
        state = settings.state.directory
        if not path.is_relative_to(state) or os.access(state, os.X_OK):
            yield Problem(name, fault.fault, remedy)


def _tell_of_the_browser(settings: Settings) -> None:
    """No fault of the file, which may be for another machine: here it would never be ready."""
    if not settings.needs_browser:
        return
    try:
        find(settings.browser.executable)
    except LaunchFailed as missing:
        print(f"warning: {missing}", file=sys.stderr)


def _nobody_told(settings: Settings) -> list[Problem]:
    """Why the owner would not be told of anything by the program that is for that."""
    if not settings.notify.command or os.access(settings.notify.command[0], os.X_OK):
        return []
    fault = "names a program that is not there, or that the daemon may not run"
    return [Problem("notify.command", fault, "correct the path, or `chmod 755` the program")]


def _summary(settings: Settings) -> list[str]:
    market = settings.marketplace
    open_to = ", ".join(map(str, settings.cookie.open_to)) or "nobody"
    key = "with" if settings.cookie.sync_key.get_secret_value() else "without"
    return [
        f"listens on {settings.server.bind}, keeps its state in {settings.state.directory}",
        f"cookie endpoints open to {open_to}; {key} a sync key",
        f"market {market.market} at {market.portal_url or 'its own addresses'}, "
        f"links by {settings.links.source}, products by {settings.products.source}",
    ]


def _crews(settings: Settings, catalog: Catalog) -> list[str]:
    runners = {entry.name: entry.section.runner for entry in settings.crews if entry.section}
    return [
        f'crew "{name}" ({runners[name]}): inputs {_inputs(crew)}; at {_where(crew, catalog)}'
        for name, crew in catalog.crews.items()
    ]


def _inputs(crew: Crew) -> str:
    """Their names, in brackets those that may be left out."""
    return ", ".join(i.name if i.required else f"[{i.name}]" for i in crew.inputs) or "none"


def _where(crew: Crew, catalog: Catalog) -> str:
    places = catalog.paths(crew.name)
    if crew.bind is not None:
        places.append(str(crew.bind))
    return ", ".join(places)


def _tell(problems: Iterable[Problem]) -> None:
    for problem in problems:
        print(problem, file=sys.stderr)


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
