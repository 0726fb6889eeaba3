"""Endpoints for monitors and the owner: health, metrics, the API's description, and *System*."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest
import trio
from prometheus_client.parser import text_string_to_metric_families

from tests.config_file import WITHOUT_BROWSER
from tests.contract.keys import make_key
from tests.e2e.conftest import until

if TYPE_CHECKING:
    import httpx

    from tests.contract.conftest import Daemon, Portal, Running

pytestmark = pytest.mark.chromium

Json = dict[str, Any]

ECHO = {"name": "echo", "runner": "command", "command": ["/bin/cat"]}
SERIES = ["conversions", "submit_seconds", "memory_bytes", "restarts"]
OURS = {
    *("/livez", "/readyz", "/metrics", "/api/status", "/api/health"),
    *("/api/keys", "/api/keys/{id}", "/api/keys/self"),
    *("/api/auth/logout", "/api/auth/revoke"),
    *("/api/extract", "/api/convert-text"),
    *("/api/history", "/api/history.csv", "/api/history/{id}"),
    *("/api/account", "/api/account/clear", "/api/log", "/api/series"),
}
"""The paths of contract sections 3 and 4 that the document describes."""


@pytest.fixture(scope="module")
def broken(running: Running) -> Iterator[Daemon]:
    """A daemon whose Chromium is missing."""
    with running(browser={"executable": "/nowhere/chromium"}, crews=[ECHO]) as daemon:
        yield daemon


@pytest.fixture(scope="module")
def whole(running: Running) -> Iterator[Daemon]:
    """A daemon that needs no browser."""
    with running(**WITHOUT_BROWSER) as daemon:
        yield daemon


async def get(daemon: Daemon, path: str) -> Json:
    """Return the JSON of a request with the owner's session."""
    answer = await daemon.ask("GET", path, token=await daemon.login())
    assert answer.status_code == 200, answer.text
    found: Json = answer.json()
    return found


async def refusal(daemon: Daemon, path: str) -> tuple[int, str]:
    """Return the status, and the name of the wrong parameter."""
    answer = await daemon.ask("GET", path, token=await daemon.login())
    return answer.status_code, answer.json()["error"].partition(":")[0]


# For monitors


async def test_livez_without_a_browser_is_200(broken: Daemon) -> None:
    assert await broken.ready() is False
    answer = await broken.ask("GET", "/livez")
    assert (answer.status_code, answer.json()) == (200, {"ok": True})


async def test_readyz_with_every_part_running_is_200(whole: Daemon) -> None:
    answer = await whole.ask("GET", "/readyz")
    assert (answer.status_code, answer.json()["ok"]) == (200, True)


async def test_readyz_with_a_missing_browser_is_503_with_one_word(broken: Daemon) -> None:
    answer = await broken.ask("GET", "/readyz")
    assert (answer.status_code, answer.json()["ok"]) == (503, False)
    assert re.fullmatch(r"[a-z_]+", answer.json()["error"])


async def test_metrics_are_prometheus_text_with_help_and_count_requests(whole: Daemon) -> None:
    asked = [await whole.ask("GET", "/livez") for _ in range(3)]
    answer = await whole.ask("GET", "/metrics")
    assert answer.headers["Content-Type"] == "text/plain; version=0.0.4; charset=utf-8"
    families = list(text_string_to_metric_families(answer.text))
    assert [family.name for family in families if not family.documentation] == []
    counted = {
        (sample.labels["route"], sample.labels["status"]): sample.value
        for family in families
        for sample in family.samples
        if sample.name == "smartlinkd_requests_total"
    }
    assert counted["/livez", "200"] == len(asked)


# For authors of clients


async def test_openapi_document_describes_every_endpoint(whole: Daemon) -> None:
    answer = await whole.ask("GET", "/openapi.json")
    assert answer.headers["Content-Type"] == "application/json"
    document = answer.json()
    assert document["openapi"].startswith("3.1.")
    assert document["info"]["version"] == (await whole.status())["version"]
    assert set(document["paths"]) >= OURS


async def test_docs_are_a_page_whose_files_are_all_served(whole: Daemon) -> None:
    answer = await whole.ask("GET", "/docs")
    assert answer.headers["Content-Type"].startswith("text/html")
    named = re.findall(r'(?:src|href)="([^"]+)"', answer.text)
    assert any(address.endswith(".js") for address in named)
    for address in named:
        file = await whole.ask("GET", answer.url.join(address).path)
        assert (file.status_code, answer.url.join(address).host) == (200, answer.url.host)


# For the owner


async def test_status_without_a_session_is_403(whole: Daemon) -> None:
    assert (await whole.ask("GET", "/api/status")).status_code == 403


async def test_status_shows_every_part(whole: Daemon) -> None:
    status = await whole.status()
    parts = {part["name"]: part for part in status["actors"]}
    assert {"auth", "history", "conversion", "http", "journal"} <= parts.keys()
    assert len(parts) == len(status["actors"])
    for part in parts.values():
        assert part.keys() == {"name", "state", "since", "restarts", "nextRetry", "lastError"}
        assert (part["state"], part["restarts"], part["lastError"]) == ("running", 0, None)
        assert part["since"] >= status["startedAt"]
    metrics = await whole.metrics()
    for name in parts:
        assert metrics[f'smartlinkd_part_up{{part="{name}"}}'] == 1


async def test_status_says_why_the_browser_was_restarted(broken: Daemon) -> None:
    browser = (await broken.status())["browser"]
    assert (browser["ready"], browser["pid"]) == (False, None)
    assert browser["restarts"] >= 1
    assert "there is no file /nowhere/chromium" in browser["lastRestartReason"]


async def test_status_shows_queues_and_browser_and_account(linking: Daemon, portal: Portal) -> None:
    account = portal.account()
    before = (await linking.status())["conversion"]
    assert (before["requestsWaiting"], before["submitsWaiting"]) == (0, 0)
    await portal.delay(submit_ms=500)

    async def convert() -> None:
        answer = await linking.convert(portal.link(portal.item()), account=account)
        assert answer.status_code == 200, answer.text

    async def is_waiting() -> bool:
        return bool((await linking.status())["conversion"]["submitsWaiting"])

    try:
        async with trio.open_nursery() as nursery:
            for _ in range(3):
                nursery.start_soon(convert)
            await until("a submit that waits for another", is_waiting)
    finally:
        await portal.delay(submit_ms=0)
    status = await linking.status()
    browser, states = status["browser"], {each["account"]: each for each in status["accounts"]}
    assert (browser["ready"], browser["jobsWaiting"]) == (True, 0)
    assert browser["pid"] in linking.processes()
    assert states[account.number]["state"] == "active"


# System


async def wrong_login(daemon: Daemon) -> httpx.Response:
    """Try a wrong password, which writes a log record."""
    return await daemon.ask("POST", "/api/auth/login", {"password": "wrong"})


async def test_log_shows_newest_records_that_fit(broken: Daemon) -> None:
    assert (await wrong_login(broken)).status_code == 401
    everything = (await get(broken, "/api/log?level=debug"))["records"]
    assert len({record["level"] for record in everything}) > 1
    assert sorted((each["at"] for each in everything), reverse=True) == [
        each["at"] for each in everything
    ]
    found = (await get(broken, "/api/log?level=warning&q=WRONG+password&limit=1"))["records"]
    assert [record["level"] for record in found] == ["warning"]
    assert found[0]["message"].startswith("wrong password from ")
    assert (await get(broken, "/api/log?q=nothing+says+this"))["records"] == []


async def test_log_and_series_with_wrong_parameter_are_400(broken: Daemon) -> None:
    assert (await get(broken, "/api/log?limit=500"))["ok"] is True
    assert await refusal(broken, "/api/log?limit=501") == (400, "limit")
    assert await refusal(broken, "/api/log?level=loud") == (400, "level")
    assert await refusal(broken, "/api/series?name=memory_bytes&hours=24.1") == (400, "hours")
    assert await refusal(broken, "/api/series?name=weather") == (400, "name")


@pytest.mark.parametrize("name", SERIES)
async def test_series_has_points_from_the_start_on(broken: Daemon, name: str) -> None:
    shown = await get(broken, f"/api/series?name={name}&hours=24")
    assert shown["name"] == name
    first, *_ = shown["points"]
    assert first.keys() == {"at", "value"}
    assert first["at"] >= (await broken.status())["startedAt"]
    if name == "memory_bytes":
        assert first["value"] > 2**20


async def test_status_of_execution_has_inputs_only_when_asked(broken: Daemon) -> None:
    inputs = {"topic": "son môi", "many": [1, None]}
    key = (await make_key(broken, "crews"))["key"]
    body = {"inputs": inputs}
    kicked = await broken.ask("POST", "/crews/echo/kickoff", body, token=key)
    path = f"/crews/echo/status/{kicked.json()['kickoff_id']}"
    assert (await broken.ask("GET", f"{path}?inputs=1", token=key)).json()["inputs"] == inputs
    assert "inputs" not in (await broken.ask("GET", path, token=key)).json()
