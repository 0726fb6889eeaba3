"""The steps of an installation, in an order that leaves a running version alone until the last.

    ENVIRONMENT/bin/python -m daemon.installation --units FOLDER [--instance NAME] [--bind ADDRESS]

`./run install` calls it, as root, with the new version's own Python. The service that is installed
is the one without a name, or the instance NAME; `--bind` is for a configuration that is not there
yet. Instances share the version: those that run are started anew with it.

Exit codes: 0, all is proven to work; 1, it is not, and what was there runs as before.
"""

from __future__ import annotations

import argparse
import shutil
import signal
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from ipaddress import ip_address
from pathlib import Path

from daemon import __version__
from daemon.commands.hash_password import ask_password, fault_of
from daemon.config import Bind, ConfigError
from daemon.config.values import Fault
from daemon.config.values import bind as parse_bind
from daemon.installation import configuration, service, units
from daemon.installation.place import Place, place_of
from daemon.installation.service import NotInstalled

TRIES = 3
"""Passwords that may be mistyped."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Install the version that this is."""
    parser = argparse.ArgumentParser(prog="run install", allow_abbrev=False)
    parser.add_argument("--units", type=Path, required=True)
    parser.add_argument("--instance", default="", metavar="NAME")
    parser.add_argument("--bind", default=str(configuration.DEFAULT_BIND), metavar="HOST:PORT")
    chosen = parser.parse_args(arguments)
    try:
        place, bind = place_of(chosen.instance), parse_bind(chosen.bind)
    except Fault as fault:
        parser.error(f"--bind: {fault.fault}")
    except ValueError as error:
        parser.error(f"--instance: {error}")
    try:
        install(place, bind, chosen.units)
    except KeyboardInterrupt:
        print("install: interrupted", file=sys.stderr)
        return 128 + signal.SIGINT
    except NotInstalled as why:
        print(f"install: {why}", file=sys.stderr)
        return 1
    except ConfigError as error:
        print(f"install: {place.configuration} cannot be used:\n{error}", file=sys.stderr)
        return 1
    return 0


def install(place: Place, bind: Bind, source: Path) -> None:
    """Install this version, whose units are in `source`. Raises `NotInstalled`, `ConfigError`."""
    systemd = service.version()
    configuration.see_to(place, bind, _ask, partial(print, flush=True))
    settings = configuration.read(place)
    for warning in settings.warnings:
        print(f"warning: {warning}")
    bind = settings.server.bind
    _check_bind(bind)
    if settings.state.directory != place.state:
        raise NotInstalled(
            f"state.directory is {settings.state.directory}, and {place.service} can write to "
            f"{place.state} only: set it to that in {place.configuration}"
        )
    before = Before(units.found(place), service.current(place))
    wanted = units.wanted(place, source, bind, systemd)
    where = units.address(place)
    moved = where in before.units and before.units[where] != wanted[where]
    try:
        units.put(place, wanted)
        service.switch(place, Path(sys.prefix))
        service.start(place, moved=moved)
        ready = service.prove(place, bind)
    except (NotInstalled, KeyboardInterrupt) as why:
        how = _back(place, before, moved=moved)
        if isinstance(why, KeyboardInterrupt):
            print(how, file=sys.stderr)
            raise
        raise NotInstalled(f"{why}\n{how}") from None
    _tidy(place)
    _explain(place, bind, ready=ready)


@dataclass(frozen=True)
class Before:
    """What was there: the units' files, and the environment that they start, if any."""

    units: units.Files
    version: Path | None


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


def _check_bind(bind: Bind) -> None:
    """A socket unit knows addresses only, and a port that is always the same."""
    try:
        ip_address(bind.host)
    except ValueError:
        fault = "names a host, and a socket of systemd's needs an IP address"
    else:
        if bind.port != 0:
            return
        fault = "has port 0, and a socket of systemd's needs one that stays"
    raise NotInstalled(f"server.bind {fault}: change it in the configuration")


def _back(place: Place, before: Before, *, moved: bool) -> str:
    """Return to the version before; how things are then, in a sentence."""
    if before.version is None:
        service.systemctl("disable", "--now", "--quiet", place.service, place.socket)
        return "It was stopped again. Mend what is said above, and run this again."
    units.put(place, before.units)
    service.switch(place, before.version)
    try:
        service.start(place, moved=moved)
    except NotInstalled as why:
        return f"The version before ({before.version}) does not start either:\n{why}"
    return f"The version before ({before.version}) is running again."


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
