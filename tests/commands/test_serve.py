"""The daemon's command: what is done before it serves, and how each of its ends is told."""

from __future__ import annotations

import gc
import logging
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from smartlinkd import cli, logs
from smartlinkd.app import tree
from smartlinkd.cli import main
from smartlinkd.commands import serve as serve_command
from smartlinkd.config import Settings
from smartlinkd.errors import Invalid
from smartlinkd.logs import LogEvent
from smartlinkd.state_files import NotSaved, StateUnusable
from smartlinkd.supervision.supervisor import Escalated
from smartlinkd.systemd.environment import SystemdEnvironment


@pytest.fixture
def config(write: Callable[[str], Path]) -> Path:
    return write("")


@pytest.fixture(autouse=True)
def kept_private(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """How often the process was closed to others, instead of closing it: it is the tests' own."""
    found: list[bool] = []
    monkeypatch.setattr(serve_command, "make_private", lambda: found.append(True))
    return found


@pytest.fixture(autouse=True)
def allowed(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """How often more descriptors were asked for, which would be the tests' own."""
    found: list[bool] = []
    monkeypatch.setattr(serve_command, "raise_descriptor_limit", lambda: found.append(True))
    return found


@pytest.fixture(autouse=True)
def levels(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The levels that logging was given, instead of setting it up."""
    found: list[str] = []
    monkeypatch.setattr(logs, "set_up", found.append)
    monkeypatch.setattr(logs, "set_level", found.append)
    return found


def test_serve_runs_the_tree_with_settings_and_the_service_managers_environment(
    config: Path, levels: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    served: list[tuple[str, object]] = []

    async def serve(settings: Settings, environment: SystemdEnvironment, *_: object) -> None:
        served.append((settings.logging.level, environment))

    monkeypatch.setenv("SMARTLINKD_LOGGING__LEVEL", "debug")
    monkeypatch.setenv("NOTIFY_SOCKET", "@manager")
    monkeypatch.setattr(tree, "serve", serve)
    assert main(["serve", "--config", str(config)]) == 0
    assert served == [("debug", SystemdEnvironment(notify_socket="@manager"))]
    assert "NOTIFY_SOCKET" not in os.environ
    assert levels == ["info", "debug"]


def test_each_problem_of_the_configuration_is_a_record(
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
        assert (record.levelno, vars(record)["event"]) == (
            logging.CRITICAL,
            LogEvent.CONFIG_REFUSED,
        )
    assert capsys.readouterr() == ("", "")


def test_serve_is_private_before_it_reads_a_secret(
    config: Path, kept_private: list[bool], allowed: list[bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[bool] = []

    def load(*_: object, **__: object) -> Settings:
        seen.extend(kept_private)
        raise Invalid("config: enough")

    monkeypatch.setattr(cli, "load", load)
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
def test_expected_failure_exits_with_1_and_one_record(
    error: Exception,
    config: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def serve(*_: object) -> None:
        raise error

    monkeypatch.setattr(tree, "serve", serve)
    assert main(["serve", "--config", str(config)]) == 1
    assert [(r.levelno, r.getMessage(), r.exc_info) for r in caplog.records] == [
        (logging.CRITICAL, "in use", None)
    ]
    (record,) = caplog.records
    escalated = "Escalated" in repr(error)
    assert getattr(record, "event", None) is (LogEvent.ESCALATED if escalated else None)


def test_state_that_cannot_be_saved_is_logged_with_its_remedy(
    config: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def serve(*_: object) -> None:
        raise NotSaved("/s/key could not be written: No space left on device")

    monkeypatch.setattr(tree, "serve", serve)
    assert main(["serve", "--config", str(config)]) == 1
    assert caplog.messages == [
        "state.directory: /s/key could not be written: No space left on device; make room there, "
        "or let the daemon's user write to it"
    ]


def test_bug_exits_with_1_and_one_record_with_its_traceback(
    config: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def serve(*_: object) -> None:
        raise ExceptionGroup("", [ZeroDivisionError("a bug")])

    monkeypatch.setattr(tree, "serve", serve)
    assert main(["serve", "--config", str(config)]) == 1
    (record,) = caplog.records
    assert record.exc_info is not None
    assert "a bug" in caplog.text
