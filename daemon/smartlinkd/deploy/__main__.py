"""The steps of an installation, in an order that leaves a running version alone until the last.

    PYTHON -m smartlinkd.deploy --units FOLDER [--instance NAME] [--bind ADDRESS]

`./run install` calls it, as root, with the new version's own Python. The service that is installed
is the one without a name, or the instance NAME; `--bind` is for a configuration that is not there
yet. Instances share the version: those that run are started anew with it, once it is proven by this
one.

Whatever ends it has it go back: a fault of the new version or of this machine (a full disk, no
process left), which is told in a line; a signal; a bug of ours, which is told with its traceback.
Each step back is tried, also when one before it has failed.

Exit codes: 0, all is proven to work; 1, it is not, and what was there runs as before; 2, wrong
usage; 128 and its number, a signal ended it, with the same outcome as 1.
"""

from __future__ import annotations

import os
import shutil
import signal
import sys
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from types import FrameType
from typing import NoReturn

from smartlinkd import __version__
from smartlinkd.commands.hash_password import ask_password, fault_of
from smartlinkd.config import ConfigError, Settings
from smartlinkd.deploy import configuration, preflight, service, units
from smartlinkd.deploy.service import NotInstalled
from smartlinkd.deploy.units import ServicePaths, paths_of
from smartlinkd.networks import Bind
from smartlinkd.networks import bind as parse_bind
from smartlinkd.serving.sockets import is_absent

TRIES = 3
"""Passwords that may be mistyped."""

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
"""What ends it and has it go back; the last one comes when the terminal or its ssh has gone."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Install the version that this is."""
    parser = preflight.parser()
    parser.add_argument("--units", type=Path, required=True)
    chosen = preflight.chosen(parser, arguments)
    paths = paths_of(chosen.instance)
    for each in SIGNALS:
        signal.signal(each, _interrupt)
    try:
        install(paths, parse_bind(chosen.bind) if chosen.bind else None, chosen.units)
    except KeyboardInterrupt as by:
        print("install: interrupted", file=sys.stderr)
        return 128 + int(by.args[0])
    except (NotInstalled, OSError) as why:
        print(f"install: {why}", file=sys.stderr)
        return 1
    except ConfigError as error:
        print(f"install: {paths.configuration} cannot be used:\n{error}", file=sys.stderr)
        return 1
    return 0


def _interrupt(number: int, _: FrameType | None) -> NoReturn:
    for each in SIGNALS:
        signal.signal(each, signal.SIG_IGN)  # it is ending
    raise KeyboardInterrupt(number)


@contextmanager
def _undisturbed() -> Iterator[None]:
    """Whatever signals come."""
    before = {each: signal.signal(each, signal.SIG_IGN) for each in SIGNALS}
    try:
        yield
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)


def install(paths: ServicePaths, wish: Bind | None, source: Path) -> None:
    """Install this version, whose units are in `source`; a new configuration gets `wish`.

    Raises `NotInstalled`, `ConfigError`, or `OSError` before anything was touched but a
    configuration that was not there.
    """
    configuration.see_to(
        paths, wish or configuration.DEFAULT_BIND, _ask, partial(print, flush=True)
    )
    settings = configuration.read(paths)
    for warning in settings.warnings:
        print(f"warning: {warning}")
    bind = settings.server.bind
    _check_bind(paths, bind, wish)
    if settings.state.directory != paths.state:
        raise NotInstalled(
            f"state.directory is {settings.state.directory}, and {paths.service} can write to "
            f"{paths.state} only: set it to that in {paths.configuration}"
        )
    version = service.current(paths)
    there = version is not None and service.is_there(paths)
    before = Before(units.found(paths), version, there)
    wanted = units.wanted(paths, source, bind)
    where = units.address(paths)
    moved = where in before.units and before.units[where] != wanted[where]
    try:
        units.put(paths, wanted)
        service.switch(paths, Path(sys.prefix))
        for config in configuration.with_old_example(paths):
            before.renamed.append(configuration.rename_example(config))
        service.start(paths, moved=moved)
        ready = service.prove(paths, bind, with_browser=settings.needs_browser)
        for unit in service.others(paths):
            before.followed.append(unit)
            service.restart(unit)
    except BaseException as why:
        with _undisturbed():
            how = _back(paths, before, moved=moved)
        if isinstance(why, NotInstalled | OSError):
            raise NotInstalled(f"{why}\n{how}") from None
        print(how, file=sys.stderr)
        raise
    with _undisturbed():  # there is no way back from here
        os.sync()
        _tidy(paths)
        for copy in before.renamed:
            print(
                f"{copy.with_name('config.toml')}: daemon.crews.deal_post is now called "
                f"smartlinkd.crews.deal_post; the file as it was is {copy}"
            )
        _explain(paths, settings, ready=ready)


@dataclass(frozen=True)
class Before:
    """What was there, and who has left it."""

    units: units.Files
    version: Path | None
    """The environment that they start, which may be for other services alone."""
    there: bool
    """Whether this service was one that starts."""
    followed: list[str] = field(default_factory=list)
    """The other services that were started anew since."""
    renamed: list[Path] = field(default_factory=list)
    """The copies of configurations that name the example crew anew since."""


def _ask() -> str | None:
    """The password that the owner wants; None when one is to be made."""
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
    raise NotInstalled("no password was given; nothing was installed")


def _check_bind(paths: ServicePaths, bind: Bind, wish: Bind | None) -> None:
    """A socket unit takes not all that a configuration may have, and that has the last word.

    Raises `NotInstalled`.
    """
    fault = preflight.unfit(bind.host, bind.port)
    if fault:
        raise NotInstalled(f"server.bind {fault}: change it in {paths.configuration}")
    if wish not in (None, bind):
        raise NotInstalled(
            f"--bind is {wish}, and server.bind is {bind} in {paths.configuration}, which counts: "
            "change it there, or leave --bind out"
        )
    # The socket would open all the same (FreeBind=), and another machine may answer there.
    if is_absent(bind.host):
        raise NotInstalled(
            f"server.bind is {bind}: this machine has no such address; give it that one, or change "
            f"it in {paths.configuration} to one that it has"
        )


def _back(paths: ServicePaths, before: Before, *, moved: bool) -> str:
    """Return to what was before, as far as that goes; how things are then, in a sentence."""
    if _is_untouched(paths, before):  # a start anew would interrupt what runs, for nothing
        if before.there:
            return f"The version before ({before.version}) was not touched."
        return "Nothing was started. Mend what is said above, and run this again."
    faults = []
    for step in _steps_back(paths, before, moved=moved):
        try:
            step()
        except (NotInstalled, OSError) as fault:
            faults.append(str(fault))
        except Exception as bug:  # noqa: BLE001 - told below, and it hides nothing
            faults.append("".join(traceback.format_exception(bug)).rstrip())
    if faults:
        return "\n".join(["Not all of it could be taken back, since this failed, too:", *faults])
    if before.there:
        return f"The version before ({before.version}) is running again."
    return "It was stopped again. Mend what is said above, and run this again."


def _is_untouched(paths: ServicePaths, before: Before) -> bool:
    """Whether all is there as it was, so that nothing was started either: that comes last."""
    try:
        found = (units.found(paths), service.current(paths))
    except OSError:  # who cannot tell goes back
        return False
    return found == (before.units, before.version)


def _steps_back(
    paths: ServicePaths, before: Before, *, moved: bool
) -> Iterator[Callable[[], object]]:
    """In their order."""
    if not before.there:  # the version is for others, if there is any
        yield partial(service.systemctl, "disable", "--now", "--quiet", paths.service, paths.socket)
    yield partial(units.put, paths, before.units)
    yield partial(_switch_back, paths, before.version)
    for copy in before.renamed:
        yield partial(configuration.restore, copy)
    if before.there:
        yield partial(service.start, paths, moved=moved)
    else:
        yield partial(service.systemctl, "daemon-reload")
    for unit in before.followed:
        yield partial(service.restart, unit)


def _switch_back(paths: ServicePaths, version: Path | None) -> None:
    if version is None:
        paths.current.unlink(missing_ok=True)
    elif service.current(paths) != version:  # a full disk that kept us from leaving it has no room
        service.switch(paths, version)


def _tidy(paths: ServicePaths) -> None:
    """What may as well be done by the next installation, or by hand."""
    try:
        for folder in service.old_versions(paths):
            shutil.rmtree(folder)
        paths.command.parent.mkdir(parents=True, exist_ok=True)
        if paths.command.is_symlink() or not paths.command.exists():
            paths.command.unlink(missing_ok=True)
            paths.command.symlink_to(paths.current / "bin/smartlinkd")
    except OSError as fault:
        print(f"warning: {fault}")


def _explain(paths: ServicePaths, settings: Settings, *, ready: bool) -> None:
    option = "" if paths == ServicePaths() else f" --config {paths.configuration}"
    if not settings.needs_browser:
        browser = "it needs no Chromium"
    elif ready:
        browser = "Chromium runs, in its sandbox"
    else:
        browser = f"Chromium is NOT ready yet: `sudo smartlinkd status{option}` tells why"
    print(f"""
{paths.service} {__version__} is running at http://{settings.server.bind}; {browser}.

  how it is        sudo smartlinkd status{option}
  its log          journalctl -u {paths.name}
  configuration    {paths.configuration}   (then: sudo systemctl reload {paths.name})
  the sync key     sudo cat {paths.credentials}/{configuration.SYNC_KEY}
  stop it          sudo systemctl stop {paths.socket} {paths.service}

Next: open http://{settings.server.bind} in a browser on this machine, log in with the password, and
choose Account: pair the browser extension, or paste the portal's cookie there. Put a proxy with TLS
in front of it before others may reach it (docs/operating.md).""")


if __name__ == "__main__":
    sys.exit(main())
