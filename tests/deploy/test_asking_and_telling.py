"""What an installation asks and tells: on the way, when all is done, and of wrong usage."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping

import pytest

from smartlinkd import __version__
from smartlinkd.auth.passwords import hash_password
from smartlinkd.config import Settings, build
from smartlinkd.deploy import __main__ as installation
from smartlinkd.deploy import service
from smartlinkd.deploy.service import InstallFailed
from smartlinkd.deploy.units import paths_of
from smartlinkd.net.addresses import Bind
from tests.deploy.machine import BIND, NEW, SOURCE, Machine
from tests.fakes.terminal import Terminal

APIS = {
    "links": {"source": "open_api"},
    "products": {"source": "none"},
    "open_api": {"app_id": "1", "secret": "hunter2"},
}


def settings(more: Mapping[str, object]) -> Settings:
    return build({"auth": {"password_hash": hash_password("correct horse")}, **more})


@pytest.fixture
def typed(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str | None]]:
    """What is typed, one after the other: None for two that differ."""
    answers: list[str | None] = []
    monkeypatch.setattr(sys, "stdin", Terminal())
    monkeypatch.setattr(installation, "ask_password", lambda: answers.pop(0))
    yield answers
    assert answers == []


def test_a_password_is_asked_for_until_it_is_good(
    typed: list[str | None], capsys: pytest.CaptureFixture[str]
) -> None:
    typed += [None, "short", "correct horse"]
    assert installation._ask() == "correct horse"
    assert capsys.readouterr().err == "install: the password is shorter than 8 characters\n"


def test_an_empty_one_leaves_it_to_us(typed: list[str | None]) -> None:
    typed += [""]
    assert installation._ask() is None


def test_after_three_tries_it_is_given_up(typed: list[str | None]) -> None:
    typed += [None, None, "short"]
    with pytest.raises(InstallFailed, match="no password was given"):
        installation._ask()


def test_wrong_usage_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        installation.main(["--units", "x", "--bind", "8787"])
    assert ended.value.code == 2
    assert "argument --bind: must be an IP address" in capsys.readouterr().err


def test_an_address_that_is_not_that_of_the_configuration_is_told(machine: Machine) -> None:
    for wish in (Bind("127.0.0.1", 9), Bind("127.0.0.2", BIND.port)):
        with pytest.raises(InstallFailed) as raised:
            machine.install(wish=wish)
        assert f"server.bind is {BIND} in {machine.paths.configuration}" in str(raised.value)
    assert machine.calls == []
    machine.install(wish=None)
    assert machine.calls == [f"start {NEW}"]


@pytest.mark.usefixtures("handlers")
def test_a_configuration_that_cannot_be_used_is_told_by_its_name(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(installation, "paths_of", lambda _: machine.paths)
    machine.paths.configuration.write_text("[server]\nbind = 1\n")
    assert installation.main(["--units", str(SOURCE)]) == 1
    told = capsys.readouterr().err
    assert told.startswith(f"install: {machine.paths.configuration} cannot be used:\n")
    assert "server.bind: " in told


def test_what_was_made_for_the_owner_and_what_is_strange_is_told(
    machine: Machine, capsys: pytest.CaptureFixture[str]
) -> None:
    paths = machine.instance()
    machine.install(paths, Bind("127.0.0.1", 8791))
    said = capsys.readouterr().out
    assert "the password, which is shown this once: " in said
    assert f"wrote {paths.configuration}\n" in said
    text = paths.configuration.read_text()
    strange = '[server]\ntrusted_proxies = ["0.0.0.0/0"]\n'
    paths.configuration.write_text(text.replace("[server]\n", strange))
    machine.install(paths, None)
    assert capsys.readouterr().out.startswith("warning: server.trusted_proxies: ")


@pytest.mark.parametrize("needed", [True, False])
def test_a_browser_is_waited_for_where_one_is_needed(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, needed: bool
) -> None:
    if not needed:
        (machine.paths.credentials / "open_api.secret").write_text("hunter2")
        with machine.paths.configuration.open("a") as file:
            file.write('[links]\nsource = "open_api"\n[open_api]\napp_id = "1"\n')
            file.write('[products]\nsource = "none"\n')
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
        (APIS, True, "it needs no Chromium"),
    ],
    ids=["ready", "not ready", "not needed"],
)
def test_in_the_end_it_is_told_how_all_is(
    more: Mapping[str, object], ready: bool, browser: str, capsys: pytest.CaptureFixture[str]
) -> None:
    installation._print_summary(paths_of(""), settings(more), ready=ready)
    where = f"smartlinkd.service {__version__} is running at http://127.0.0.1:8787"
    assert capsys.readouterr().out.startswith(f"\n{where}; {browser}.\n")


@pytest.mark.parametrize(
    ("instance", "name", "option"),
    [
        ("", "smartlinkd", ""),
        ("shop2", "smartlinkd@shop2", " --config /etc/smartlinkd@shop2/config.toml"),
    ],
)
def test_the_commands_that_are_told_are_for_that_service(
    instance: str, name: str, option: str, capsys: pytest.CaptureFixture[str]
) -> None:
    installation._print_summary(paths_of(instance), settings({}), ready=False)
    said = capsys.readouterr().out
    assert f"NOT ready yet: `sudo smartlinkd status{option}` tells why" in said
    assert f" sudo smartlinkd status{option}\n" in said
    assert f" journalctl -u {name}\n" in said
    assert f" /etc/{name}/config.toml   (then: sudo systemctl reload {name})\n" in said
    assert f" sudo cat /etc/{name}/credentials/cookie.sync_key\n" in said
    assert f" sudo systemctl stop {name}.socket {name}.service\n" in said
