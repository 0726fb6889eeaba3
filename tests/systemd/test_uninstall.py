"""A backup, `./run uninstall`, and the restored backup, as in docs/operating.md."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.systemd.machine import CREW_SOCKET, ROOT, VERSIONS, Service, commands, run

pytestmark = [pytest.mark.order("last")]

OWNED = [Path("/etc/smartlinkd/config.toml"), Path("/var/lib/private/smartlinkd/journal.sqlite3")]


def remaining_files() -> list[str]:
    """Return the files with smartlinkd in their names, without the tests' own unit."""
    output = run(
        "find", "/etc", "/run", "/srv", "/usr/local", "/var", "-xdev", "-iname", "*smartlinkd*"
    )
    return [line for line in output.splitlines() if "smartlinkd-tests" not in line]


def test_backup_is_restored_after_a_purge(crew_socket: Service, tmp_path: Path) -> None:
    """The service has an address and a unit of the owner, too."""
    service = crew_socket
    service.store_cookie()
    text = service.configuration.read_text()
    service.configuration.write_text(text.replace("127.0.0.1:8787", "127.0.0.1:8799"))
    run("./run", "install")
    service.url = "http://127.0.0.1:8799"
    begun = service.kickoff("quick", number=7)
    assert service.execution("quick", begun, wait=20)["state"] == "SUCCESS"
    token = service.login()
    backup = "sudo systemctl stop smartlinkd.socket smartlinkd.service\nsudo sh -c"
    run("sh", "-euc", commands(backup).replace("sudo ", ""), cwd=tmp_path)
    (archive,) = tmp_path.iterdir()
    assert archive.stat().st_mode & 0o077 == 0  # it holds every secret
    assert service.stored_cookie() is None  # the cookie is in no archive, as documented

    # A unit of the owner need not have PartOf=.
    CREW_SOCKET.write_text(CREW_SOCKET.read_text().replace("PartOf=", "# PartOf="))
    run("systemctl", "daemon-reload")
    output = run("./run", "uninstall")
    assert "are kept" in output
    assert all(path.exists() for path in OWNED)
    assert not VERSIONS.exists()
    assert "could not be found" in run("systemctl", "status", "smartlinkd", check=False)
    assert service.crew_health() == ""

    output = run("./run", "uninstall", "--purge")
    (remedy,) = re.findall(rf"{CREW_SOCKET} is yours, and is left: (.*)", output)
    run("sh", "-euc", remedy)
    assert remaining_files() == []

    restoring = commands("sudo rm -rf").replace("sudo ", "").replace("./run", f"{ROOT}/run")
    run("sh", "-euc", restoring, cwd=tmp_path)
    assert service.crew_health() == "Healthy"
    assert service.execution("quick", begun)["result"] == "done"
    assert service.ask("/api/status", token=token).status_code == 200
    assert service.login()
    service.store_cookie()
