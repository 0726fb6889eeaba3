"""Failures of the demo; `tests/e2e/test_demo.py` tests what it does."""

from __future__ import annotations

import os
import signal
import stat
import tomllib
from functools import partial
from pathlib import Path
from typing import NoReturn

import pytest
import trio

from smartlinkd import logs
from smartlinkd.browser.chromium import find_executable
from smartlinkd.browser.errors import LaunchFailed
from smartlinkd.commands import demo
from smartlinkd.commands.demo import StepFailed
from smartlinkd.conversion.schemas import FailureEntry, SuccessEntry
from smartlinkd.errors import Invalid
from smartlinkd.net.addresses import Bind
from smartlinkd.sandbox.server import open_sandbox


@pytest.mark.parametrize("failure", [StepFailed("no"), Invalid("no")], ids=["step", "refusal"])
def test_failed_step_prints_its_own_error(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], failure: Exception
) -> None:
    async def fail(*_: object, **__: object) -> None:
        group = ExceptionGroup("in the tour", [failure])
        raise ExceptionGroup("in the demo", [group])

    monkeypatch.setattr(demo, "run_demo", fail)
    monkeypatch.setattr(logs, "set_up", lambda _: None)
    assert demo.main(once=True, port=0) == 1
    assert capsys.readouterr().err == "demo: no\n"


def test_interrupted_demo_exits_with_130(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    async def interrupted(*_: object) -> NoReturn:
        await trio.lowlevel.checkpoint()
        raise KeyboardInterrupt

    monkeypatch.setattr(demo, "configure", interrupted)
    monkeypatch.setattr(logs, "set_up", lambda _: None)
    assert demo.main(once=True, port=0) == 128 + signal.SIGINT
    assert capsys.readouterr().err == ""


def test_crew_gets_the_variables_of_its_model_only() -> None:
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
async def test_demo_without_a_usable_sandbox_warns(
    open_folder: Path, body: str, unusable: bool, said: int
) -> None:
    chromium = open_folder / "chromium"
    chromium.write_text(f"#!/bin/sh\n{body.format(chromium=find_executable(None))}\n")
    chromium.chmod(0o755)
    told: list[str] = []
    assert await demo.is_sandbox_unusable(told.append, chromium) is unusable
    assert len([line for line in told if line.startswith("WARNING: ")]) == said


async def test_chromium_that_never_starts_raises(
    tmp_path: Path,
) -> None:
    with pytest.raises(LaunchFailed, match="there is no file"):
        await demo.is_sandbox_unusable(pytest.fail, tmp_path / "none")


@pytest.mark.chromium
async def test_environment_of_the_owners_daemon_is_ignored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SMARTLINKD_SERVER__BIND", "127.0.0.1:8787")
    async with open_sandbox() as sandbox:
        settings = await demo.configure(tmp_path, sandbox, "open sesame", 8790, print)
    assert settings.server.bind == Bind("127.0.0.1", 8790)
    assert stat.S_IMODE((tmp_path / "config.toml").stat().st_mode) == 0o600


async def test_proxy_of_the_owners_shell_is_not_used(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in [each for each in os.environ if each.lower() == "no_proxy"]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    async with open_sandbox() as sandbox:
        steps = partial(demo.run_steps, sandbox.origins.portal, "open sesame", sandbox, print)
        with pytest.raises(StepFailed, match="the server answered with status"):  # not a daemon
            await trio.to_thread.run_sync(steps)


async def test_unexpected_result_of_a_link_fails_the_demo() -> None:
    async with open_sandbox() as sandbox:
        links = demo.demo_links(sandbox)
        entry = SuccessEntry(short_link="s", long_link="l", product=None)
        good = dict.fromkeys(links, entry)
        *_, gone = links
        bad = dict.fromkeys(links, FailureEntry(fail_code=10))
        demo.show(links, {**good, gone: bad[gone]}, print)
        with pytest.raises(StepFailed, match=f"^unexpected result for {gone}$"):
            demo.show(links, good, print)
        with pytest.raises(StepFailed, match=r"^unexpected result for .*/direct, "):
            demo.show(links, bad, print)
