"""The unit files of an installation, from the real ones."""

from __future__ import annotations

import errno
import stat
from pathlib import Path
from typing import Any

import pytest

from daemon.installation import units
from daemon.installation.place import Place, place_of
from daemon.networks import Bind

SOURCE = Path(__file__).parents[2] / "systemd"
BIND = Bind("127.0.0.1", 8790)


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(root=tmp_path)


def names(place: Place) -> set[str]:
    return {str(p.relative_to(place.units)) for p in place.units.rglob("*") if p.is_file()}


def test_everybody_may_read_them(place: Place) -> None:
    units.put(place, units.wanted(place, SOURCE, BIND))
    assert names(place) == {
        *("smartlinkd.service", "smartlinkd.socket", "smartlinkd@.service", "smartlinkd@.socket"),
        "smartlinkd.socket.d/address.conf",
    }
    for path in place.units.rglob("*"):
        assert stat.S_IMODE(path.stat().st_mode) == (0o755 if path.is_dir() else 0o644)


def test_the_socket_has_the_address_of_the_configuration(place: Place) -> None:
    units.put(place, units.wanted(place, SOURCE, Bind("::1", 80)))
    told = (place.units / "smartlinkd.socket.d/address.conf").read_text()
    assert told == "[Socket]\nListenStream=\nListenStream=[::1]:80\n"


@pytest.mark.parametrize("before", [{}, {"smartlinkd.service": "of the version before"}])
def test_those_before_can_be_put_back(place: Place, before: dict[str, str]) -> None:
    units.put(place, {place.units / name: text for name, text in before.items()})
    found = units.found(place)
    units.put(place, units.wanted(place, SOURCE, BIND))
    assert units.found(place) != found
    units.put(place, found)
    assert (units.found(place), names(place)) == (found, set(before))


@pytest.mark.parametrize(
    "fault",
    [OSError(errno.ENOSPC, "No space left on device"), KeyboardInterrupt()],
    ids=["a full disk", "a signal"],
)
@pytest.mark.parametrize("at", [1, 3, 5])
def test_what_cannot_be_written_leaves_those_before(
    place: Place, monkeypatch: pytest.MonkeyPatch, at: int, fault: BaseException
) -> None:
    units.put(place, {place.units / "smartlinkd.service": "of the version before"})
    found, there, writes = units.found(place), names(place), 0
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
        units.put(place, units.wanted(place, SOURCE, BIND))
    assert (units.found(place), names(place)) == (found, there)
    units.put(place, found)  # what is there as it should be takes no room


@pytest.mark.parametrize(("instance", "name"), [("", "smartlinkd"), ("b", "smartlinkd@b")])
def test_all_but_the_version_is_an_instances_own(instance: str, name: str) -> None:
    place = place_of(instance)
    own = (place.configuration, place.credentials, place.encrypted, place.state)
    assert [str(path) for path in own] == [
        f"/etc/{name}/config.toml",
        f"/etc/{name}/credentials",
        f"/etc/{name}/credentials.encrypted",
        f"/var/lib/{name}",
    ]
    assert (place.service, place.socket) == (f"{name}.service", f"{name}.socket")
    shared = (place.current, place.command, place.units)
    assert [str(path) for path in shared] == [
        "/opt/smartlinkd/current",
        "/usr/local/bin/smartlinkd",
        "/usr/local/lib/systemd/system",
    ]


def test_an_instances_address_is_its_own(place: Place) -> None:
    other = Place("smartlinkd@b", place.root)
    units.put(place, units.wanted(place, SOURCE, BIND))
    mine = units.address(place).read_text()
    units.put(other, units.wanted(other, SOURCE, Bind("127.0.0.1", 1)))
    assert units.address(place).read_text() == mine
    assert units.address(other).read_text() != mine


def test_all_that_is_new_is_on_the_disk_before_anything_takes_its_place(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A rename may be on the disk sooner than what was written: that would be an empty unit."""
    wanted = units.wanted(place, SOURCE, BIND)
    at_the_sync: list[list[str]] = []

    def sync() -> None:
        at_the_sync.append([path.read_text() for path in place.units.rglob(".*.new")])
        assert units.found(place) == {}

    monkeypatch.setattr("os.sync", sync)
    units.put(place, wanted)
    assert [sorted(texts) for texts in at_the_sync] == [sorted(wanted.values())]


@pytest.mark.parametrize("name", ["smartlinkd.socket", "smartlinkd@.socket"])
def test_a_socket_waits_for_no_address(name: str) -> None:
    """At a boot, sockets come before networks; and the service is not started without its own."""
    assert "FreeBind=yes" in (SOURCE / name).read_text().splitlines()
