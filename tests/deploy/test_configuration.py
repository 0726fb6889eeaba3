"""The owner's files: what is made of them, and that nothing of them is changed."""

from __future__ import annotations

import os
import stat
import tomllib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import argon2
import pytest

from smartlinkd.config import ConfigError, load
from smartlinkd.deploy import configuration
from smartlinkd.deploy.units import ServicePaths
from smartlinkd.net.addresses import Bind

BIND = Bind("127.0.0.1", 8787)
PASSWORD = "correct horse"


@dataclass
class NewMachine:
    """A machine with nothing installed. Its owner types `typed`."""

    paths: ServicePaths
    typed: str | None = PASSWORD
    asked: int = 0

    def create_missing(self, bind: Bind = BIND) -> None:
        def ask() -> str | None:
            self.asked += 1
            return self.typed

        configuration.create_missing(self.paths, bind, ask)

    def secret(self, key: str) -> str:
        return (self.paths.credentials / key).read_text()

    def files(self) -> dict[str, str]:
        return {p.name: p.read_text() for p in self.paths.root.rglob("*") if p.is_file()}


Put = Callable[[str], None]


@pytest.fixture(params=["smartlinkd", "smartlinkd@shop2"])
def machine(request: pytest.FixtureRequest, tmp_path: Path) -> NewMachine:
    (tmp_path / "etc").mkdir()
    return NewMachine(ServicePaths(request.param, tmp_path))


@pytest.fixture
def put(machine: NewMachine) -> Put:
    def write(text: str) -> None:
        machine.paths.configuration.parent.mkdir(exist_ok=True)
        machine.paths.configuration.write_text(text)

    return write


def verified(hashed: str, password: str) -> bool:
    return argon2.PasswordHasher().verify(hashed.strip(), password)


def test_made_configuration_is_complete_and_without_warnings(machine: NewMachine) -> None:
    machine.create_missing(Bind("127.0.0.1", 8790))
    settings = load(machine.paths.configuration, {}, by_hand=True)
    assert settings.warnings == ()
    assert str(settings.server.bind) == "127.0.0.1:8790"
    assert settings.cookie.open_to == ()
    assert settings.state.directory == machine.paths.state
    assert verified(settings.auth.password_hash.get_secret_value(), PASSWORD)
    key = settings.cookie.sync_key.get_secret_value()
    assert len(key) >= 32
    (machine.paths.credentials / "cookie.sync_key").unlink()
    machine.create_missing()
    assert not (machine.paths.credentials / "cookie.sync_key").exists()  # the owner took it away
    machine.paths.configuration.unlink()
    machine.create_missing()
    assert machine.secret("cookie.sync_key").strip() != key


def test_made_secrets_are_private_and_the_configuration_has_none_but_its_example(
    machine: NewMachine,
) -> None:
    machine.create_missing()
    folder = machine.paths.credentials
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert stat.S_IMODE(folder.parent.stat().st_mode) == 0o755
    assert {stat.S_IMODE(p.stat().st_mode) for p in folder.iterdir()} == {0o600}
    assert stat.S_IMODE(machine.paths.configuration.stat().st_mode) == 0o644
    text = machine.paths.configuration.read_text()
    assert not any(machine.secret(p.name).strip() in text for p in folder.iterdir())
    assert set(tomllib.loads(text)) == {"server", "state", "cookie"}
    assert f"{machine.paths.current}/share/smartlinkd/config.example.toml" in text


def test_made_password_is_shown_once(
    machine: NewMachine, put: Put, capsys: pytest.CaptureFixture[str]
) -> None:
    machine.typed = None
    put("# mine\n")
    machine.create_missing()
    machine.create_missing()
    said = capsys.readouterr().out.splitlines()
    (shown,) = [line for line in said if line.startswith("the password")]
    password = shown.rpartition(" ")[2]
    assert len(password) >= 16
    assert verified(machine.secret("auth.password_hash"), password)
    assert machine.paths.configuration.read_text() == "# mine\n"


def test_second_installation_asks_and_changes_nothing(machine: NewMachine) -> None:
    machine.create_missing()
    before = machine.files()
    machine.create_missing(Bind("127.0.0.1", 1))
    assert (machine.files(), machine.asked) == (before, 1)


@pytest.mark.parametrize("key", ["password_hash", "password_hash_file"])
def test_password_in_the_configuration_is_kept(machine: NewMachine, put: Put, key: str) -> None:
    put(f'[auth]\n{key} = "/somewhere"\n')
    machine.create_missing()
    assert machine.asked == 0
    assert list(machine.files()) == ["config.toml"]


def test_unreadable_configuration_gets_no_second_password(machine: NewMachine, put: Put) -> None:
    """Mended, it would have two, of which none counts."""
    put('[auth]\npassword_hash_file = "/somewhere"\n[server\n')
    machine.create_missing()
    assert machine.asked == 0
    assert list(machine.files()) == ["config.toml"]
    machine.paths.configuration.unlink()
    machine.paths.configuration.mkdir()
    machine.create_missing()
    assert machine.asked == 0


@pytest.mark.parametrize("folder", ["credentials", "encrypted"])
def test_sync_key_from_before_the_first_installation_is_kept(
    machine: NewMachine, folder: str
) -> None:
    given: Path = getattr(machine.paths, folder) / "cookie.sync_key"
    given.parent.mkdir(parents=True)
    given.write_text("mine")
    machine.create_missing()
    assert [p.read_text() for p in machine.paths.root.rglob("cookie.sync_key")] == ["mine"]


@pytest.mark.parametrize("step", range(3))
def test_interrupted_installation_is_continued(
    machine: NewMachine, step: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    written, sync = 0, os.fsync

    def interrupted(descriptor: int) -> None:
        nonlocal written
        if written == step:
            raise KeyboardInterrupt
        written += 1
        sync(descriptor)

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", interrupted)
        with pytest.raises(KeyboardInterrupt):
            machine.create_missing()
    machine.create_missing()
    settings = load(machine.paths.configuration, {}, by_hand=True)
    assert settings.cookie.sync_key
    assert set(machine.files()) == {"config.toml", "auth.password_hash", "cookie.sync_key"}


def test_section_that_is_no_table_is_a_fault_of_the_configuration(
    machine: NewMachine, put: Put
) -> None:
    put("auth = 1\n")
    machine.create_missing()
    with pytest.raises(ConfigError) as raised:
        load(machine.paths.configuration, {}, by_hand=True)
    assert [problem.key for problem in raised.value.problems] == ["auth"]
