"""The order of the steps: what is refused before anything is touched, and what is taken back."""

from __future__ import annotations

import errno
import os
import shutil
import signal
from contextlib import nullcontext
from pathlib import Path

import pytest

from smartlinkd.config import ConfigError
from smartlinkd.deploy import __main__ as installation
from smartlinkd.deploy import service, units
from smartlinkd.deploy.service import InstallFailed
from smartlinkd.net.addresses import Bind
from tests.deploy.machine import BIND, NEW, OLD, Machine, Main


def test_install_keeps_the_new_version_only(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(service, "wait_until_ready", lambda *_, **__: machine.calls.append("ready"))
    machine.there.append("smartlinkd@a.service")
    machine.install()
    assert machine.calls == [f"start {NEW}", "ready", f"restart smartlinkd@a.service {NEW}"]
    assert machine.version() == NEW
    assert not (machine.paths.versions / OLD).exists()
    assert machine.paths.command.readlink() == machine.paths.current / "bin/smartlinkd"


def test_command_is_replaced_unless_it_is_the_owners_program(machine: Machine) -> None:
    command = machine.paths.command
    command.unlink()
    command.symlink_to(machine.paths.configuration)
    machine.install()
    assert command.readlink() == machine.paths.current / "bin/smartlinkd"
    command.unlink()
    command.write_text("mine")
    machine.install()
    assert command.read_text() == "mine"


def no_process_left() -> OSError:
    return BlockingIOError(errno.EAGAIN, "Resource temporarily unavailable", "systemctl")


@pytest.mark.parametrize(
    "fault",
    [
        InstallFailed("it does not answer"),
        KeyboardInterrupt(),
        ZeroDivisionError("a bug"),
        no_process_left(),
    ],
)
def test_version_that_does_not_start_is_rolled_back_with_its_units(
    machine: Machine, fault: BaseException, capsys: pytest.CaptureFixture[str]
) -> None:
    (machine.paths.units / "smartlinkd.service").write_text("of the version before")
    before = units.installed_units(machine.paths)
    machine.fault = fault
    with pytest.raises((type(fault), InstallFailed)) as raised:
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

    machine.broken = "smartlinkd@shop2.service"
    monkeypatch.setattr(service, "wait_until_ready", lambda *_, **__: migrate())
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


def no_room() -> OSError:
    return OSError(errno.ENOSPC, "No space left on device", "current")


@pytest.mark.parametrize("first", [False, True])
def test_full_disk_before_the_switch_leaves_the_version_untouched(
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


@pytest.mark.parametrize(
    ("relapse", "told"),
    [
        (InstallFailed("it does not come up"), "\nit does not come up"),
        (no_process_left(), "\n[Errno 11] Resource temporarily unavailable: 'systemctl'"),
        (ZeroDivisionError("another bug"), ", in start\n"),
    ],
    ids=["not installed", "no process left", "a bug"],
)
def test_failed_rollback_step_is_told_and_the_others_run(
    machine: Machine, relapse: Exception, told: str
) -> None:
    (machine.paths.units / "smartlinkd.service").write_text("of the version before")
    machine.there.append("smartlinkd@a.service")
    machine.relapse = relapse
    machine.broken = "smartlinkd@a.service"
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


def test_signal_and_full_disk_while_cleaning_up_keep_the_new_version(
    machine: Machine,
    main: Main,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def rmtree(_: Path) -> None:
        signal.raise_signal(signal.SIGTERM)
        raise no_room()

    monkeypatch.setattr(shutil, "rmtree", rmtree)
    assert main() == 0
    said = capsys.readouterr().out
    assert "warning: [Errno 28] No space left on device: 'current'\n" in said
    assert "is running at" in said
    assert (machine.calls, machine.version()) == ([f"start {NEW}"], NEW)


@pytest.mark.parametrize("is_enabled", [False, True], ids=["first", "its version is gone"])
def test_first_installation_that_does_not_start_is_removed(
    machine: Machine, is_enabled: bool
) -> None:
    machine.paths.current.unlink()
    units.replace_units(machine.paths, {})
    if not is_enabled:
        machine.there.clear()
    machine.fault = InstallFailed("it does not answer")
    for _ in range(2):
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


def test_instance_that_does_not_start_leaves_the_others(machine: Machine) -> None:
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
def test_services_that_followed_are_rolled_back_too(machine: Machine, first: bool) -> None:
    """Also with an instance that was not there before, and has none to go back to."""
    others = ["smartlinkd@a.service", "smartlinkd@b.service", "smartlinkd@c.service"]
    machine.there[:] = others if first else [machine.paths.service, *others]
    machine.broken = others[1]
    with pytest.raises(InstallFailed, match="was stopped again" if first else "is running again"):
        machine.install()
    stopped = ["disable --now --quiet smartlinkd.service smartlinkd.socket", "daemon-reload"]
    assert machine.calls == [
        f"start {NEW}",
        *(f"restart {unit} {NEW}" for unit in others[:2]),
        *(stopped if first else [f"start {OLD}"]),
        *(f"restart {unit} {OLD}" for unit in others[:2]),
    ]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_signal_rolls_back_and_no_second_one_interrupts_that(
    machine: Machine,
    main: Main,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    number: signal.Signals,
) -> None:
    monkeypatch.setattr(service, "wait_until_ready", lambda *_, **__: signal.raise_signal(number))
    machine.signals += installation.SIGNALS
    assert main() == 128 + number
    assert capsys.readouterr().err.endswith(" is running again.\ninstall: interrupted\n")
    assert {signal.getsignal(each) for each in installation.SIGNALS} == {signal.SIG_IGN}
    assert machine.calls == [f"start {NEW}", f"start {OLD}"]
    assert machine.version() == OLD


def test_signal_before_any_change_leaves_the_running_service(
    machine: Machine,
    main: Main,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (machine.paths.units / "smartlinkd.service").write_text("of the version before")
    before = units.installed_units(machine.paths)
    monkeypatch.setattr(os, "sync", lambda: signal.raise_signal(signal.SIGINT))
    assert main() == 128 + signal.SIGINT
    told = f"The version before ({machine.paths.versions / OLD}) was not touched.\n"
    assert capsys.readouterr().err == f"{told}install: interrupted\n"
    assert (machine.calls, machine.version()) == ([], OLD)
    assert units.installed_units(machine.paths) == before


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
def test_unfit_configuration_is_refused_before_any_change(
    machine: Machine, text: str, told: str
) -> None:
    state = "" if "[state]" in text else f'[state]\ndirectory = "{machine.paths.state}"\n'
    machine.paths.configuration.write_text(text + state)
    before = units.installed_units(machine.paths)
    with pytest.raises((InstallFailed, ConfigError), match=told):
        machine.install(wish=None)
    assert (machine.calls, machine.version()) == ([], OLD)
    assert units.installed_units(machine.paths) == before


@pytest.mark.parametrize("fault", [None, InstallFailed("it does not answer")])
def test_new_address_moves_the_socket_and_back_when_it_does_not_start(
    machine: Machine, fault: Exception | None
) -> None:
    text, moved = machine.paths.configuration.read_text(), Bind("127.0.0.1", 8791)
    machine.paths.configuration.write_text(text.replace(str(BIND), str(moved)))
    machine.fault = fault
    how = pytest.raises(InstallFailed, match="is running again") if fault else nullcontext()
    with how:
        machine.install(wish=None)
    assert machine.calls == [f"start {NEW} moved", f"start {OLD} moved"][: 2 if fault else 1]
    address = units.address_drop_in(machine.paths).read_text()
    assert f"ListenStream={BIND if fault else moved}\n" in address
