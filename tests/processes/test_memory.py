"""What the control groups around us leave of the machine's memory."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from smartlinkd.processes import memory
from smartlinkd.processes.memory import memory_allowed

MIB = 1024 * 1024
MACHINE = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


@pytest.fixture
def groups(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """That of a service, which is in a slice; nothing bounds their memory."""
    own = tmp_path / "own"
    own.write_text("1:name=systemd:/elsewhere\n0::/system.slice/smartlinkd.service\n")
    service = tmp_path / "groups/system.slice/smartlinkd.service"
    service.mkdir(parents=True)
    for folder in (service, service.parent):
        (folder / "memory.high").write_text("max\n")
        (folder / "memory.max").write_text("max\n")
    monkeypatch.setattr(memory, "_OWN_GROUP", own)
    monkeypatch.setattr(memory, "_GROUPS", tmp_path / "groups")
    return tmp_path / "groups"


def test_unbounded_it_is_what_the_machine_has(groups: Path) -> None:
    assert memory_allowed() == MACHINE


@pytest.mark.parametrize("group", ["system.slice/smartlinkd.service", "system.slice"])
@pytest.mark.parametrize("name", ["memory.high", "memory.max"])
def test_any_bound_counts(groups: Path, group: str, name: str) -> None:
    (groups / group / name).write_text(f"{64 * MIB}\n")
    assert memory_allowed() == 64 * MIB


def test_the_least_of_them_counts(groups: Path) -> None:
    (groups / "system.slice/smartlinkd.service/memory.high").write_text(f"{64 * MIB}\n")
    (groups / "system.slice/smartlinkd.service/memory.max").write_text(f"{96 * MIB}\n")
    (groups / "system.slice/memory.max").write_text(f"{80 * MIB}\n")
    assert memory_allowed() == 64 * MIB


@pytest.mark.parametrize("own", ["", "4:memory:/of/version/1\n", "0::/gone\n"])
def test_where_nothing_tells_of_a_bound_it_is_what_the_machine_has(groups: Path, own: str) -> None:
    memory._OWN_GROUP.write_text(own)
    assert memory_allowed() == MACHINE


def test_without_control_groups_it_is_what_the_machine_has(groups: Path) -> None:
    memory._OWN_GROUP.unlink()
    assert memory_allowed() == MACHINE
