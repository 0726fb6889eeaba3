"""The order of the steps: what is refused before anything is touched, and what is taken back."""

from __future__ import annotations

import errno
import shutil
import signal
from pathlib import Path

import pytest

from smartlinkd.config import ConfigError
from smartlinkd.deploy import __main__ as installation
from smartlinkd.deploy import service, units
from smartlinkd.deploy.service import InstallFailed
from smartlinkd.deploy.units import ServicePaths
from smartlinkd.net.addresses import Bind
from tests.deploy.machine import BIND, NEW, OLD, SOURCE, Machine


def test_the_new_version_is_the_one_that_is_kept(machine: Machine) -> None:
    machine.install()
    assert machine.calls == [f"start {NEW}"]
    assert machine.version() == NEW
    assert not (machine.paths.versions / OLD).exists()
    assert machine.paths.command.readlink() == machine.paths.current / "bin/smartlinkd"


def test_the_command_is_this_ones_but_for_a_program_of_the_owners(machine: Machine) -> None:
    command = machine.paths.command
    command.unlink()
    command.symlink_to(machine.paths.configuration)
    machine.install()
    assert command.readlink() == machine.paths.current / "bin/smartlinkd"
    command.unlink()
    command.write_text("mine")
    machine.install()
    assert command.read_text() == "mine"


@pytest.mark.parametrize(
    "fault", [InstallFailed("it does not answer"), KeyboardInterrupt(), ZeroDivisionError("a bug")]
)
def test_one_that_does_not_come_up_is_taken_back_with_its_units(
    machine: Machine, fault: BaseException, capsys: pytest.CaptureFixture[str]
) -> None:
    (machine.paths.units / "smartlinkd.service").write_text("of the version before")
    before = units.installed_units(machine.paths)
    machine.fault = fault
    with pytest.raises(type(fault)) as raised:
        machine.install()
    assert "is running again" in str(raised.value) + capsys.readouterr().err
    assert machine.calls == [f"start {NEW}", f"start {OLD}"]
    assert machine.version() == OLD
    assert units.installed_units(machine.paths) == before


def test_rollback_puts_back_stores_that_the_new_version_has_migrated(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine.there.append("smartlinkd@shop2.service")
    states = [machine.paths.state, machine.instance().state]
    for state in states:
        state.mkdir(parents=True)
        (state / "journal.sqlite3").write_text("old")
        (state / "journal.sqlite3.version-0").write_text("of an earlier upgrade")

    def migrate() -> None:
        for state in states:
            (state / "journal.sqlite3").rename(state / "journal.sqlite3.version-1")
            (state / "journal.sqlite3").write_text("new")
            (state / "journal.sqlite3-wal").write_text("new")

    def restart(unit: str) -> None:
        machine.calls.append(f"restart {unit} {machine.version()}")
        if machine.version() == NEW:
            migrate()
            raise InstallFailed("it does not start")

    monkeypatch.setattr(service, "restart", restart)
    with pytest.raises(InstallFailed, match="is running again"):
        machine.install()

    for state in states:
        files = {each.name: each.read_text() for each in state.iterdir()}
        earlier = {"journal.sqlite3.version-0": "of an earlier upgrade"}
        assert files == {"journal.sqlite3": "old", **earlier}
    assert machine.calls[2:] == [
        "stop smartlinkd.service",
        "stop smartlinkd@shop2.service",
        f"start {OLD}",
        f"restart smartlinkd@shop2.service {OLD}",
    ]


def no_process_left() -> OSError:
    return BlockingIOError(errno.EAGAIN, "Resource temporarily unavailable", "systemctl")


def no_room() -> OSError:
    return OSError(errno.ENOSPC, "No space left on device", "current")


@pytest.mark.usefixtures("handlers")
def test_a_machine_that_has_nothing_left_has_it_taken_back_and_told_in_a_line(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(installation, "paths_of", lambda _: machine.paths)
    machine.fault = no_process_left()
    assert installation.main(["--units", str(SOURCE)]) == 1
    assert capsys.readouterr().err == (
        "install: [Errno 11] Resource temporarily unavailable: 'systemctl'\n"
        f"The version before ({machine.paths.versions / OLD}) is running again.\n"
    )
    assert machine.calls == [f"start {NEW}", f"start {OLD}"]
    assert machine.version() == OLD


@pytest.mark.parametrize("first", [False, True])
def test_on_a_full_disk_what_was_not_left_needs_no_way_back(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, first: bool
) -> None:
    if first:
        machine.paths.current.unlink()
        machine.there.clear()
    before = (service.current_version(machine.paths), units.installed_units(machine.paths))

    def switch(*_: object) -> None:
        raise no_room()

    monkeypatch.setattr(service, "activate", switch)
    how = "Nothing was started" if first else "was not touched"
    with pytest.raises(InstallFailed, match=rf"(?s)No space left on device.*{how}"):
        machine.install()
    assert (service.current_version(machine.paths), units.installed_units(machine.paths)) == before
    assert machine.calls == []


@pytest.mark.usefixtures("handlers")
def test_a_fault_before_anything_is_touched_is_told_in_a_line(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def is_there(_: ServicePaths) -> bool:
        raise no_process_left()

    monkeypatch.setattr(installation, "paths_of", lambda _: machine.paths)
    monkeypatch.setattr(service, "is_installed", is_there)
    assert installation.main(["--units", str(SOURCE)]) == 1
    assert "Resource temporarily unavailable: 'systemctl'\n" in capsys.readouterr().err
    assert (machine.calls, machine.version()) == ([], OLD)


@pytest.mark.parametrize(
    ("relapse", "told"),
    [
        (InstallFailed("it does not come up"), "\nit does not come up"),
        (no_process_left(), "\n[Errno 11] Resource temporarily unavailable: 'systemctl'"),
        (ZeroDivisionError("another bug"), ", in start\n"),
    ],
    ids=["not installed", "no process left", "a bug"],
)
def test_what_cannot_be_taken_back_hides_no_fault_and_keeps_nothing_else_from_it(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, relapse: Exception, told: str
) -> None:
    (machine.paths.units / "smartlinkd.service").write_text("of the version before")
    machine.there.append("smartlinkd@a.service")
    machine.relapse = relapse

    def restart(unit: str) -> None:
        machine.calls.append(f"restart {unit} {machine.version()}")
        if machine.version() == NEW:
            raise InstallFailed("it does not start")

    monkeypatch.setattr(service, "restart", restart)
    with pytest.raises(InstallFailed) as raised:
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
    assert (machine.paths.units / "smartlinkd.service").read_text() == "of the version before"


@pytest.mark.usefixtures("handlers")
def test_one_that_is_proven_stays_whatever_comes_while_it_tidies_up(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def rmtree(_: Path) -> None:
        signal.raise_signal(signal.SIGTERM)
        raise no_room()

    monkeypatch.setattr(installation, "paths_of", lambda _: machine.paths)
    monkeypatch.setattr(shutil, "rmtree", rmtree)
    assert installation.main(["--units", str(SOURCE)]) == 0
    said = capsys.readouterr().out
    assert "warning: [Errno 28] No space left on device: 'current'\n" in said
    assert "is running at" in said
    assert (machine.calls, machine.version()) == ([f"start {NEW}"], NEW)


@pytest.mark.parametrize("time", ["first", "second"])
def test_a_first_one_that_does_not_come_up_is_stopped_and_gone(machine: Machine, time: str) -> None:
    machine.paths.current.unlink()
    units.replace_units(machine.paths, {})
    machine.there.clear()
    machine.fault = InstallFailed("it does not answer")
    for _ in range(["first", "second"].index(time) + 1):
        machine.calls.clear()
        with pytest.raises(InstallFailed, match="It was stopped again"):
            machine.install()
    assert machine.calls == [
        f"start {NEW}",
        "disable --now --quiet smartlinkd.service smartlinkd.socket",
        "daemon-reload",
    ]
    assert not machine.paths.current.is_symlink()
    assert units.installed_units(machine.paths) == {}


def test_one_whose_version_is_gone_has_none_to_go_back_to(machine: Machine) -> None:
    """It would be started with the machine, in vain."""
    machine.paths.current.unlink()
    machine.fault = InstallFailed("it does not answer")
    with pytest.raises(InstallFailed, match="It was stopped again"):
        machine.install()
    assert machine.calls[1].startswith("disable --now --quiet smartlinkd.service")
    assert not machine.paths.current.is_symlink()


def test_an_instance_that_does_not_come_up_leaves_the_others_alone(machine: Machine) -> None:
    before = units.installed_units(machine.paths)
    machine.fault = InstallFailed("it does not answer")
    instance = machine.instance()
    with pytest.raises(InstallFailed, match="It was stopped again"):
        machine.install(instance, Bind("127.0.0.1", 8791))
    assert machine.calls == [
        f"start {NEW}",
        "disable --now --quiet smartlinkd@shop2.service smartlinkd@shop2.socket",
        "daemon-reload",
    ]
    assert machine.version() == OLD
    assert units.installed_units(machine.paths) == before
    assert not units.address_drop_in(instance).exists()


@pytest.mark.parametrize("first", [False, True])
def test_those_that_followed_to_the_new_version_go_back_with_it(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, first: bool
) -> None:
    """Also with an instance that was not there before, and has none to go back to."""
    others = ["smartlinkd@a.service", "smartlinkd@b.service", "smartlinkd@c.service"]
    machine.there[:] = others if first else [machine.paths.service, *others]

    def restart(unit: str) -> None:
        machine.calls.append(f"restart {unit} {machine.version()}")
        if machine.version() == NEW and unit == others[1]:
            raise InstallFailed("it does not start")

    monkeypatch.setattr(service, "restart", restart)
    with pytest.raises(InstallFailed, match="was stopped again" if first else "is running again"):
        machine.install()
    stopped = ["disable --now --quiet smartlinkd.service smartlinkd.socket", "daemon-reload"]
    assert machine.calls == [
        f"start {NEW}",
        *(f"restart {unit} {NEW}" for unit in others[:2]),
        *(stopped if first else [f"start {OLD}"]),
        *(f"restart {unit} {OLD}" for unit in others[:2]),
    ]


def test_those_that_share_the_version_follow_once_it_is_proven(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(service, "wait_until_ready", lambda *_, **__: machine.calls.append("prove"))
    machine.there.append("smartlinkd@a.service")
    machine.install()
    assert machine.calls == [f"start {NEW}", "prove", f"restart smartlinkd@a.service {NEW}"]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
@pytest.mark.usefixtures("handlers")
def test_a_signal_has_it_go_back_and_no_second_one_stops_that(
    machine: Machine,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    number: signal.Signals,
) -> None:
    monkeypatch.setattr(installation, "paths_of", lambda _: machine.paths)
    monkeypatch.setattr(service, "wait_until_ready", lambda *_, **__: signal.raise_signal(number))
    machine.signals += installation.SIGNALS
    assert installation.main(["--units", str(SOURCE)]) == 128 + number
    assert capsys.readouterr().err.endswith(" is running again.\ninstall: interrupted\n")
    assert {signal.getsignal(each) for each in installation.SIGNALS} == {signal.SIG_IGN}
    assert machine.calls == [f"start {NEW}", f"start {OLD}"]
    assert machine.version() == OLD


@pytest.mark.usefixtures("handlers")
def test_one_that_comes_before_anything_is_changed_interrupts_nothing_that_runs(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """As the sync may take long, and be what the owner grows tired of."""
    (machine.paths.units / "smartlinkd.service").write_text("of the version before")
    before = units.installed_units(machine.paths)
    monkeypatch.setattr(installation, "paths_of", lambda _: machine.paths)
    monkeypatch.setattr("os.sync", lambda: signal.raise_signal(signal.SIGINT))
    assert installation.main(["--units", str(SOURCE)]) == 128 + signal.SIGINT
    told = f"The version before ({machine.paths.versions / OLD}) was not touched.\n"
    assert capsys.readouterr().err == f"{told}install: interrupted\n"
    assert (machine.calls, machine.version()) == ([], OLD)
    assert units.installed_units(machine.paths) == before


def test_who_cannot_tell_whether_anything_was_changed_goes_back(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = units.installed_units

    def once(paths: ServicePaths) -> units.Files:
        monkeypatch.setattr(units, "installed_units", unreadable)
        return found(paths)

    def unreadable(_: ServicePaths) -> units.Files:
        raise OSError(errno.EIO, "Input/output error", "smartlinkd.service")

    monkeypatch.setattr(units, "installed_units", once)
    machine.fault = InstallFailed("it does not answer")
    with pytest.raises(InstallFailed, match="is running again"):
        machine.install()
    assert (machine.calls, machine.version()) == ([f"start {NEW}", f"start {OLD}"], OLD)


def test_nor_does_one_stop_it_when_the_new_version_was_at_fault(machine: Machine) -> None:
    before = signal.getsignal(signal.SIGTERM)
    machine.fault = InstallFailed("it does not answer")
    machine.signals += [signal.SIGTERM]
    with pytest.raises(InstallFailed, match="is running again"):
        machine.install()
    assert signal.getsignal(signal.SIGTERM) is before


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("[server]\nbind = 1\n", "server.bind"),
        ('[server]\nbind = "localhost:1"\n', "server.bind names a host"),
        ('[server]\nbind = "127.0.0.1:0"\n', "server.bind has port 0"),
        # Whoever answers there (RFC 5737, RFC 3849), it is not this machine.
        ('[server]\nbind = "192.0.2.1:1"\n', "is 192.0.2.1:1: this machine has no such address"),
        ('[server]\nbind = "[2001:db8::1]:1"\n', "this machine has no such address"),
        ('[state]\ndirectory = "/srv/state"\n', "state.directory is /srv/state"),
    ],
)
def test_what_the_service_could_not_run_with_is_told_before_anything_is_touched(
    machine: Machine, text: str, told: str
) -> None:
    state = "" if "[state]" in text else f'[state]\ndirectory = "{machine.paths.state}"\n'
    machine.paths.configuration.write_text(text + state)
    before = units.installed_units(machine.paths)
    with pytest.raises((InstallFailed, ConfigError), match=told):
        machine.install(wish=None)
    assert (machine.calls, machine.version()) == ([], OLD)
    assert units.installed_units(machine.paths) == before


def test_another_address_moves_the_socket(machine: Machine) -> None:
    text = machine.paths.configuration.read_text()
    machine.paths.configuration.write_text(text.replace(str(BIND), "127.0.0.1:8791"))
    machine.install(wish=None)
    assert machine.calls == [f"start {NEW} moved"]
    assert "ListenStream=127.0.0.1:8791" in units.address_drop_in(machine.paths).read_text()


def test_and_back_when_that_does_not_come_up(machine: Machine) -> None:
    text = machine.paths.configuration.read_text()
    machine.paths.configuration.write_text(text.replace(str(BIND), "127.0.0.1:8791"))
    machine.fault = InstallFailed("it does not answer")
    with pytest.raises(InstallFailed, match="is running again"):
        machine.install(wish=None)
    assert machine.calls == [f"start {NEW} moved", f"start {OLD} moved"]
    assert f"ListenStream={BIND}\n" in units.address_drop_in(machine.paths).read_text()
