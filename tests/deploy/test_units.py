"""The unit files of an installation, from the real ones."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path
from typing import Any

import pytest

from smartlinkd.deploy import units
from smartlinkd.deploy.units import ServicePaths
from smartlinkd.net.addresses import Bind

SOURCE = Path(__file__).parents[2] / "systemd"
BIND = Bind("127.0.0.1", 8790)


@pytest.fixture
def paths(tmp_path: Path) -> ServicePaths:
    return ServicePaths(root=tmp_path)


def names(paths: ServicePaths) -> set[str]:
    return {str(p.relative_to(paths.units)) for p in paths.units.rglob("*") if p.is_file()}


def test_installed_units_are_world_readable(paths: ServicePaths) -> None:
    units.replace_units(paths, units.render_units(paths, SOURCE, BIND))
    assert names(paths) == {
        *("smartlinkd.service", "smartlinkd.socket", "smartlinkd@.service", "smartlinkd@.socket"),
        "smartlinkd.socket.d/address.conf",
    }
    for path in paths.units.rglob("*"):
        assert stat.S_IMODE(path.stat().st_mode) == (0o755 if path.is_dir() else 0o644)


def test_each_socket_unit_has_the_address_of_its_configuration(paths: ServicePaths) -> None:
    other = ServicePaths("smartlinkd@b", paths.root)
    units.replace_units(paths, units.render_units(paths, SOURCE, Bind("::1", 80)))
    units.replace_units(other, units.render_units(other, SOURCE, Bind("127.0.0.1", 1)))
    for each, bind in ((paths, "[::1]:80"), (other, "127.0.0.1:1")):
        told = (each.units / f"{each.socket}.d/address.conf").read_text()
        assert told == f"[Socket]\nListenStream=\nListenStream={bind}\n"


@pytest.mark.parametrize(
    "fault",
    [OSError(errno.ENOSPC, "No space left on device"), KeyboardInterrupt()],
    ids=["a full disk", "a signal"],
)
@pytest.mark.parametrize("at", [1, 3, 5])
def test_failed_write_leaves_the_units_before(
    paths: ServicePaths, monkeypatch: pytest.MonkeyPatch, at: int, fault: BaseException
) -> None:
    units.replace_units(paths, {paths.units / "smartlinkd.service": "of the version before"})
    found, there, writes = units.installed_units(paths), names(paths), 0
    write = Path.write_text

    def filling(path: Path, text: str, **how: Any) -> int:
        nonlocal writes
        writes += 1
        if writes >= at:
            write(path, "")
            raise fault
        return write(path, text, **how)

    monkeypatch.setattr(Path, "write_text", filling)
    with pytest.raises(type(fault)):
        units.replace_units(paths, units.render_units(paths, SOURCE, BIND))
    assert (units.installed_units(paths), names(paths)) == (found, there)
    units.replace_units(paths, found)  # what is there as it should be takes no room


def test_new_units_are_synced_before_they_are_renamed(
    paths: ServicePaths, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A rename may be on the disk sooner than what was written: that would be an empty unit."""
    wanted = units.render_units(paths, SOURCE, BIND)
    at_the_sync: list[list[str]] = []

    def sync() -> None:
        at_the_sync.append([path.read_text() for path in paths.units.rglob(".*.new")])
        assert units.installed_units(paths) == {}

    monkeypatch.setattr(os, "sync", sync)
    units.replace_units(paths, wanted)
    assert [sorted(texts) for texts in at_the_sync] == [sorted(wanted.values())]


def test_socket_unit_binds_before_its_address_exists() -> None:
    """At a boot, sockets come before networks; and the service is not started without its own."""
    assert "FreeBind=yes" in (SOURCE / "smartlinkd.socket").read_text().splitlines()
