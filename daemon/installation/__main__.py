"""The steps of an installation, in an order that leaves a running version alone until the last.

    ENVIRONMENT/bin/python -m daemon.installation --units FOLDER [--instance NAME] [--bind ADDRESS]

`./run install` calls it, as root, with the new version's own Python. The service that is installed
is the one without a name, or the instance NAME; `--bind` is for a configuration that is not there
yet. Instances share the version: those that run are started anew with it, once it is proven by this
one.

Exit codes: 0, all is proven to work; 1, it is not, and what was there runs as before; 2, wrong
usage; 128 and its number, a signal ended it, with the same outcome as 1.
"""

from __future__ import annotations

import shutil
import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from types import FrameType
from typing import NoReturn

from daemon import __version__
from daemon.commands.hash_password import ask_password, fault_of
from daemon.config import Bind, ConfigError
from daemon.config.values import bind as parse_bind
from daemon.installation import beforehand, configuration, service, units
from daemon.installation.place import Place, place_of
from daemon.installation.service import NotInstalled

TRIES = 3
"""Passwords that may be mistyped."""

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
"""What ends it and has it go back; the last one comes when the terminal or its ssh has gone."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Install the version that this is."""
    parser = beforehand.parser()
    parser.add_argument("--units", type=Path, required=True)
    chosen = beforehand.chosen(parser, arguments)
    place = place_of(chosen.instance)
    for each in SIGNALS:
        signal.signal(each, _interrupt)
    try:
        install(place, parse_bind(chosen.bind) if chosen.bind else None, chosen.units)
    except KeyboardInterrupt as by:
        print("install: interrupted", file=sys.stderr)
        return 128 + int(by.args[0])
    except NotInstalled as why:
        print(f"install: {why}", file=sys.stderr)
        return 1
    except ConfigError as error:
        print(f"install: {place.configuration} cannot be used:\n{error}", file=sys.stderr)
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


def install(place: Place, wish: Bind | None, source: Path) -> None:
    """Install this version, whose units are in `source`; a new configuration gets `wish`.

    Raises `NotInstalled`, `ConfigError`.
    """
    configuration.see_to(
        place, wish or configuration.DEFAULT_BIND, _ask, partial(print, flush=True)
    )
    settings = configuration.read(place)
    for warning in settings.warnings:
        print(f"warning: {warning}")
    bind = settings.server.bind
    _check_bind(place, bind, wish)
    if settings.state.directory != place.state:
        raise NotInstalled(
            f"state.directory is {settings.state.directory}, and {place.service} can write to "
            f"{place.state} only: set it to that in {place.configuration}"
        )
    version = service.current(place)
    there = version is not None and service.is_there(place)
    before = Before(units.found(place), version, there)
    wanted = units.wanted(place, source, bind)
    where = units.address(place)
    moved = where in before.units and before.units[where] != wanted[where]
    try:
        units.put(place, wanted)
        service.switch(place, Path(sys.prefix))
        service.start(place, moved=moved)
        ready = service.prove(place, bind)
        for unit in service.others(place):
            before.followed.append(unit)
            service.restart(unit)
    except (NotInstalled, KeyboardInterrupt) as why:
        with _undisturbed():
            how = _back(place, before, moved=moved)
        if isinstance(why, KeyboardInterrupt):
            print(how, file=sys.stderr)
            raise
        raise NotInstalled(f"{why}\n{how}") from None
    _tidy(place)
    _explain(place, bind, ready=ready)


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


def _check_bind(place: Place, bind: Bind, wish: Bind | None) -> None:
    """A socket unit takes not all that a configuration may have, and that has the last word."""
    fault = beforehand.unfit(bind.host, bind.port)
    if fault:
        raise NotInstalled(f"server.bind {fault}: change it in {place.configuration}")
    if wish not in (None, bind):
        raise NotInstalled(
            f"--bind is {wish}, and server.bind is {bind} in {place.configuration}, which counts: "
            "change it there, or leave --bind out"
        )


def _back(place: Place, before: Before, *, moved: bool) -> str:
    """Return to what was before; how things are then, in a sentence."""
    version = before.version
    try:
        if not before.there:  # the version is for others, if there is any
            service.systemctl("disable", "--now", "--quiet", place.service, place.socket)
        units.put(place, before.units)
        if version is None:
            place.current.unlink(missing_ok=True)
        else:
            service.switch(place, version)
        if before.there:
            service.start(place, moved=moved)
        else:
            service.systemctl("daemon-reload")
        for unit in before.followed:
            service.restart(unit)
    except NotInstalled as why:
        return f"The version before ({version}) does not start either:\n{why}"
    if before.there:
        return f"The version before ({version}) is running again."
    return "It was stopped again. Mend what is said above, and run this again."


def _tidy(place: Place) -> None:
    for folder in service.old_versions(place):
        shutil.rmtree(folder)
    place.command.parent.mkdir(parents=True, exist_ok=True)
    if place.command.is_symlink() or not place.command.exists():
        place.command.unlink(missing_ok=True)
        place.command.symlink_to(place.current / "bin/smartlinkd")


def _explain(place: Place, bind: Bind, *, ready: bool) -> None:
    option = "" if place == Place() else f" --config {place.configuration}"
    browser = (
        "Chromium runs, in its sandbox"
        if ready
        else "Chromium is NOT ready yet: see the status below"
    )
    print(f"""
{place.service} {__version__} is running at http://{bind}; {browser}.

  how it is        sudo smartlinkd status{option}
  its log          journalctl -u {place.name}
  configuration    {place.configuration}   (then: sudo systemctl reload {place.name})
  the sync key     sudo cat {place.credentials}/{configuration.SYNC_KEY}
  stop it          sudo systemctl stop {place.socket} {place.service}

Next: log in to the affiliate portal in your browser and store its cookie (README.md, "Set it up for
real"), and put a proxy with TLS in front of it before others may reach it (docs/operating.md).""")


if __name__ == "__main__":
    sys.exit(main())
