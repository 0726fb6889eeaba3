"""An installation's questions, warnings and summary."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import replace

import pytest

from smartlinkd import __version__
from smartlinkd.config import Settings, build
from smartlinkd.deploy import __main__ as installation
from smartlinkd.deploy import service
from smartlinkd.deploy.service import InstallFailed
from smartlinkd.deploy.units import paths_of
from smartlinkd.net.addresses import Bind
from tests.config_file import HASH, WITHOUT_BROWSER
from tests.deploy.machine import BIND, NEW, Machine, Main
from tests.fakes.terminal import Terminal


def settings(more: Mapping[str, object]) -> Settings:
    return build({"auth": {"password_hash": HASH}, **more})


@pytest.mark.parametrize(
    ("typed", "fails", "shown"),
    [
        ([None, "short", "correct horse"], False, False),
        ([""], False, True),
        ([None, None, "short"], True, False),
    ],
    ids=["good in the end", "left empty", "given up"],
)
def test_password_is_asked_for_three_times_or_made(
    machine: Machine,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    *,
    typed: list[str | None],
    fails: bool,
    shown: bool,
) -> None:
    answers = list(typed)
    monkeypatch.setattr(sys, "stdin", Terminal())
    monkeypatch.setattr(installation, "ask_password", lambda: answers.pop(0))
    how = pytest.raises(InstallFailed, match="no password was given") if fails else nullcontext()
    with how:
        machine.install(machine.instance(), Bind("127.0.0.1", 8791))
    assert answers == []
    told = capsys.readouterr()
    assert ("the password, which is shown this once: " in told.out) is shown
    assert told.err == "install: the password is shorter than 8 characters\n" * ("short" in typed)


def test_warnings_of_the_configuration_are_told(
    machine: Machine, capsys: pytest.CaptureFixture[str]
) -> None:
    text = machine.paths.configuration.read_text()
    strange = '[server]\ntrusted_proxies = ["0.0.0.0/0"]\n'
    machine.paths.configuration.write_text(text.replace("[server]\n", strange))
    machine.install()
    assert capsys.readouterr().out.startswith("warning: server.trusted_proxies: ")


def test_bind_that_contradicts_the_configuration_is_refused(machine: Machine) -> None:
    for wish in (Bind("127.0.0.1", 9), Bind("127.0.0.2", BIND.port)):
        with pytest.raises(InstallFailed) as raised:
            machine.install(wish=wish)
        assert f"server.bind is {BIND} in {machine.paths.configuration}" in str(raised.value)
    assert machine.calls == []
    machine.install(wish=None)
    assert machine.calls == [f"start {NEW}"]


def test_unusable_configuration_is_named(
    machine: Machine, main: Main, capsys: pytest.CaptureFixture[str]
) -> None:
    machine.paths.configuration.write_text("[server]\nbind = 1\n")
    assert main() == 1
    told = capsys.readouterr().err
    assert told.startswith(f"install: {machine.paths.configuration} cannot be used:\n")
    assert "server.bind: " in told


@pytest.mark.parametrize("needed", [True, False])
def test_browser_is_waited_for_where_one_is_needed(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, needed: bool
) -> None:
    if not needed:
        (machine.paths.credentials / "open_api.secret").write_text("hunter2")
        apis = (
            '[links]\nsource = "open_api"\n[open_api]\napp_id = "1"\n[products]\nsource = "none"\n'
        )
        with machine.paths.configuration.open("a") as file:
            file.write(apis)
    waited: list[bool] = []
    monkeypatch.setattr(
        service, "wait_until_ready", lambda *_, with_browser: waited.append(with_browser)
    )
    machine.install()
    assert waited == [needed]


@pytest.mark.parametrize(
    ("more", "ready", "browser"),
    [
        ({}, True, "Chromium runs, in its sandbox"),
        ({}, False, "Chromium is NOT ready yet: `sudo smartlinkd status` tells why"),
        (WITHOUT_BROWSER, True, "it needs no Chromium"),
    ],
    ids=["ready", "not ready", "not needed"],
)
def test_summary_says_whether_the_browser_is_ready(
    more: Mapping[str, object], ready: bool, browser: str, capsys: pytest.CaptureFixture[str]
) -> None:
    installation.print_summary(paths_of(""), settings(more), ready=ready)
    where = f"smartlinkd.service {__version__} is running at http://127.0.0.1:8787"
    assert capsys.readouterr().out.startswith(f"\n{where}; {browser}.\n")


@pytest.mark.parametrize(
    ("instance", "name", "option"),
    [
        ("", "smartlinkd", ""),
        ("shop2", "smartlinkd@shop2", " --config /etc/smartlinkd@shop2/config.toml"),
    ],
)
def test_summary_has_the_commands_for_its_own_service(
    instance: str, name: str, option: str, capsys: pytest.CaptureFixture[str]
) -> None:
    installation.print_summary(paths_of(instance), settings({}), ready=False)
    said = capsys.readouterr().out
    assert f"NOT ready yet: `sudo smartlinkd status{option}` tells why" in said
    assert f" sudo smartlinkd status{option}\n" in said
    assert f" journalctl -u {name}\n" in said
    assert f" /etc/{name}/config.toml   (then: sudo systemctl reload {name})\n" in said
    assert f" sudo cat /etc/{name}/credentials/cookie.sync_key\n" in said
    assert f" sudo systemctl stop {name}.socket {name}.service\n" in said


def test_summary_says_that_the_sync_key_is_encrypted(capsys: pytest.CaptureFixture[str]) -> None:
    encrypted = replace(settings({}), encrypted=("cookie.sync_key",))
    installation.print_summary(paths_of(""), encrypted, ready=True)
    said = capsys.readouterr().out
    assert "  the sync key     encrypted, in /etc/smartlinkd/credentials.encrypted\n" in said
    assert "sudo cat" not in said
