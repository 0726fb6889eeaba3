"""What the demo's steps say when they do not work; what they do is in `tests/e2e/test_demo.py`."""

from __future__ import annotations

import json
import os

import httpx
import pytest

from smartlinkd.commands.tour import StepFailed, Tour, ask, progress
from smartlinkd.sandbox.server import open_sandbox


async def test_the_proxy_of_the_owners_shell_is_not_for_this_client(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in [each for each in os.environ if each.lower() == "no_proxy"]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    async with open_sandbox() as sandbox:
        tour = Tour(sandbox.portal_url, "open sesame", sandbox, print)
        with pytest.raises(json.JSONDecodeError):  # the portal was reached, which is no daemon
            await tour.run()


async def test_a_link_that_was_not_converted_as_it_should_be_fails_the_demo() -> None:
    async with open_sandbox() as sandbox:
        tour = Tour("http://127.0.0.1:1", "password", sandbox, print)
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
async def test_a_refusal_is_told_in_the_words_of_the_answer(
    status: int, answer: dict[str, object], told: str
) -> None:
    transport = httpx.MockTransport(lambda _: httpx.Response(status, json=answer))
    async with httpx.AsyncClient(base_url="http://daemon", transport=transport) as http:
        with pytest.raises(StepFailed, match=f"^POST /api/x: {told}$"):
            await ask(http, "/api/x", {})


async def test_a_daemon_that_cannot_be_reached_is_told() -> None:
    async with httpx.AsyncClient(base_url="http://127.0.0.1:1", trust_env=False) as http:
        with pytest.raises(StepFailed, match=r"^GET /api/x: ConnectError\("):
            await ask(http, "/api/x", None)
        tour_follows = Tour("", "", None, print).follow  # type: ignore[arg-type]  # the sandbox is not asked
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
def test_what_happens_is_told_in_few_words(line: str, told: str) -> None:
    assert progress(line) == told
