"""What the demo says when it does not work; what it does is in `tests/e2e/test_demo.py`."""

from __future__ import annotations

import signal
import stat
import tomllib
from pathlib import Path
from typing import NoReturn

import pytest
import trio

from smartlinkd import logs
from smartlinkd.browser import executable
from smartlinkd.browser.errors import LaunchFailed
from smartlinkd.commands import demo
from smartlinkd.commands.tour import StepFailed
from smartlinkd.errors import Invalid
from smartlinkd.net.addresses import Bind
from smartlinkd.sandbox.server import open_sandbox


@pytest.mark.parametrize("failure", [StepFailed("no"), Invalid("no")], ids=["step", "refusal"])
def test_a_step_that_failed_is_told_in_its_own_words(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], failure: Exception
) -> None:
    async def fail(*_: object, **__: object) -> None:
        group = ExceptionGroup("in the tour", [failure])
        raise ExceptionGroup("in the demo", [group])

    monkeypatch.setattr(demo, "run_demo", fail)
    monkeypatch.setattr(logs, "set_up", lambda _: None)
    assert demo.main(once=True, port=0) == 1
    assert capsys.readouterr().err == "demo: no\n"


def test_one_that_is_interrupted_before_it_serves_ends_as_shells_expect(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    async def interrupted(*_: object) -> NoReturn:
        await trio.lowlevel.checkpoint()
        raise KeyboardInterrupt

    monkeypatch.setattr(demo, "configure", interrupted)
    monkeypatch.setattr(logs, "set_up", lambda _: None)
    assert demo.main(once=True, port=0) == 128 + signal.SIGINT
    assert capsys.readouterr().err == ""


def test_the_crew_has_what_a_model_needs_and_nothing_else() -> None:
    given = {
        "OPENAI_BASE_URL": "http://127.0.0.1:1",
        "OPENAI_API_KEY": 'a "key"',
        "OPENAI_MODEL_NAME": "",
        "OPENAI_MODEL": "ă 🔥",
    }
    (crew,) = tomllib.loads(demo.crew_table({**given, "HOME": "/root"}))["crews"]
    assert crew["environment"] == {name: value for name, value in given.items() if value}


@pytest.mark.parametrize(
    ("body", "unusable", "said"),
    [
        ('exec "{chromium}" "$@"', False, 0),
        ('case "$*" in *--no-sandbox*) exec "{chromium}" "$@"; esac; exit 1', True, 2),
    ],
    ids=["with it", "without it"],
)
@pytest.mark.chromium
async def test_chromiums_sandbox_is_done_without_where_it_has_to_be_and_that_is_said(
    open_folder: Path, monkeypatch: pytest.MonkeyPatch, body: str, unusable: bool, said: int
) -> None:
    chromium = open_folder / "chromium"
    chromium.write_text(f"#!/bin/sh\n{body.format(chromium=executable.find(None))}\n")
    chromium.chmod(0o755)
    monkeypatch.setattr(executable, "CANDIDATES", (str(chromium),))
    told: list[str] = []
    assert await demo.sandbox_unusable(told.append) is unusable
    assert len([line for line in told if line.startswith("WARNING: ")]) == said


async def test_a_chromium_that_starts_in_no_way_is_not_for_want_of_a_sandbox(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(executable, "CANDIDATES", ())
    with pytest.raises(LaunchFailed, match="no Chromium was found"):
        await demo.sandbox_unusable(pytest.fail)


@pytest.mark.chromium
async def test_what_the_owners_shell_has_for_a_daemon_is_not_for_this_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SMARTLINKD_SERVER__BIND", "127.0.0.1:8787")
    async with open_sandbox() as sandbox:
        settings = await demo.configure(tmp_path, sandbox, "open sesame", 8790, print)
    assert settings.server.bind == Bind("127.0.0.1", 8790)
    assert stat.S_IMODE((tmp_path / "config.toml").stat().st_mode) == 0o600
