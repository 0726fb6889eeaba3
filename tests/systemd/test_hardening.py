"""The confinement of the daemon, as systemd rates it and as the kernel shows it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.systemd.machine import Service, run, status_of

HIGHEST = 2.0
"""The highest exposure level, of 0 to 10, that the unit may have."""
FOLDER = Path(__file__).parents[2] / "systemd"


def test_unit_file_has_a_low_exposure_level() -> None:
    output = run(
        *("systemd-analyze", "security", "--no-pager", "--offline=true"),
        *(f"--threshold={HIGHEST * 10:g}", str(FOLDER / "smartlinkd.service")),
    )
    assert "Overall exposure level" in output


@pytest.mark.usefixtures("service")
@pytest.mark.parametrize("kind", ["service", "socket"])
@pytest.mark.parametrize(
    "name", ["smartlinkd", "smartlinkd@", "smartlinkd@shop2", f"{FOLDER}/smartlinkd"]
)
def test_systemd_analyze_verify_prints_nothing(name: str, kind: str) -> None:
    """The installed units and those of the clone have no errors."""
    assert run("systemd-analyze", "verify", f"{name}.{kind}") == ""


def test_processes_have_no_capabilities_and_a_dynamic_user(service: Service) -> None:
    status = status_of(service.pid)
    uid = status["Uid"].split()[0]
    assert 61184 <= int(uid) <= 65519  # the range of systemd's dynamic users
    for kind in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"):
        assert int(status[kind], 16) == 0
    assert status["NoNewPrivs"] == "1"
    assert status["Seccomp"] == "2"
    assert {status_of(pid)["Uid"].split()[0] for pid in service.processes()} == {uid}


def test_secrets_are_in_no_environment_and_no_command_line(service: Service) -> None:
    """A core file would have the secrets too, so none is ever written."""
    for pid, line in service.processes().items():
        environment = Path(f"/proc/{pid}/environ").read_bytes().decode(errors="replace")
        for text in (environment, line):
            assert service.sync_key not in text
            assert "NOTIFY_SOCKET" not in text or pid == service.pid
    limits = Path(f"/proc/{service.pid}/limits").read_text()
    assert re.search(r"Max core file size +1 +1 ", limits)
