"""The order of the steps: what is refused before anything is touched, and what is taken back."""

from __future__ import annotations

import errno
import io
import shutil
import signal
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
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
    """One with a version that runs; `fault` is what the start of the new one raises, and `relapse`
    that of the old one.

    `there` are the services that run, and `signals` comes while one starts by the old version.
    """

    place: Place
    calls: list[str]
    fault: BaseException | None = None
    relapse: BaseException | None = None
    there: list[str] = field(default_factory=list)
    signals: list[signal.Signals] = field(default_factory=list)

    def install(self, place: Place | None = None, wish: Bind | None = BIND) -> None:
        installation.install(place or self.place, wish, SOURCE)

    def instance(self) -> Place:
        """One that is not there yet."""
        return Place("smartlinkd@shop2", self.place.root)

    def version(self) -> str:
        return self.place.current.readlink().name


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    for folder in ("etc", f"opt/smartlinkd/{OLD}", f"opt/smartlinkd/{NEW}"):
        (tmp_path / folder).mkdir(parents=True)
    made = Machine(Place(root=tmp_path), [])

    def start(place: Place, *, moved: bool = False) -> None:
        made.calls.append(f"start {made.version()}{' moved' if moved else ''}")
        if made.version() == OLD:
            for each in made.signals:
                signal.raise_signal(each)
            if made.relapse is not None:
                raise made.relapse
        elif made.fault is not None:
            raise made.fault

    def others(place: Place) -> list[str]:
        return [unit for unit in made.there if unit != place.service]

    def restart(unit: str) -> None:
        made.calls.append(f"restart {unit} {made.version()}")

    monkeypatch.setattr(service, "start", start)
    monkeypatch.setattr(service, "prove", lambda *_, **__: True)
    monkeypatch.setattr(service, "is_there", lambda place: place.service in made.there)
    monkeypatch.setattr(service, "others", others)
    monkeypatch.setattr(service, "restart", restart)
    monkeypatch.setattr(service, "systemctl", lambda *words: made.calls.append(" ".join(words)))
    monkeypatch.setattr(sys, "prefix", str(made.place.versions / OLD))
    monkeypatch.setattr(sys, "stdin", io.StringIO())
    made.install()
    made.there.append(made.place.service)
    monkeypatch.setattr(sys, "prefix", str(made.place.versions / NEW))
    (made.place.versions / NEW).mkdir(exist_ok=True)
    made.calls.clear()
    return made


@pytest.fixture
def handlers() -> Iterator[None]:
    """Those of the tests are back afterwards."""
    before = [(each, signal.getsignal(each)) for each in installation.SIGNALS]
    yield
    for each, handler in before:
        signal.signal(each, handler)


def test_the_new_version_is_the_one_that_is_kept(machine: Machine) -> None:
    machine.install()
    assert machine.calls == [f"start {NEW}"]
    assert machine.version() == NEW
    assert not (machine.place.versions / OLD).exists()
    assert machine.place.command.readlink() == machine.place.current / "bin/smartlinkd"


@pytest.mark.parametrize(
    "fault", [NotInstalled("it does not answer"), KeyboardInterrupt(), ZeroDivisionError("a bug")]
)
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


def no_process_left() -> OSError:
    return BlockingIOError(errno.EAGAIN, "Resource temporarily unavailable", "systemctl")


def no_room() -> OSError:
    return OSError(errno.ENOSPC, "No space left on device", "current")


@pytest.mark.usefixtures("handlers")
def test_a_machine_that_has_nothing_left_has_it_taken_back_and_told_in_a_line(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(installation, "place_of", lambda _: machine.place)
    machine.fault = no_process_left()
    assert installation.main(["--units", str(SOURCE)]) == 1
    assert capsys.readouterr().err == (
        "install: [Errno 11] Resource temporarily unavailable: 'systemctl'\n"
        f"The version before ({machine.place.versions / OLD}) is running again.\n"
    )
    assert machine.calls == [f"start {NEW}", f"start {OLD}"]
    assert machine.version() == OLD


def test_on_a_full_disk_what_was_not_left_needs_no_way_back(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = units.found(machine.place)

    def switch(*_: object) -> None:
        raise no_room()

    monkeypatch.setattr(service, "switch", switch)
    with pytest.raises(NotInstalled, match=r"(?s)No space left on device.*is running again"):
        machine.install()
    assert (machine.version(), units.found(machine.place)) == (OLD, before)


@pytest.mark.usefixtures("handlers")
def test_a_fault_before_anything_is_touched_is_told_in_a_line(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def is_there(_: Place) -> bool:
        raise no_process_left()

    monkeypatch.setattr(installation, "place_of", lambda _: machine.place)
    monkeypatch.setattr(service, "is_there", is_there)
    assert installation.main(["--units", str(SOURCE)]) == 1
    assert "Resource temporarily unavailable: 'systemctl'\n" in capsys.readouterr().err
    assert (machine.calls, machine.version()) == ([], OLD)


@pytest.mark.parametrize(
    ("relapse", "told"),
    [
        (NotInstalled("it does not come up"), "\nit does not come up"),
        (no_process_left(), "\n[Errno 11] Resource temporarily unavailable: 'systemctl'"),
        (ZeroDivisionError("another bug"), ", in start\n"),
    ],
    ids=["not installed", "no process left", "a bug"],
)
def test_what_cannot_be_taken_back_hides_no_fault_and_keeps_nothing_else_from_it(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, relapse: Exception, told: str
) -> None:
    (machine.place.units / "smartlinkd.service").write_text("of the version before")
    machine.there.append("smartlinkd@a.service")
    machine.relapse = relapse

    def restart(unit: str) -> None:
        machine.calls.append(f"restart {unit} {machine.version()}")
        if machine.version() == NEW:
            raise NotInstalled("it does not start")

    monkeypatch.setattr(service, "restart", restart)
    with pytest.raises(NotInstalled) as raised:
        machine.install()
    text = str(raised.value)
    assert text.startswith(
        "it does not start\nNot all of it could be taken back, since this failed"
    )
    assert told in text
    assert machine.calls == [
        *(f"start {NEW}", f"restart smartlinkd@a.service {NEW}"),
        *(f"start {OLD}", f"restart smartlinkd@a.service {OLD}"),
    ]
    assert (machine.place.units / "smartlinkd.service").read_text() == "of the version before"


@pytest.mark.usefixtures("handlers")
def test_one_that_is_proven_stays_whatever_comes_while_it_tidies_up(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def rmtree(_: Path) -> None:
        signal.raise_signal(signal.SIGTERM)
        raise no_room()

    monkeypatch.setattr(installation, "place_of", lambda _: machine.place)
    monkeypatch.setattr(shutil, "rmtree", rmtree)
    assert installation.main(["--units", str(SOURCE)]) == 0
    said = capsys.readouterr().out
    assert "warning: [Errno 28] No space left on device: 'current'\n" in said
    assert "is running at" in said
    assert (machine.calls, machine.version()) == ([f"start {NEW}"], NEW)


@pytest.mark.parametrize("time", ["first", "second"])
def test_a_first_one_that_does_not_come_up_is_stopped_and_gone(machine: Machine, time: str) -> None:
    machine.place.current.unlink()
    units.put(machine.place, {})
    machine.there.clear()
    machine.fault = NotInstalled("it does not answer")
    for _ in range(["first", "second"].index(time) + 1):
        machine.calls.clear()
        with pytest.raises(NotInstalled, match="It was stopped again"):
            machine.install()
    assert machine.calls == [
        f"start {NEW}",
        "disable --now --quiet smartlinkd.service smartlinkd.socket",
        "daemon-reload",
    ]
    assert not machine.place.current.is_symlink()
    assert units.found(machine.place) == {}


def test_an_instance_that_does_not_come_up_leaves_the_others_alone(machine: Machine) -> None:
    before = units.found(machine.place)
    machine.fault = NotInstalled("it does not answer")
    instance = machine.instance()
    with pytest.raises(NotInstalled, match="It was stopped again"):
        machine.install(instance, Bind("127.0.0.1", 8791))
    assert machine.calls == [
        f"start {NEW}",
        "disable --now --quiet smartlinkd@shop2.service smartlinkd@shop2.socket",
        "daemon-reload",
    ]
    assert machine.version() == OLD
    assert units.found(machine.place) == before
    assert not units.address(instance).exists()


def test_those_that_followed_to_the_new_version_go_back_with_it(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    others = ["smartlinkd@a.service", "smartlinkd@b.service", "smartlinkd@c.service"]
    machine.there += others

    def restart(unit: str) -> None:
        machine.calls.append(f"restart {unit} {machine.version()}")
        if machine.version() == NEW and unit == others[1]:
            raise NotInstalled("it does not start")

    monkeypatch.setattr(service, "restart", restart)
    with pytest.raises(NotInstalled, match="is running again"):
        machine.install()
    assert machine.calls == [
        f"start {NEW}",
        *(f"restart {unit} {NEW}" for unit in others[:2]),
        f"start {OLD}",
        *(f"restart {unit} {OLD}" for unit in others[:2]),
    ]


def test_those_that_share_the_version_follow_once_it_is_proven(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(service, "prove", lambda *_, **__: machine.calls.append("prove"))
    machine.there.append("smartlinkd@a.service")
    machine.install()
    assert machine.calls == [f"start {NEW}", "prove", f"restart smartlinkd@a.service {NEW}"]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
@pytest.mark.usefixtures("handlers")
def test_a_signal_has_it_go_back_and_no_second_one_stops_that(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, number: signal.Signals
) -> None:
    monkeypatch.setattr(installation, "place_of", lambda _: machine.place)
    monkeypatch.setattr(service, "prove", lambda *_, **__: signal.raise_signal(number))
    machine.signals += installation.SIGNALS
    assert installation.main(["--units", str(SOURCE)]) == 128 + number
    assert machine.calls == [f"start {NEW}", f"start {OLD}"]
    assert machine.version() == OLD


def test_nor_does_one_stop_it_when_the_new_version_was_at_fault(machine: Machine) -> None:
    before = signal.getsignal(signal.SIGTERM)
    machine.fault = NotInstalled("it does not answer")
    machine.signals += [signal.SIGTERM]
    with pytest.raises(NotInstalled, match="is running again"):
        machine.install()
    assert signal.getsignal(signal.SIGTERM) is before


def test_an_address_that_is_not_that_of_the_configuration_is_told(machine: Machine) -> None:
    with pytest.raises(NotInstalled) as raised:
        machine.install(wish=Bind("127.0.0.1", 9))
    assert f"server.bind is {BIND} in {machine.place.configuration}" in str(raised.value)
    assert machine.calls == []
    machine.install(wish=None)
    assert machine.calls == [f"start {NEW}"]


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
        machine.install(wish=None)
    assert (machine.calls, machine.version()) == ([], OLD)
    assert units.found(machine.place) == before


def test_another_address_moves_the_socket(machine: Machine) -> None:
    text = machine.place.configuration.read_text()
    machine.place.configuration.write_text(text.replace(str(BIND), "127.0.0.1:8791"))
    machine.install(wish=None)
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


def test_wrong_usage_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        installation.main(["--units", "x", "--bind", "8787"])
    assert ended.value.code == 2
    assert "argument --bind: must be an IP address" in capsys.readouterr().err
