"""Plain and encrypted credentials of systemd, by the commands of docs/operating.md."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.systemd.machine import DOCUMENT, PASSWORD, Service, commands, run

PLAIN = Path("/etc/smartlinkd/credentials")
ENCRYPTED = Path("/etc/smartlinkd/credentials.encrypted")
KEPT = Path("/etc/smartlinkd/kept")


@pytest.fixture
def encrypted(service: Service) -> Iterator[Service]:
    encrypting, _, edit = commands("sudo install -d -m 700").partition("sudo systemctl edit")
    assert edit
    run("cp", "-a", str(PLAIN), str(KEPT))
    run("sh", "-euc", encrypting.replace("sudo ", ""))
    (drop_in,) = re.findall(r"```ini\n([^`]*LoadCredentialEncrypted.*?)```", DOCUMENT, re.DOTALL)
    with service.drop_in(drop_in):
        run("sh", "-euc", commands("sudo sh -c 'shred").replace("sudo ", ""))
        assert not any(PLAIN.iterdir())
        yield service
    run("rm", "-r", str(ENCRYPTED), str(PLAIN))
    KEPT.rename(PLAIN)
    service.systemctl("restart")


def test_encrypted_credentials_allow_login(encrypted: Service) -> None:
    for path in ENCRYPTED.iterdir():
        assert b"argon2id" not in path.read_bytes()
    encrypted.systemctl("restart")
    assert encrypted.login()
    assert ": OK\n" in run("smartlinkd", "check-config", str(encrypted.configuration))


def test_encrypted_password_can_be_changed(encrypted: Service) -> None:
    encrypted.systemctl("restart")
    changing = commands("sudo sh -c 'hash=").replace("sudo ", "")
    run("sh", "-euc", f"echo 'another {PASSWORD}' | ({changing})")
    login = {"password": f"another {PASSWORD}"}
    assert encrypted.ask("/api/auth/login", login).status_code == 200


def test_crew_environment_file_can_be_a_credential(service: Service) -> None:
    """A file that is not one of the daemon's own credentials, as in docs/operating.md."""
    (PLAIN / "research.env").write_text("KEY=hunter2\n")
    good = service.configuration.read_text()
    worker = Path("/srv/crews/tells.sh")
    worker.write_text(
        "#!/bin/sh\n"
        """say() { printf '%s\\n' "$1" >&3; }\n"""
        """say '{"type": "started"}'\n"""
        """say "{\\"type\\": \\"result\\", \\"output\\": \\"$KEY\\"}"\n"""
    )
    worker.chmod(0o755)
    (named,) = re.findall(r"`(/run/credentials/\S*research.env)`", DOCUMENT)
    try:
        service.configuration.write_text(
            f'{good}\n[[crews]]\nname = "tells"\nrunner = "command"\n'
            f'command = ["{worker}"]\nenvironment_file = "{named}"\n'
        )
        service.systemctl("restart")
        assert service.execution("tells", service.kickoff("tells"), wait=20)["result"] == "hunter2"
        checked = run("smartlinkd", "check-config", str(service.configuration))
        assert 'crew "tells" (command)' in checked
    finally:
        (PLAIN / "research.env").unlink()
        service.configuration.write_text(good)
        service.systemctl("restart")
