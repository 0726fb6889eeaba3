"""A machine with a version that runs, and a new one to be installed."""

from __future__ import annotations

import io
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from smartlinkd.deploy import __main__ as installation
from smartlinkd.deploy import service
from smartlinkd.deploy.units import ServicePaths
from tests.deploy.machine import NEW, OLD, SOURCE, Machine, Main


@pytest.fixture
def signal_handlers() -> Iterator[None]:
    """The tests' own signal handlers, which are back afterwards."""
    before = [(each, signal.getsignal(each)) for each in installation.SIGNALS]
    yield
    for each, handler in before:
        signal.signal(each, handler)


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, signal_handlers: None) -> Machine:
    for folder in ("etc", f"opt/smartlinkd/{OLD}", f"opt/smartlinkd/{NEW}"):
        (tmp_path / folder).mkdir(parents=True)
    made = Machine(ServicePaths(root=tmp_path), [])

    def start(paths: ServicePaths, *, is_moved: bool = False) -> None:
        made.calls.append(f"start {made.version()}{' moved' if is_moved else ''}")
        if made.version() == OLD:
            for each in made.signals:
                signal.raise_signal(each)
            if made.relapse is not None:
                raise made.relapse
        elif made.fault is not None:
            raise made.fault

    def others(paths: ServicePaths) -> list[str]:
        return [unit for unit in made.there if unit != paths.service]

    def restart(unit: str) -> None:
        made.calls.append(f"restart {unit} {made.version()}")
        if unit == made.broken and made.version() == NEW:
            raise service.InstallFailed("it does not start")

    monkeypatch.setattr(service, "start", start)
    monkeypatch.setattr(service, "wait_until_ready", lambda *_, **__: True)
    monkeypatch.setattr(service, "is_installed", lambda paths: paths.service in made.there)
    monkeypatch.setattr(service, "other_services", others)
    monkeypatch.setattr(service, "restart", restart)
    monkeypatch.setattr(service, "systemctl", lambda *words: made.calls.append(" ".join(words)))
    monkeypatch.setattr(sys, "prefix", str(made.paths.versions / OLD))
    monkeypatch.setattr(sys, "stdin", io.StringIO())
    made.install()
    made.there.append(made.paths.service)
    monkeypatch.setattr(sys, "prefix", str(made.paths.versions / NEW))
    (made.paths.versions / NEW).mkdir(exist_ok=True)
    made.calls.clear()
    return made


@pytest.fixture
def main(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> Main:
    monkeypatch.setattr(installation, "paths_of", lambda _: machine.paths)
    return lambda: installation.main(["--units", str(SOURCE)])
