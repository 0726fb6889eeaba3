"""The command `serve`: its steps before the daemon serves, and its error messages."""

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
def calls(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The calls that would change this process or its log levels, recorded instead."""
    found: list[str] = []
    monkeypatch.setattr(serve_command, "make_private", lambda: found.append("private"))
    monkeypatch.setattr(serve_command, "raise_descriptor_limit", lambda: found.append("files"))
    monkeypatch.setattr(logs, "set_up", found.append)
    monkeypatch.setattr(logs, "set_level", found.append)
    return found


def test_serve_runs_the_tree_with_settings_and_the_service_managers_environment(
    config: Path, calls: list[str], monkeypatch: pytest.MonkeyPatch
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
    assert calls == ["private", "files", "info", "debug"]


def test_each_problem_of_the_configuration_is_a_record(
    tmp_path: Path,
    calls: list[str],
    caplog: pytest.LogCaptureFixture,
    capsys: pytest.CaptureFixture[str],
) -> None:
    path = tmp_path / "config.toml"
    path.write_text('[server]\nbind = "8787"\n')
    assert main(["serve", "--config", str(path)]) == 2
    assert gc.isenabled()
    assert calls == ["private", "files", "info"]
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
    config: Path,
    calls: list[str],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    seen: list[str] = []

    def load(*_: object, **__: object) -> Settings:
        seen.extend(calls)
        raise Invalid("config: enough")

    monkeypatch.setattr(cli, "load", load)
    assert main(["serve", "--config", str(config)]) == 1
    assert capsys.readouterr().err == "smartlinkd: config: enough\n"
    assert "private" in seen


BUG = ExceptionGroup("", [ZeroDivisionError("a bug")])


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (BUG, ("the daemon ended by a fault of its own", None)),
        (StateUnusable("in use"), ("in use", None)),
        (ExceptionGroup("", [Invalid("in use")]), ("in use", None)),
        (
            ExceptionGroup("", [ExceptionGroup("", [Escalated("in use")])]),
            ("in use", LogEvent.ESCALATED),
        ),
        (
            NotSaved("/s/key could not be written: No space left on device"),
            (
                "state.directory: /s/key could not be written: No space left on device; make room "
                "there, or let the daemon's user write to it",
                None,
            ),
        ),
    ],
)
def test_failure_exits_with_1_and_one_record_and_a_bug_has_its_traceback(
    error: Exception,
    expected: tuple[str, LogEvent | None],
    config: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def serve(*_: object) -> None:
        raise error

    monkeypatch.setattr(tree, "serve", serve)
    assert main(["serve", "--config", str(config)]) == 1
    (record,) = caplog.records
    assert record.levelno == logging.CRITICAL
    assert [record.exc_info is not None, "a bug" in caplog.text] == [error is BUG] * 2
    assert (record.getMessage(), getattr(record, "event", None)) == expected
