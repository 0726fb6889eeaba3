"""The paths of a service, and its unit files.

Unit files are compared and replaced as a whole, so that a rollback restores those of the version
before. The owner's drop-ins, in /etc/systemd/system, are not touched.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from smartlinkd.config.secret_files import BESIDE, ENCRYPTED
from smartlinkd.net.addresses import Bind

UNIT: Final = "smartlinkd"
NAMES: Final = tuple(f"{UNIT}{at}.{kind}" for at in ("", "@") for kind in ("service", "socket"))

Files = Mapping[Path, str]


@dataclass(frozen=True)
class ServicePaths:
    """The paths of one service. All services share the version.

    Args:
        name: "smartlinkd", or "smartlinkd@NAME" for an instance; the units have it as %N.
        root: / but for tests.
    """

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
        """The link in the users' PATH."""
        return self.root / "usr/local/bin/smartlinkd"

    @property
    def units(self) -> Path:
        """The folder for local software's units; /etc/systemd/system is the owner's."""
        return self.root / "usr/local/lib/systemd/system"

    @property
    def service(self) -> str:
        return f"{self.name}.service"

    @property
    def socket(self) -> str:
        return f"{self.name}.socket"


def paths_of(instance: str) -> ServicePaths:
    """Return the paths of an instance, or of the service without a name if it is ""."""
    return ServicePaths(f"{UNIT}@{instance}") if instance else ServicePaths()


def render_units(paths: ServicePaths, source: Path, bind: Bind) -> Files:
    """Return the unit files to install. `source` has those of the version.

    The units of instances have the same text as those without a name.
    """
    files = {paths.units / name: _text(source / name.replace("@", "")) for name in NAMES}
    files[address_drop_in(paths)] = f"[Socket]\nListenStream=\nListenStream={bind}\n"
    return files


def installed_units(paths: ServicePaths) -> Files:
    """Return the unit files that are installed."""
    return {path: _text(path) for path in _all(paths) if path.exists()}


def replace_units(paths: ServicePaths, files: Files) -> None:
    """Make `files` the only unit files of ours.

    All new files, and the version, are on the disk before the first one is replaced. So a full disk
    raises `OSError` and changes nothing, and a power cut leaves one version complete.
    """
    changed = {path: text for path, text in files.items() if not _is(path, text)}
    try:
        for path, text in changed.items():
            path.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
            _fresh(path).write_text(text, encoding="utf-8")
            _fresh(path).chmod(0o644)
        os.sync()
    except BaseException:  # also after a signal
        for path in changed:
            _fresh(path).unlink(missing_ok=True)
        raise
    for path in _all(paths):
        if path not in files:
            path.unlink(missing_ok=True)
    for path in changed:
        _fresh(path).rename(path)


def address_drop_in(paths: ServicePaths) -> Path:
    """Return the drop-in that sets the socket's address to the configuration's."""
    return paths.units / f"{paths.socket}.d" / "address.conf"


def _all(paths: ServicePaths) -> Iterator[Path]:
    yield from (paths.units / name for name in NAMES)
    yield address_drop_in(paths)


def _is(path: Path, text: str) -> bool:
    return path.exists() and _text(path) == text


def _fresh(path: Path) -> Path:
    return path.with_name(f".{path.name}.new")


def _text(path: Path) -> str:
    return path.read_text(encoding="utf-8")
