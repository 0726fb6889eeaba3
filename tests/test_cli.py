"""The command line: which command calls what, and how each end is told."""

from __future__ import annotations

import gc
import logging
import os
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

import daemon
from daemon.auth.passwords import hash_password
from daemon.cli import main
from daemon.config import Settings
from daemon.errors import Invalid
from daemon.logs import Event
from daemon.service_manager.given import Given
from daemon.state import NotSaved, StateUnusable
from daemon.supervision.supervisor import Escalated

StandIn = Callable[..., None]


@pytest.fixture
def config(tmp_path: Path) -> Path:
    path = tmp_path / "config.toml"
    state = tmp_path / "state"
    state.mkdir()
    path.write_text(
        f'[auth]\npassword_hash = "{hash_password("correct horse")}"\n'
        f'[state]\ndirectory = "{state}"\n'
    )
    path.chmod(0o600)
    return path


@pytest.fixture(autouse=True)
def kept_private(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """How often the process was closed to others, instead of closing it: it is the tests' own."""
    found: list[bool] = []
    monkeypatch.setattr("daemon.processes.privacy.keep_private", lambda: found.append(True))
    return found


@pytest.fixture(autouse=True)
def allowed(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """How often more descriptors were asked for, which would be the tests' own."""
    found: list[bool] = []
    monkeypatch.setattr("daemon.processes.descriptors.allow_enough", lambda: found.append(True))
    return found


@pytest.fixture
def stand_in(monkeypatch: pytest.MonkeyPatch) -> StandIn:
    """Put a module of functions in the place of one of the daemon's parts."""

    def put(name: str, **functions: object) -> None:
        module = ModuleType(f"daemon.{name}")
        vars(module).update(functions)
        parent, _, last = f"daemon.{name}".rpartition(".")
        monkeypatch.setitem(sys.modules, f"daemon.{name}", module)
        monkeypatch.setattr(sys.modules.get(parent, daemon), last, module, raising=False)

    return put


def test_the_version_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["--version"])
    assert ended.value.code == 0
    assert capsys.readouterr().out == f"smartlinkd {daemon.__version__}\n"


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["srve"],
        ["account"],
        ["account", "shw"],
        ["crew", "token"],
        ["check-config"],
        ["demo", "--port", "65536"],
        ["sandbox", "--port", "-1"],
        ["hash-password", "a password"],
    ],
)
def test_wrong_usage_is_2(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert ended.value.code == 2
    assert "usage: smartlinkd" in capsys.readouterr().err


def test_a_wrong_configuration_is_2_and_all_of_it_is_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "config.toml"
    path.write_text('[server]\nbind = "8787"\n')
    assert main(["check-config", str(path)]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert [line.partition(":")[0] for line in err.splitlines()] == [
        "smartlinkd",
        "server.bind",
        "auth.password_hash",
    ]


@pytest.mark.parametrize("words", [["status"], ["account", "show"], ["2fa", "off"]])
def test_those_who_speak_to_the_daemon_need_to_know_where_it_is(
    words: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """And nothing else: they are not given its secrets, and its file may be half edited."""
    path = tmp_path / "config.toml"
    path.write_text('[server]\nbind = "8787"\n[state]\ndirectory = "state"\n')
    assert main([*words, "--config", str(path)]) == 2
    _, err = capsys.readouterr()
    assert [line.partition(":")[0] for line in err.splitlines()] == [
        "smartlinkd",
        "state.directory",
    ]
    path.write_text(f'[server]\nbind = "8787"\n[state]\ndirectory = "{tmp_path}"\n')
    assert main([*words, "--config", str(path)]) == 1
    assert f"no daemon answers on {tmp_path}/control.sock" in capsys.readouterr().err


def test_a_good_configuration_is_told(config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check-config", str(config)]) == 0
    out, err = capsys.readouterr()
    assert out.startswith(f"{config}: OK\n")
    assert "listens on 127.0.0.1:8787" in out
    assert err == ""


def test_the_environment_counts(
    config: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("SMARTLINKD_SERVER__BIND", "127.0.0.1:9")
    monkeypatch.setenv("SMARTLINKD_SERVER__TRUSTED_PROXIES", '["0.0.0.0/0"]')
    assert main(["check-config", str(config)]) == 0
    out, err = capsys.readouterr()
    assert "listens on 127.0.0.1:9" in out
    assert err.startswith("warning: server.trusted_proxies: ")


def test_a_browser_that_is_not_there_is_warned_of(
    config: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("SMARTLINKD_BROWSER__EXECUTABLE", "/nowhere/chromium")
    assert main(["check-config", str(config)]) == 0
    out, err = capsys.readouterr()
    assert out.startswith(f"{config}: OK\n")
    assert err.startswith("warning: ")
    assert "browser.executable" in err


def test_demo_and_sandbox_get_their_options(stand_in: StandIn) -> None:
    calls: list[dict[str, object]] = []

    def remember(**options: object) -> int:
        calls.append(options)
        return 7

    stand_in("commands.demo", main=remember)
    stand_in("sandbox.server", main=remember)
    assert main(["demo"]) == 7
    assert main(["demo", "--once", "--port", "0"]) == 7
    assert main(["sandbox"]) == 7
    assert main(["sandbox", "--host", "::1", "--port", "9001"]) == 7
    assert calls == [
        {"once": False, "port": 8787},
        {"once": True, "port": 0},
        {"host": "127.0.0.1", "port": 0},
        {"host": "::1", "port": 9001},
    ]


def test_what_a_command_refuses_is_1(stand_in: StandIn, capsys: pytest.CaptureFixture[str]) -> None:
    def refuse(**_: object) -> int:
        raise Invalid("--port: is taken")

    stand_in("sandbox.server", main=refuse)
    assert main(["sandbox"]) == 1
    assert capsys.readouterr().err == "smartlinkd: --port: is taken\n"


def test_an_interrupted_command_ends_as_shells_expect(stand_in: StandIn) -> None:
    def interrupted(**_: object) -> int:
        raise KeyboardInterrupt

    stand_in("commands.demo", main=interrupted)
    assert main(["demo"]) == 130


# --- serve ---------------------------------------------------------------------------------------


@pytest.fixture(autouse=True)
def levels(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The levels that logging was given, instead of setting it up."""
    found: list[str] = []
    monkeypatch.setattr("daemon.logs.set_up", found.append)
    monkeypatch.setattr("daemon.logs.set_level", found.append)
    return found


def test_serve_runs_the_tree(
    config: Path, stand_in: StandIn, levels: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    served: list[Settings] = []

    async def serve(settings: Settings, *_: object) -> None:
        served.append(settings)

    monkeypatch.setenv("SMARTLINKD_LOGGING__LEVEL", "debug")
    stand_in("tree", serve=serve)
    assert main(["serve", "--config", str(config)]) == 0
    assert [settings.logging.level for settings in served] == ["debug"]
    assert levels == ["info", "debug"]


def test_what_keeps_it_from_starting_is_a_record_each(
    tmp_path: Path,
    levels: list[str],
    caplog: pytest.LogCaptureFixture,
    capsys: pytest.CaptureFixture[str],
) -> None:
    path = tmp_path / "config.toml"
    path.write_text('[server]\nbind = "8787"\n')
    assert main(["serve", "--config", str(path)]) == 2
    assert gc.isenabled()
    assert levels == ["info"]
    assert [record.getMessage().partition(":")[0] for record in caplog.records] == [
        "server.bind",
        "auth.password_hash",
    ]
    for record in caplog.records:
        assert (record.levelno, vars(record)["event"]) == (logging.CRITICAL, Event.CONFIG_REFUSED)
    assert capsys.readouterr() == ("", "")


def test_serve_takes_over_what_the_service_manager_gave(
    config: Path, stand_in: StandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    given: list[object] = []

    async def serve(_: Settings, of_manager: object, *__: object) -> None:
        given.append(of_manager)

    monkeypatch.setenv("NOTIFY_SOCKET", "@manager")
    stand_in("tree", serve=serve)
    assert main(["serve", "--config", str(config)]) == 0
    assert given == [Given(notify_socket="@manager")]
    assert "NOTIFY_SOCKET" not in os.environ


def test_serve_is_closed_to_others_before_it_reads_a_secret(
    config: Path, kept_private: list[bool], allowed: list[bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[bool] = []

    def load(*_: object, **__: object) -> Settings:
        seen.extend(kept_private)
        raise Invalid("config: enough")

    monkeypatch.setattr("daemon.cli.load", load)
    assert main(["serve", "--config", str(config)]) == 1
    assert seen == [True]
    assert allowed == [True]


@pytest.mark.parametrize(
    "error",
    [
        StateUnusable("in use"),
        ExceptionGroup("", [Invalid("in use")]),
        ExceptionGroup("", [ExceptionGroup("", [Escalated("in use")])]),
    ],
)
def test_a_daemon_that_cannot_go_on_is_1_and_one_record(
    error: Exception, config: Path, stand_in: StandIn, caplog: pytest.LogCaptureFixture
) -> None:
    async def serve(*_: object) -> None:
        raise error

    stand_in("tree", serve=serve)
    assert main(["serve", "--config", str(config)]) == 1
    assert [(r.levelno, r.getMessage(), r.exc_info) for r in caplog.records] == [
        (logging.CRITICAL, "in use", None)
    ]
    (record,) = caplog.records
    escalated = "Escalated" in repr(error)
    assert getattr(record, "event", None) is (Event.ESCALATED if escalated else None)


def test_what_cannot_be_saved_at_the_start_is_told_with_its_setting_and_a_remedy(
    config: Path, stand_in: StandIn, caplog: pytest.LogCaptureFixture
) -> None:
    async def serve(*_: object) -> None:
        raise NotSaved("/s/key could not be written: No space left on device")

    stand_in("tree", serve=serve)
    assert main(["serve", "--config", str(config)]) == 1
    assert caplog.messages == [
        "state.directory: /s/key could not be written: No space left on device; make room there, "
        "or let the daemon's user write to it"
    ]


def test_a_fault_of_the_daemon_is_1_and_one_record_with_its_traceback(
    config: Path, stand_in: StandIn, caplog: pytest.LogCaptureFixture
) -> None:
    async def serve(*_: object) -> None:
        raise ExceptionGroup("", [ZeroDivisionError("a bug")])

    stand_in("tree", serve=serve)
    assert main(["serve", "--config", str(config)]) == 1
    (record,) = caplog.records
    assert record.exc_info is not None
    assert "a bug" in caplog.text
