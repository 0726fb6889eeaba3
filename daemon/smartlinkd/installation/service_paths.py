"""Where a service has what, by its name: "smartlinkd", or "smartlinkd@NAME" for one of several.

The units say the same by their %N. `root` is / but for tests.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from smartlinkd.config.credentials import BESIDE, ENCRYPTED

UNIT = "smartlinkd"


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
