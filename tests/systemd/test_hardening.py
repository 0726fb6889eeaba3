"""What the units keep the daemon from, as systemd judges it and as the kernel does it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.systemd.machine import Service, run, status_of

HIGHEST = 2.0
"""Of systemd's exposure level: 10 is the worst."""
FOLDER = Path(__file__).parents[2] / "systemd"


@pytest.mark.parametrize("name", ["smartlinkd.service", "smartlinkd@.service"])
def test_the_exposure_level_of_the_files_is_low(name: str) -> None:
    said = run(
        *("systemd-analyze", "security", "--no-pager", "--offline=true"),
        *(f"--threshold={HIGHEST * 10:g}", str(FOLDER / name)),
    )
    assert "Overall exposure level" in said


@pytest.mark.usefixtures("service")
@pytest.mark.parametrize("kind", ["service", "socket"])
@pytest.mark.parametrize(
    "name",
    [
        *("smartlinkd", "smartlinkd@", "smartlinkd@shop2"),
        *(f"{FOLDER}/{name}" for name in ("smartlinkd", "smartlinkd@")),
    ],
)
def test_verify_has_nothing_to_say(name: str, kind: str) -> None:
    """Of the units as they are installed, and as they are in the checkout."""
    assert run("systemd-analyze", "verify", f"{name}.{kind}") == ""


def test_it_has_no_rights_and_runs_as_nobody_else(service: Service) -> None:
    status = status_of(service.pid)
    uid = status["Uid"].split()[0]
    assert 61184 <= int(uid) <= 65519  # those that systemd gives to dynamic users
    for kind in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"):
        assert int(status[kind], 16) == 0
    assert status["NoNewPrivs"] == "1"
    assert status["Seccomp"] == "2"
    assert {status_of(pid)["Uid"].split()[0] for pid in service.processes()} == {uid}


def test_its_secrets_are_in_no_environment_and_no_command_line(service: Service) -> None:
    """Nor is a core file ever written, into which they would go."""
    for pid, line in service.processes().items():
        environment = Path(f"/proc/{pid}/environ").read_bytes().decode(errors="replace")
        for text in (environment, line):
            assert service.sync_key not in text
            assert "NOTIFY_SOCKET" not in text or pid == service.pid
    limits = Path(f"/proc/{service.pid}/limits").read_text()
    assert re.search(r"Max core file size +1 +1 ", limits)
