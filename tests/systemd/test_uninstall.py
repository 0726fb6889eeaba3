"""The end: a backup, `./run uninstall`, and the backup brought back, as the document has it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.systemd.machine import CREW_SOCKET, DOCUMENT, ROOT, Service, run

pytestmark = [pytest.mark.order("last")]

OWNED = [Path("/etc/smartlinkd/config.toml"), Path("/var/lib/private/smartlinkd/journal.sqlite3")]


def commands(what: str) -> str:
    """The document's block of commands with this in it."""
    blocks: list[str] = re.findall(r"```sh\n(.*?)```", DOCUMENT, flags=re.DOTALL)
    (found,) = [block for block in blocks if what in block]
    return found.replace("sudo ", "")


def left() -> list[str]:
    """All that has its name where things are installed. The tests' own unit is not of it."""
    said = run(
        "find", "/etc", "/run", "/srv", "/usr/local", "/var", "-xdev", "-iname", "*smartlinkd*"
    )
    return [line for line in said.splitlines() if "smartlinkd-tests" not in line]


def test_a_backup_survives_the_machine(crew_socket: Service, tmp_path: Path) -> None:
    """Of the owner's it has an address and a unit of their own, too."""
    service = crew_socket
    service.store_cookie()
    text = service.configuration.read_text()
    service.configuration.write_text(text.replace("127.0.0.1:8787", "127.0.0.1:8799"))
    run("./run", "install")
    service.url = "http://127.0.0.1:8799"
    begun = service.kickoff("quick", number=7)
    assert service.execution("quick", begun, wait=20)["state"] == "SUCCESS"
    token = service.login()
    run("sh", "-euc", commands("tar -C / -czf"), cwd=tmp_path)
    (archive,) = tmp_path.iterdir()
    assert archive.stat().st_mode & 0o077 == 0  # it holds every secret
    assert service.stored_cookie() is None  # it is in no archive, as the document says

    # Whatever shape the owner's units have.
    CREW_SOCKET.write_text(CREW_SOCKET.read_text().replace("PartOf=", "# PartOf="))
    run("systemctl", "daemon-reload")
    said = run("./run", "uninstall")
    assert "are kept" in said
    assert all(path.exists() for path in OWNED)
    assert not Path("/opt/smartlinkd").exists()
    assert "could not be found" in run("systemctl", "status", "smartlinkd", check=False)
    assert service.crew_health() == ""

    said = run("./run", "uninstall", "--purge")
    (remedy,) = re.findall(rf"{CREW_SOCKET} is yours, and is left: (.*)", said)
    run("sh", "-euc", remedy)
    assert left() == []

    restoring = commands("tar -C / -xzf").replace("./run", f"{ROOT}/run")
    run("sh", "-euc", restoring, cwd=tmp_path)
    assert service.crew_health() == "Healthy"
    assert service.execution("quick", begun)["result"] == "done"
    assert service.ask("/api/status", token=token).status_code == 200
    assert service.login()
    service.store_cookie()
