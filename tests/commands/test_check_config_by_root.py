"""`smartlinkd check-config` by root: it looks as the daemon's user."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.config_file import HASH

NOBODY = 65534

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody else")

# With a dynamic user of systemd: only root can reach its state, and it sees no homes.
DYNAMIC = """
import sys
from functools import partial
from pathlib import Path
from smartlinkd.commands import check_config
from smartlinkd.config import load
private, hidden, config = Path(sys.argv[1]), [sys.argv[2]], Path(sys.argv[3])
read = partial(load, config, {}, by_hand=True)
sys.exit(check_config.main(config, read, private=private, hidden=hidden))
"""

Write = Callable[[str], Path]


def by_root(
    path: Path, how: tuple[str, ...] = ("-m", "smartlinkd", "check-config")
) -> subprocess.CompletedProcess[str]:
    """Run the command in a new process, because it cannot become root again."""
    return subprocess.run(
        [sys.executable, *how, str(path)],
        capture_output=True,
        text=True,
        cwd=Path(__file__).parents[2],
        check=False,
    )


def test_crews_are_checked_as_the_daemons_user(write: Write, tmp_path: Path) -> None:
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o700)
    (closed / "crew.py").touch()
    whoami = tmp_path / "python"
    whoami.write_text(f"#!/bin/sh\nid -u > {tmp_path}/state/seen\n")
    whoami.chmod(0o755)
    os.chown(tmp_path / "state", NOBODY, NOBODY)
    path = write(
        "[[crews]]\nname = 'a'\nrunner = 'crewai'\n"
        "project = '{tmp}/closed'\npython = '{tmp}/python'\n"
    )
    path.chmod(0o644)
    ended = by_root(path)
    assert ended.returncode == 1
    assert 'crew "a": project: names a folder that the user nobody may not read' in ended.stderr
    assert (tmp_path / "state" / "seen").read_text() == f"{NOBODY}\n"


@pytest.fixture
def private_config(tmp_path: Path) -> Path:
    """A valid configuration whose files only the owner can read, without credentials."""
    path = tmp_path / "config.toml"
    path.write_text(
        f'[auth]\npassword_hash_file = "{tmp_path}/hash"\n'
        f'[state]\ndirectory = "{tmp_path}/state"\n'
        "[[crews]]\nname = 'a'\nrunner = 'command'\ncommand = ['/bin/true']\n"
        f'environment_file = "{tmp_path}/env"\n'
    )
    (tmp_path / "hash").write_text(HASH)
    (tmp_path / "env").write_text("KEY=hunter2\n")
    for name in ("hash", "env"):
        (tmp_path / name).chmod(0o600)
    (tmp_path / "state").mkdir()
    os.chown(tmp_path / "state", NOBODY, NOBODY)
    return path


def test_secret_that_only_root_can_read_is_refused_unless_it_is_a_credential(
    private_config: Path,
) -> None:
    folder = private_config.parent
    ended = by_root(private_config)
    told = ended.stderr.splitlines()
    assert ended.returncode == 2
    assert told == [
        "smartlinkd: 2 problem(s) in the configuration",
        "auth.password_hash_file: cannot be opened (Permission denied); make it a credential: "
        f"move it to {folder}/credentials/auth.password_hash, and take this key out",
        'crew "a": environment_file: cannot be opened (Permission denied); let the daemon\'s user '
        "read it, or make it a credential (docs/operating.md)",
    ]

    (folder / "credentials").mkdir(mode=0o700)
    (folder / "hash").rename(folder / "credentials/auth.password_hash")
    text = private_config.read_text().replace("[auth]\npassword_hash_file", "#")
    private_config.write_text(text)
    ended = by_root(private_config)
    assert ended.returncode == 1
    assert ended.stdout.startswith(f"{private_config}: starts, without 1 of its 1 crews\n")
    assert 'crew "a": environment_file: cannot be opened (Permission denied)' in ended.stderr

    (folder / "env").rename(folder / "credentials/a.env")
    seen = f"/run/credentials/{folder.name}.service/smartlinkd_a.env"
    private_config.write_text(text.replace(f"{folder}/env", seen))
    ended = by_root(private_config)
    assert (ended.stderr, ended.returncode) == ("", 0)


def test_configuration_that_only_root_can_read_is_refused(private_config: Path) -> None:
    os.chown(private_config.parent / "hash", NOBODY, NOBODY)
    os.chown(private_config.parent / "env", NOBODY, NOBODY)
    assert by_root(private_config).returncode == 0
    private_config.chmod(0o600)
    ended = by_root(private_config)
    assert ended.returncode == 2
    assert (
        f"{private_config}: cannot be opened (Permission denied); let the daemon's" in ended.stderr
    )


def test_draft_at_home_and_secret_in_the_state_are_accepted(private_config: Path) -> None:
    """The service will read the draft elsewhere, and systemd shows it the secret."""
    folder = private_config.parent
    for name in ("home", "private"):
        (folder / name).mkdir(mode=0o700)
    (folder / "hash").rename(folder / "state/hash")
    os.chown(folder / "state/hash", NOBODY, NOBODY)
    os.chown(folder / "env", NOBODY, NOBODY)
    (folder / "state").rename(folder / "private/state")
    (folder / "state").symlink_to(folder / "private/state")
    draft = folder / "home/config.toml"
    draft.write_text(private_config.read_text().replace("/hash", "/state/hash"))
    ended = by_root(draft, ("-c", DYNAMIC, str(folder / "private"), str(folder / "home")))
    if "cannot be looked at as the service sees them" in ended.stderr:
        pytest.skip("nothing can be mounted here")
    assert ended.stderr == ""
    assert ended.returncode == 0
    os.chown(folder / "env", 0, 0)
    ended = by_root(draft, ("-c", DYNAMIC, str(folder / "private"), str(folder / "home")))
    assert 'crew "a": environment_file: cannot be opened (Permission denied)' in ended.stderr
