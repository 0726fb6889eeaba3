"""The unit files of an installation: which there are to be, and which there are.

They are looked at as a whole, path and text, so that those of the version before can be put back as
they were. The drop-ins of the owner, in /etc/systemd/system, are not looked at.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from smartlinkd.config.credentials import BESIDE, ENCRYPTED
from smartlinkd.networks import Bind

UNIT: Final = "smartlinkd"
NAMES: Final = tuple(f"{UNIT}{at}.{kind}" for at in ("", "@") for kind in ("service", "socket"))

Files = Mapping[Path, str]


@dataclass(frozen=True)
class ServicePaths:
    """One service's own folders, and the version that it runs, which all of them share."""

    name: str = UNIT
    root: Path = Path("/")

    @property
    def configuration(self) -> Path:
        return self.root / "etc" / self.name / "config.toml"

    @property
    def credentials(self) -> Path:
        return self.configuration.parent / BESIDE

    @property
    def encrypted(self) -> Path:
        return self.configuration.parent / ENCRYPTED

    @property
    def state(self) -> Path:
        return self.root / "var/lib" / self.name

    @property
    def versions(self) -> Path:
        return self.root / "opt/smartlinkd"

    @property
    def current(self) -> Path:
        """The link to the environment in use, through which the units start the daemon."""
        return self.versions / "current"

    @property
    def command(self) -> Path:
        """The link in everybody's path."""
        return self.root / "usr/local/bin/smartlinkd"

    @property
    def units(self) -> Path:
        """For what a machine's own software brings; /etc/systemd/system is the owner's."""
        return self.root / "usr/local/lib/systemd/system"

    @property
    def service(self) -> str:
        return f"{self.name}.service"

    @property
    def socket(self) -> str:
        return f"{self.name}.socket"


def paths_of(instance: str) -> ServicePaths:
    """Those of an instance, or of the one without a name."""
    return ServicePaths(f"{UNIT}@{instance}") if instance else ServicePaths()


def wanted(paths: ServicePaths, source: Path, bind: Bind) -> Files:
    """Those of the version whose units are in `source`."""
    files = {paths.units / name: _text(source / name) for name in NAMES}
    files[address(paths)] = f"[Socket]\nListenStream=\nListenStream={bind}\n"
    return files


def found(paths: ServicePaths) -> Files:
    """Those that are there."""
    return {path: _text(path) for path in _all(paths) if path.exists()}


def put(paths: ServicePaths, files: Files) -> None:
    """Have these there, and no others of ours.

    Nothing is changed before all that is new has been written: on a full disk, `OSError` leaves
    them as they were. It is on the disk by then, with the version that it starts: whoever loses
    power has one that is whole.
    """
    changed = {path: text for path, text in files.items() if not _is(path, text)}
    try:
        for path, text in changed.items():
            path.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
            _fresh(path).write_text(text, encoding="utf-8")
            _fresh(path).chmod(0o644)
        os.sync()
    except BaseException:  # a signal as well: nothing half done stays
        for path in changed:
            _fresh(path).unlink(missing_ok=True)
        raise
    for path in _all(paths):
        if path not in files:
            path.unlink(missing_ok=True)
    for path in changed:
        _fresh(path).rename(path)


def address(paths: ServicePaths) -> Path:
    """The drop-in that gives its socket the address of its configuration."""
    return paths.units / f"{paths.socket}.d" / "address.conf"


def _all(paths: ServicePaths) -> Iterator[Path]:
    yield from (paths.units / name for name in NAMES)
    yield address(paths)


def _is(path: Path, text: str) -> bool:
    return path.exists() and _text(path) == text


def _fresh(path: Path) -> Path:
    return path.with_name(f".{path.name}.new")


def _text(path: Path) -> str:
    return path.read_text(encoding="utf-8")
