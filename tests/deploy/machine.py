"""A machine that something is installed on: its folders are real, systemd is a stand-in."""

from __future__ import annotations

import signal
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from smartlinkd.deploy import __main__ as installation
from smartlinkd.deploy.units import ServicePaths
from smartlinkd.net.addresses import Bind

SOURCE = Path(__file__).parents[2] / "systemd"
BIND = Bind("127.0.0.1", 8790)
OLD, NEW = "2026-01-01.abcDEF", "2026-01-02.abcDEF"


Main = Callable[[], int]
"""Runs the installation's `main` on the machine."""


@dataclass
class Machine:
    """A machine with a version that runs.

    `fault` is raised by the start of the new version, `relapse` by that of the old one, and the new
    one cannot run the service `broken`. `there` are the services that run, and `signals` come while
    one starts by the old version.
    """

    paths: ServicePaths
    calls: list[str]
    fault: BaseException | None = None
    relapse: BaseException | None = None
    broken: str = ""
    there: list[str] = field(default_factory=list)
    signals: list[signal.Signals] = field(default_factory=list)

    def install(self, paths: ServicePaths | None = None, wish: Bind | None = BIND) -> None:
        installation.install(paths or self.paths, wish, SOURCE)

    def instance(self) -> ServicePaths:
        """Return the paths of an instance that is not there yet."""
        return ServicePaths("smartlinkd@shop2", self.paths.root)

    def version(self) -> str:
        return self.paths.current.readlink().name
