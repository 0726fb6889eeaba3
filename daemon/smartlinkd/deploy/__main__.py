"""The steps of an installation, and their rollback when one fails.

    PYTHON -m smartlinkd.deploy --units FOLDER [--instance NAME] [--bind ADDRESS]

`./run install` runs it as root, with the new version's Python. Exit codes: 0, the service answers,
with Chromium ready or not; 1, it does not, and as much as possible was rolled back; 2, wrong usage;
128 + number, a signal ended it, with the outcome of 1. See docs/decisions/034-installation.md.
"""

from __future__ import annotations

import os
import shutil
import signal
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from types import FrameType
from typing import NoReturn

from smartlinkd import __version__
from smartlinkd.commands.hash_password import ask_password, fault_of
from smartlinkd.config import ConfigError, Settings, load
from smartlinkd.deploy import configuration, preflight, service, units
from smartlinkd.deploy.service import InstallFailed
from smartlinkd.deploy.units import ServicePaths, paths_of
from smartlinkd.http_server.sockets import is_absent
from smartlinkd.net.addresses import Bind, parse_bind

TRIES = 3
"""Attempts to type a password."""

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
"""Each of these rolls back. The last one comes when the terminal or its ssh connection ends."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Install this version, and return the exit code."""
    parser = preflight.make_parser()
    parser.add_argument("--units", type=Path, required=True)
    chosen = preflight.parse_arguments(parser, arguments)
    paths = paths_of(chosen.instance)
    for each in SIGNALS:
        signal.signal(each, _interrupt)
    try:
        install(paths, parse_bind(chosen.bind) if chosen.bind else None, chosen.units)
    except KeyboardInterrupt as by:
        print("install: interrupted", file=sys.stderr)
        return 128 + int(by.args[0])
    except (InstallFailed, OSError) as why:
        print(f"install: {why}", file=sys.stderr)
        return 1
    except ConfigError as error:
        print(f"install: {paths.configuration} cannot be used:\n{error}", file=sys.stderr)
        return 1
    return 0


def _interrupt(number: int, _: FrameType | None) -> NoReturn:
    _ignore_signals()  # nothing may interrupt the rollback
    raise KeyboardInterrupt(number)


def _ignore_signals() -> None:
    """Ignore `SIGNALS` from now on."""
    for each in SIGNALS:
        signal.signal(each, signal.SIG_IGN)


def install(paths: ServicePaths, requested: Bind | None, source: Path) -> None:
    """Install this version, or raise and leave what was there.

    Args:
        requested: the address for a new configuration; None for the default.
        source: the folder of the units.

    Raises:
        InstallFailed: the configuration does not fit a service, or a step failed. The text says if
            it was rolled back.
        ConfigError: the configuration cannot be used. Only missing files of it were made.
        OSError: a file could not be read or written. Nothing was replaced yet.
    """
    configuration.create_missing(paths, requested or configuration.DEFAULT_BIND, _ask)
    settings = load(paths.configuration, {}, by_hand=True)
    for warning in settings.warnings:
        print(f"warning: {warning}")
    bind = settings.server.bind
    _check_bind(paths, bind, requested)
    if settings.state.directory != paths.state:
        raise InstallFailed(
            f"state.directory is {settings.state.directory}, and {paths.service} can write to "
            f"{paths.state} only: set it to that in {paths.configuration}"
        )
    version = service.current_version(paths)
    was_there = version is not None and service.is_installed(paths)
    before = Snapshot(units.installed_units(paths), version, was_there, service.store_copies(paths))
    wanted = units.render_units(paths, source, bind)
    where = units.address_drop_in(paths)
    is_moved = where in before.units and before.units[where] != wanted[where]
    try:
        units.replace_units(paths, wanted)
        service.activate(paths, Path(sys.prefix))
        for config in configuration.find_old_examples(paths):
            before.renamed.append(configuration.rename_example(config))
        service.start(paths, is_moved=is_moved)
        ready = service.wait_until_ready(paths, bind, with_browser=settings.needs_browser)
        for unit in service.other_services(paths):
            before.followed.append(unit)
            service.restart(unit)
    except BaseException as why:
        _ignore_signals()
        how = _roll_back(paths, before, is_moved=is_moved)
        if isinstance(why, InstallFailed | OSError):
            raise InstallFailed(f"{why}\n{how}") from None
        print(how, file=sys.stderr)
        raise
    _ignore_signals()  # no rollback from here
    os.sync()
    _clean_up(paths)
    for copy in before.renamed:
        print(
            f"{copy.with_name('config.toml')}: daemon.crews.deal_post is now called "
            f"smartlinkd.crews.deal_post; the file as it was is {copy}"
        )
    print_summary(paths, settings, ready=ready)


@dataclass(frozen=True)
class Snapshot:
    """The state before, and the changes since that a rollback has to undo."""

    units: units.Files
    version: Path | None
    """The environment in use, perhaps by other instances only; None if there is none."""
    was_there: bool
    """True if this service ran, or started with the machine."""
    copies: Mapping[Path, int]
    """The copies of stores that earlier upgrades have kept, with their inodes."""
    followed: list[str] = field(default_factory=list)
    """The other services that were restarted."""
    renamed: list[Path] = field(default_factory=list)
    """The copies of configurations in which the example crew was renamed."""


def _ask() -> str | None:
    """Return the owner's password; None if one has to be made. Raises `InstallFailed`."""
    if not sys.stdin.isatty():
        return None
    print("A password for the daemon. Leave it empty, and one is made and shown.")
    for _ in range(TRIES):
        password = ask_password()
        if password == "":
            return None
        if password is not None:
            why = fault_of(password)
            if not why:
                return password
            print(f"install: {why}", file=sys.stderr)
    raise InstallFailed("no password was given; nothing was installed")


def _check_bind(paths: ServicePaths, bind: Bind, requested: Bind | None) -> None:
    """Raise `InstallFailed` if a socket unit cannot have `bind`, or `--bind` contradicts it."""
    fault = preflight.reason_unfit(bind.host, bind.port)
    if fault:
        raise InstallFailed(f"server.bind {fault}: change it in {paths.configuration}")
    if requested not in (None, bind):
        raise InstallFailed(
            f"--bind is {requested}, and server.bind is {bind} in {paths.configuration}, "
            "which counts: change it there, or leave --bind out"
        )
    # FreeBind= opens the socket all the same, and another machine may answer at the address.
    if is_absent(bind.host):
        raise InstallFailed(
            f"server.bind is {bind}: this machine has no such address; give it that one, or change "
            f"it in {paths.configuration} to one that it has"
        )


def _roll_back(paths: ServicePaths, before: Snapshot, *, is_moved: bool) -> str:
    """Undo as much as possible. Return a sentence about the outcome, for the owner."""
    if _is_unchanged(paths, before):  # a restart would interrupt the service for nothing
        if before.was_there:
            return f"The version before ({before.version}) was not touched."
        return "Nothing was started. Mend what is said above, and run this again."
    faults = []
    for step in _rollback_steps(paths, before, is_moved=is_moved):
        try:
            step()
        except (InstallFailed, OSError) as fault:
            faults.append(str(fault))
        except Exception as bug:  # noqa: BLE001 - printed below; the other steps have to run
            faults.append("".join(traceback.format_exception(bug)).rstrip())
    if faults:
        return "\n".join(["Not all of it could be taken back, since this failed, too:", *faults])
    if before.was_there:
        return f"The version before ({before.version}) is running again."
    return "It was stopped again. Mend what is said above, and run this again."


def _is_unchanged(paths: ServicePaths, before: Snapshot) -> bool:
    """True if units and version are as before. Then nothing was started, since that comes last."""
    try:
        found = (units.installed_units(paths), service.current_version(paths))
    except OSError:  # unknown, so roll back
        return False
    return found == (before.units, before.version)


def _rollback_steps(
    paths: ServicePaths, before: Snapshot, *, is_moved: bool
) -> Iterator[Callable[[], object]]:
    """Yield the steps of a rollback, in order."""
    if not before.was_there:  # a version before was for other instances only
        yield partial(service.systemctl, "disable", "--now", "--quiet", paths.service, paths.socket)
    yield partial(units.replace_units, paths, before.units)
    yield partial(_switch_back, paths, before.version)
    for copy in before.renamed:
        yield partial(configuration.restore, copy)
    yield partial(service.put_back_stores, paths, before.copies)
    if before.was_there:
        yield partial(service.start, paths, is_moved=is_moved)
    else:
        yield partial(service.systemctl, "daemon-reload")
    for unit in before.followed:
        yield partial(service.restart, unit)


def _switch_back(paths: ServicePaths, version: Path | None) -> None:
    if version is None:
        paths.current.unlink(missing_ok=True)
    elif service.current_version(paths) != version:  # a full disk may have no room for a link
        service.activate(paths, version)


def _clean_up(paths: ServicePaths) -> None:
    """Remove old versions and link the command. A failure is a warning only."""
    try:
        for folder in service.old_versions(paths):
            shutil.rmtree(folder)
        paths.command.parent.mkdir(parents=True, exist_ok=True)
        if paths.command.is_symlink() or not paths.command.exists():
            paths.command.unlink(missing_ok=True)
            paths.command.symlink_to(paths.current / "bin/smartlinkd")
    except OSError as fault:
        print(f"warning: {fault}")


def print_summary(paths: ServicePaths, settings: Settings, *, ready: bool) -> None:
    """Print where the service runs and how to use it. `ready` is false if its browser is not."""
    option = "" if paths == ServicePaths() else f" --config {paths.configuration}"
    if not settings.needs_browser:
        browser = "it needs no Chromium"
    elif ready:
        browser = "Chromium runs, in its sandbox"
    else:
        browser = f"Chromium is NOT ready yet: `sudo smartlinkd status{option}` tells why"
    key = f"sudo cat {paths.credentials}/{configuration.SYNC_KEY}"
    if configuration.SYNC_KEY in settings.encrypted:
        key = f"encrypted, in {paths.encrypted}"
    print(f"""
{paths.service} {__version__} is running at http://{settings.server.bind}; {browser}.

  how it is        sudo smartlinkd status{option}
  its log          journalctl -u {paths.name}
  configuration    {paths.configuration}   (then: sudo systemctl reload {paths.name})
  the sync key     {key}
  stop it          sudo systemctl stop {paths.socket} {paths.service}

Next: open http://{settings.server.bind} in a browser on this machine, log in with the password, and
choose Account: pair the browser extension, or paste the portal's cookie there. Put a proxy with TLS
in front of it before others may reach it (docs/operating.md).""")


if __name__ == "__main__":
    sys.exit(main())
