"""The order of the steps: what is refused before anything is touched, and what is taken back."""

from __future__ import annotations

import io
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from daemon.config import Bind, ConfigError
from daemon.installation import __main__ as installation
from daemon.installation import service, units
from daemon.installation.place import Place
from daemon.installation.service import NotInstalled

SOURCE = Path(__file__).parents[2] / "systemd"
BIND = Bind("127.0.0.1", 8790)
OLD, NEW = "2026-01-01.abcDEF", "2026-01-02.abcDEF"


@dataclass
class Machine:
    """One with a version that runs; `fault` is what the start of the new one raises."""

    place: Place
    calls: list[str]
    fault: BaseException | None = None

    def install(self) -> None:
        installation.install(self.place, BIND, SOURCE)

    def version(self) -> str:
        return self.place.current.readlink().name


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    for folder in ("etc", f"opt/smartlinkd/{OLD}", f"opt/smartlinkd/{NEW}"):
        (tmp_path / folder).mkdir(parents=True)
    made = Machine(Place(root=tmp_path), [])

    def start(place: Place, *, moved: bool = False) -> None:
        made.calls.append(f"start {made.version()}{' moved' if moved else ''}")
        if made.fault is not None and made.version() == NEW:
            raise made.fault

    monkeypatch.setattr(service, "version", lambda: 252)
    monkeypatch.setattr(service, "start", start)
    monkeypatch.setattr(service, "prove", lambda *_: True)
    monkeypatch.setattr(service, "systemctl", lambda *words: made.calls.append(" ".join(words)))
    monkeypatch.setattr(sys, "prefix", str(made.place.versions / OLD))
    monkeypatch.setattr(sys, "stdin", io.StringIO())
    made.install()
    monkeypatch.setattr(sys, "prefix", str(made.place.versions / NEW))
    (made.place.versions / NEW).mkdir(exist_ok=True)
    made.calls.clear()
    return made


def test_the_new_version_is_the_one_that_is_kept(machine: Machine) -> None:
    machine.install()
    assert machine.calls == [f"start {NEW}"]
    assert machine.version() == NEW
    assert not (machine.place.versions / OLD).exists()
    assert machine.place.command.readlink() == machine.place.current / "bin/smartlinkd"


@pytest.mark.parametrize("fault", [NotInstalled("it does not answer"), KeyboardInterrupt()])
def test_one_that_does_not_come_up_is_taken_back_with_its_units(
    machine: Machine, fault: BaseException, capsys: pytest.CaptureFixture[str]
) -> None:
    (machine.place.units / "smartlinkd.service").write_text("of the version before")
    before = units.found(machine.place)
    machine.fault = fault
    with pytest.raises(type(fault)) as raised:
        machine.install()
    assert "is running again" in str(raised.value) + capsys.readouterr().err
    assert machine.calls == [f"start {NEW}", f"start {OLD}"]
    assert machine.version() == OLD
    assert units.found(machine.place) == before


def test_a_first_one_that_does_not_come_up_is_stopped(machine: Machine) -> None:
    machine.place.current.unlink()
    machine.fault = NotInstalled("it does not answer")
    with pytest.raises(NotInstalled, match="It was stopped again"):
        machine.install()
    assert machine.calls[1].startswith("disable --now")


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("[server]\nbind = 1\n", "server.bind"),
        ('[server]\nbind = "localhost:1"\n', "server.bind names a host"),
        ('[server]\nbind = "127.0.0.1:0"\n', "server.bind has port 0"),
        ('[state]\ndirectory = "/srv/state"\n', "state.directory is /srv/state"),
    ],
)
def test_what_the_service_could_not_run_with_is_told_before_anything_is_touched(
    machine: Machine, text: str, told: str
) -> None:
    state = "" if "[state]" in text else f'[state]\ndirectory = "{machine.place.state}"\n'
    machine.place.configuration.write_text(text + state)
    before = units.found(machine.place)
    with pytest.raises((NotInstalled, ConfigError), match=told):
        machine.install()
    assert (machine.calls, machine.version()) == ([], OLD)
    assert units.found(machine.place) == before


def test_another_address_moves_the_socket(machine: Machine) -> None:
    text = machine.place.configuration.read_text()
    machine.place.configuration.write_text(text.replace(str(BIND), "127.0.0.1:8791"))
    machine.install()
    assert machine.calls == [f"start {NEW} moved"]
    assert "ListenStream=127.0.0.1:8791" in units.address(machine.place).read_text()


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture
def typed(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str | None]]:
    """What is typed, one after the other: None for two that differ."""
    answers: list[str | None] = []
    monkeypatch.setattr(sys, "stdin", Terminal())
    monkeypatch.setattr(installation, "ask_password", lambda: answers.pop(0))
    yield answers
    assert answers == []


def test_a_password_is_asked_for_until_it_is_good(typed: list[str | None]) -> None:
    typed += [None, "short", "correct horse"]
    assert installation._ask() == "correct horse"


def test_an_empty_one_leaves_it_to_us(typed: list[str | None]) -> None:
    typed += [""]
    assert installation._ask() is None


def test_after_three_tries_it_is_given_up(typed: list[str | None]) -> None:
    typed += [None, None, "short"]
    with pytest.raises(NotInstalled, match="no password was given"):
        installation._ask()


@pytest.mark.parametrize("arguments", [["--bind", "8787"], ["--instance", "A B"]])
def test_wrong_usage_is_told(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        installation.main(["--units", "x", *arguments])
    assert ended.value.code == 2
    assert f"{arguments[0]}: " in capsys.readouterr().err
