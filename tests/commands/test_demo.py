"""The demo where it fails; what it does is in `tests/e2e/test_demo.py`."""

from __future__ import annotations

import json
import os
import signal
import stat
import tomllib
from pathlib import Path
from typing import NoReturn

import httpx
import pytest
import trio

from smartlinkd import logs
from smartlinkd.browser.chromium import find_executable
from smartlinkd.browser.errors import LaunchFailed
from smartlinkd.commands import demo
from smartlinkd.commands.demo import DemoClient, StepFailed, ask, event_text
from smartlinkd.errors import Invalid
from smartlinkd.net.addresses import Bind
from smartlinkd.sandbox.server import open_sandbox


@pytest.mark.parametrize("failure", [StepFailed("no"), Invalid("no")], ids=["step", "refusal"])
def test_failed_step_is_told_in_its_own_words(
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
        tour = DemoClient(sandbox.portal_url, "open sesame", sandbox, print)
        with pytest.raises(json.JSONDecodeError):  # the portal was reached, which is no daemon
            await tour.run()


async def test_unexpected_result_of_a_link_fails_the_demo() -> None:
    async with open_sandbox() as sandbox:
        tour = DemoClient("http://127.0.0.1:1", "password", sandbox, print)
        links = tour.links()
        good = {link: {"shortLink": "s", "failCode": 0} for link in links}
        *_, gone = links
        bad = {link: {"error": True, "failCode": 10} for link in links}
        tour.show(links, {**good, gone: bad[gone]})
        with pytest.raises(StepFailed, match=f"^unexpected result for {gone}$"):
            tour.show(links, good)
        with pytest.raises(StepFailed, match=r"^unexpected result for .*/direct, "):
            tour.show(links, bad)


@pytest.mark.parametrize(
    ("status", "answer", "told"),
    [
        (401, {"ok": False, "error": "password: is wrong"}, "password: is wrong"),
        (503, {"error": "Too busy", "message": "come again"}, "come again"),
    ],
    ids=["the daemon's", "a crew's"],
)
async def test_refusal_is_told_in_the_words_of_the_answer(
    status: int, answer: dict[str, object], told: str
) -> None:
    transport = httpx.MockTransport(lambda _: httpx.Response(status, json=answer))
    async with httpx.AsyncClient(base_url="http://daemon", transport=transport) as http:
        with pytest.raises(StepFailed, match=f"^POST /api/x: {told}$"):
            await ask(http, "/api/x", {})


async def test_unreachable_daemon_fails_the_step() -> None:
    async with httpx.AsyncClient(base_url="http://127.0.0.1:1", trust_env=False) as http:
        with pytest.raises(StepFailed, match=r"^GET /api/x: ConnectError\("):
            await ask(http, "/api/x", None)
        tour_follows = DemoClient("", "", None, print).follow  # type: ignore[arg-type]  # the sandbox is not asked
        with pytest.raises(StepFailed, match=r"^GET /events: ConnectError\("):
            await tour_follows(http, "/events", "token")


@pytest.mark.parametrize(
    ("line", "told"),
    [
        (": a comment", ""),
        ('data: {"type": "task_started", "data": {"agent": "A", "name": "n"}}', "A: n"),
        ('data: {"type": "agent_step", "data": {"thought": "t"}}', "  t"),
        ('data: {"type": "log", "data": {"text": "x"}}', "  x"),
        (
            'data: {"type": "tool_usage_finished", "data": {"tool": "c", "error": null}}',
            "  c: done",
        ),
        ('data: {"type": "tool_usage_finished", "data": {"tool": "c", "error": "e"}}', "  c: e"),
        ('data: {"type": "execution_started", "data": null}', ""),
    ],
)
def test_event_is_shown_in_a_line(line: str, told: str) -> None:
    assert event_text(line) == told
