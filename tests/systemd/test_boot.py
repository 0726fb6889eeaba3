"""The container itself: a systemd that is the first of its processes, on a network of its own."""

from __future__ import annotations

from pathlib import Path

from tests.systemd.machine import run


def test_systemd_is_the_first_process_and_its_machine_is_its_own() -> None:
    assert Path("/proc/1/comm").read_text() == "systemd\n"
    assert "smartlinkd-tests.service" in run("systemctl", "list-units", "--state=active")
    assert [path.name for path in Path("/sys/class/net").iterdir()] == ["lo"]
