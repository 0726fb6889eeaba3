"""The lines of docs/operating.md that touch secrets, run as they stand, on a machine of stand-ins.

Its `sudo` alone can look into the folder of credentials, as on a real one, and it sets a umask of
its own, as PAM has it do on some.
"""

from __future__ import annotations

import re
import shutil
import sqlite3
import stat
import subprocess
import tarfile
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from tests.systemd.machine import commands

ROOT = Path(__file__).parents[2]
SHOWN = [
    ROOT / "README.md",
    *sorted((ROOT / "docs").glob("*.md")),
    *sorted((ROOT / "daemon/smartlinkd/web/page").rglob("*.js")),
    ROOT / "daemon/smartlinkd/commands/demo.py",
]
"""The texts with commands for the owner's shell."""

Run = Callable[[str, str], int]


@pytest.fixture
def credentials(tmp_path: Path) -> Path:
    """Where root sees them; nobody else sees anything there."""
    folder = tmp_path / "seen by root"
    folder.mkdir()
    (folder / "auth.password_hash").write_text("old\n")
    (folder / "cookie.sync_key").write_text("key\n")
    (tmp_path / "etc").mkdir()
    return folder


@pytest.fixture
def run(tmp_path: Path, credentials: Path) -> Run:
    """Run commands of the document, to which something is typed; their exit code."""
    programs = tmp_path / "programs"
    programs.mkdir()
    place = tmp_path / "etc/credentials"
    stand_ins = {
        "sudo": f"umask 022; mv '{credentials}' {place}\n"
        f"\"$@\"; code=$?\nmv {place} '{credentials}'; exit $code",
        "smartlinkd": 'read -r answer && echo "$answer"',
        "systemctl": f'echo "$*" >>{tmp_path}/calls',
        "curl": f'echo "$*" >>{tmp_path}/calls; cat >{tmp_path}/read',
    }
    for name, body in stand_ins.items():
        (programs / name).write_text(f"#!/bin/sh\n{body}\n")
        (programs / name).chmod(0o755)

    def typed(block: str, text: str) -> int:
        ended = subprocess.run(
            ["sh", "-c", block.replace("/etc/smartlinkd", str(tmp_path / "etc"))],
            cwd=tmp_path / "etc",
            env={"PATH": f"{programs}:/usr/bin:/bin"},
            input=text,
            text=True,
            check=False,
            timeout=20,
        )
        return ended.returncode

    return typed


@pytest.mark.parametrize(("typed", "code"), [("new\n", 0), ("", 1)])
def test_failed_new_password_leaves_the_old_one(
    run: Run, credentials: Path, typed: str, code: int
) -> None:
    calls = credentials.with_name("calls")
    assert run(commands("sudo sh -c 'umask 077; cd"), typed) == code
    assert (credentials / "auth.password_hash").read_text() == (typed or "old\n")
    assert calls.exists() == (code == 0)  # it is started anew with a new one alone


def test_plain_secrets_are_shredded_beside_encrypted_ones(run: Run, credentials: Path) -> None:
    assert run(commands("sudo sh -c 'shred"), "") == 0
    assert list(credentials.iterdir()) == []


def test_sync_key_is_on_no_command_line(run: Run, tmp_path: Path) -> None:
    assert run(commands("sudo sh -c 'printf"), "") == 0
    assert (tmp_path / "read").read_text() == "Authorization: Bearer key\n"
    called = (tmp_path / "calls").read_text()
    assert " -H @- " in called
    assert "key" not in called


@pytest.mark.parametrize("shown", SHOWN, ids=lambda path: path.name)
def test_shown_commands_have_no_secret_in_their_arguments(shown: Path) -> None:
    found = re.findall(r"""Authorization: Bearer (?!%s|…).*|-d '{+"password.*""", shown.read_text())
    assert found == []


def test_backup_is_private(run: Run, tmp_path: Path) -> None:
    archive = tmp_path / "etc/smartlinkd.tar.gz"
    archive.touch(0o644)  # one of before, when everybody could
    machine = tmp_path / "machine"
    for folder in ("etc/smartlinkd", "etc/systemd/system", "var/lib/private/smartlinkd"):
        (machine / folder).mkdir(parents=True)
    (machine / "etc/systemd/system/smartlinkd-research.socket").touch()
    block = commands("sudo systemctl stop smartlinkd.socket smartlinkd.service\nsudo sh -c")
    assert run(block.replace("-C /", f"-C {machine}").replace("cd /", f"cd {machine}"), "") == 0
    assert stat.S_IMODE(archive.stat().st_mode) == 0o600
    with tarfile.open(archive) as backup:
        assert set(backup.getnames()) == {
            "etc/smartlinkd",
            "etc/systemd/system/smartlinkd-research.socket",
            "var/lib/private/smartlinkd",
        }


@pytest.mark.skipif(shutil.which("sqlite3") is None, reason="takes the sqlite3 shell")
def test_rewritten_journal_is_whole_and_private(run: Run, tmp_path: Path) -> None:
    state, disk = tmp_path / "state", tmp_path / "mnt"
    journal = state / "journal.sqlite3"
    for folder in (state, disk):
        folder.mkdir()
    with closing(sqlite3.connect(journal)) as connection:
        connection.executescript("CREATE TABLE t (x); INSERT INTO t VALUES (7)")
    journal.chmod(0o600)
    block = commands("sudo systemctl stop smartlinkd.socket smartlinkd.service\nsudo sh -eu")
    there = block.replace("/var/lib/private/smartlinkd", str(state)).replace("/mnt", str(disk))
    assert run(there, "") == 0
    assert stat.S_IMODE(journal.stat().st_mode) == 0o600
    with closing(sqlite3.connect(journal)) as connection:
        assert connection.execute("PRAGMA auto_vacuum").fetchone() == (2,)
        assert connection.execute("SELECT x FROM t").fetchall() == [(7,)]
    assert [*state.iterdir(), *disk.iterdir()] == [journal]
