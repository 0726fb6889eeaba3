"""Health, and what a monitor and the owner look at.

| promised | test |
|---|---|
| seed 3, browser component: not ready | `test_health_says_that_the_browser_is_not_ready` |
| seed 3, browser component: ready | `test_health_follows_the_browser` (a real one: e2e) |
| seed 4, GET /api/health; contract, timestamps | `test_health_is_ok_and_says_when` |
| contract 3, livez | `test_livez_is_200_whatever_the_browser_does` |
| contract 3, readyz, 200/503 and a one-word reason | `test_readyz_…` |
| contract 3, metrics | `test_metrics_…`; who may: `test_who_may_call.py` |
| contract 3, status: every actor with state, since, restarts | `test_status_tells_of_every_part` |
| contract 3, status: last error | `test_status_tells_of_a_part_in_trouble`, `…_remembers_…` |
| contract 3, status: queue depths, browser, account state | `test_status_tells_of_the_…` |
| contract 3, openapi.json, docs | `test_the_document_…`, `test_the_page_…` |
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest
from prometheus_client.parser import text_string_to_metric_families
from trio.testing import MockClock

from smartlinkd import __version__
from smartlinkd.admin import status as operator
from smartlinkd.browser.actor import Browser
from smartlinkd.conversion.service import _ConversionService
from smartlinkd.sandbox.server import Sandbox
from smartlinkd.vault.actor import _Vault

if TYPE_CHECKING:
    from tests.api.conftest import Daemon, Start

# In the order of their start, and at the end those that `crews` is over.
PARTS = [
    *(
        "pauses",
        "auth",
        "vault",
        "history",
        "conversion",
        "crew tokens",
        "crews",
        "http",
        "monitoring",
        "control",
    ),
    *("journal", "executor", "webhooks"),
]
COOKIE = "SPC_U=4711; SPC_EC=.ec-of-4711"


@pytest.fixture
async def with_browser(start: Start) -> Daemon:
    """A daemon that looks for a browser where there is none."""
    return await start(
        links={"source": "browser"},
        products={"source": "portal"},
        browser={"executable": "/nowhere/chromium"},
    )


# Health


async def test_health_is_ok_and_says_when(daemon: Daemon) -> None:
    body = (await daemon.get("/api/health")).json()
    assert body == {"ok": True, "browserReady": False, "timestamp": body["timestamp"]}
    assert len(body["timestamp"]) == len("2026-01-31T23:59:59.999Z")
    moment = datetime.strptime(body["timestamp"], "%Y-%m-%dT%H:%M:%S.%fZ").replace(tzinfo=UTC)
    assert abs((datetime.now(UTC) - moment).total_seconds()) < 10


async def test_health_says_that_the_browser_is_not_ready(with_browser: Daemon) -> None:
    answer = await with_browser.get("/api/health")
    assert answer.status_code == 200
    assert answer.json()["ok"] is True
    assert answer.json()["browserReady"] is False


async def test_health_follows_the_browser(
    with_browser: Daemon, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Browser, "is_ready", True)
    assert (await with_browser.get("/api/health")).json()["browserReady"] is True
    assert (await with_browser.get("/readyz")).status_code == 200


# For monitors


async def test_livez_is_200_whatever_the_browser_does(with_browser: Daemon) -> None:
    answer = await with_browser.get("/livez")
    assert (answer.status_code, answer.json()) == (200, {"ok": True})


async def test_readyz_is_200_where_no_browser_is_needed(daemon: Daemon) -> None:
    answer = await daemon.get("/readyz")
    assert (answer.status_code, answer.json()) == (200, {"ok": True, "status": "ready"})


async def test_readyz_is_503_and_one_word_without_the_browser(with_browser: Daemon) -> None:
    answer = await with_browser.get("/readyz")
    assert answer.status_code == 503
    assert answer.json()["error"] in {"starting", "waiting"}


async def test_readyz_is_503_and_one_word_while_a_part_is_restarted(
    mock_clock: MockClock, daemon: Daemon, monkeypatch: pytest.MonkeyPatch
) -> None:
    await crash_the_vault(daemon, monkeypatch)
    answer = await daemon.get("/readyz")
    assert (answer.status_code, answer.json()["error"]) == (503, "waiting")
    mock_clock.jump(1)
    assert (await daemon.get("/api/sync-cookie")).status_code == 200  # waited for it
    assert (await daemon.get("/readyz")).status_code == 200


async def crash_the_vault(daemon: Daemon, monkeypatch: pytest.MonkeyPatch) -> None:
    def fault(self: _Vault) -> None:
        raise ZeroDivisionError("a bug in the vault")

    with monkeypatch.context() as broken:
        broken.setattr(_Vault, "current", fault)
        assert (await daemon.get("/api/sync-cookie")).status_code == 503


async def metrics_of(daemon: Daemon) -> dict[str, dict[tuple[str, ...], float]]:
    """By the samples' names, then by the values of their labels."""
    answer = await daemon.get("/metrics")
    assert answer.headers["Content-Type"] == "text/plain; version=0.0.4; charset=utf-8"
    found: dict[str, dict[tuple[str, ...], float]] = {}
    for family in text_string_to_metric_families(answer.text):
        assert family.documentation
        for sample in family.samples:
            found.setdefault(sample.name, {})[tuple(sample.labels.values())] = sample.value
    return found


async def test_metrics_count_requests_by_route(daemon: Daemon) -> None:
    for _ in range(3):
        await daemon.get("/api/health")
    await daemon.post("/api/auth/login", {"password": "wrong"})
    for path in ("/a", "/b", "/api/health/c"):
        await daemon.get(path)
    counted = (await metrics_of(daemon))["smartlinkd_requests_total"]
    assert counted["/api/health", "200"] == 3
    assert counted["/api/auth/login", "401"] == 1
    assert counted["unknown", "404"] == 3
    routes = {route for route, _ in counted}
    assert routes <= {"/api/health", "/api/auth/login", "unknown", "/openapi.json"}


async def test_metrics_time_requests(daemon: Daemon) -> None:
    await daemon.get("/api/health")
    found = await metrics_of(daemon)
    assert found["smartlinkd_request_seconds_count"]["/api/health",] == 1
    assert 0 < found["smartlinkd_request_seconds_sum"]["/api/health",] < 10


async def test_metrics_tell_of_every_part(
    mock_clock: MockClock, daemon: Daemon, monkeypatch: pytest.MonkeyPatch
) -> None:
    parts = {(name,) for name in PARTS}
    found = await metrics_of(daemon)
    assert found["smartlinkd_part_up"] == dict.fromkeys(parts, 1.0)
    assert found["smartlinkd_part_restarts_total"] == dict.fromkeys(parts, 0.0)
    await crash_the_vault(daemon, monkeypatch)
    assert (await metrics_of(daemon))["smartlinkd_part_up"]["vault",] == 0
    mock_clock.jump(1)
    await daemon.get("/api/sync-cookie")
    assert (await metrics_of(daemon))["smartlinkd_part_restarts_total"]["vault",] == 1


async def test_metrics_tell_of_the_browser(with_browser: Daemon) -> None:
    found = await metrics_of(with_browser)
    for name in ("ready", "jobs_running", "jobs_waiting", "contexts"):
        assert found[f"smartlinkd_browser_{name}"][()] == 0
    assert found["smartlinkd_browser_restarts_total"]["launch failed",] >= 1


async def test_metrics_tell_of_webhooks(daemon: Daemon) -> None:
    assert (await metrics_of(daemon))["smartlinkd_webhook_wait_seconds_count"] == {(): 0}


async def test_metrics_count_links_by_code(selling: Daemon, sandbox: Sandbox) -> None:
    links = [f"{sandbox.shop_url}/product/7/{item}" for item in (1, 2)]
    await selling.convert(await selling.login(), *links, "https://example.org/")
    counted = (await metrics_of(selling))["smartlinkd_links_total"]
    assert counted == {("0",): 2, ("10",): 1}


# For the owner


async def status_of(daemon: Daemon) -> dict[str, Any]:
    answer = await daemon.get("/api/status", token=await daemon.login())
    assert answer.status_code == 200
    found: dict[str, Any] = answer.json()
    return found


async def test_status_tells_of_every_part(daemon: Daemon) -> None:
    status = await status_of(daemon)
    assert [part["name"] for part in status["actors"]] == PARTS
    for part in status["actors"]:
        assert part["since"] >= status["startedAt"]
        assert part == part | {
            "state": "running",
            "restarts": 0,
            "lastError": None,
            "nextRetry": None,
        }
    assert status["version"] == __version__


async def test_status_tells_of_a_part_in_trouble(
    slow_restarts: None, daemon: Daemon, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(operator, "REPORT_TIMEOUT_S", 0.05)
    await daemon.post("/api/sync-cookie", {"cookie": COOKIE})
    token = await daemon.login()
    await crash_the_desk(daemon, token)
    status = (await daemon.get("/api/status", token=token)).json()
    assert status["conversion"] is None
    assert status["accounts"] is None
    assert status["cookie"]["accountName"] == "Affiliate"
    conversion = next(part for part in status["actors"] if part["name"] == "conversion")
    assert (conversion["state"], conversion["restarts"]) == ("waiting", 0)
    assert conversion["lastError"] == "ZeroDivisionError: a bug in the service"
    assert conversion["nextRetry"] > 100


async def test_status_remembers_the_trouble(daemon: Daemon, token: str) -> None:
    await crash_the_desk(daemon, token)
    assert (await daemon.convert(token, "https://example.org/")).status_code == 200  # it is back
    status = (await daemon.get("/api/status", token=token)).json()
    assert status["conversion"]["requestsWaiting"] == 0
    conversion = next(part for part in status["actors"] if part["name"] == "conversion")
    assert (conversion["state"], conversion["restarts"], conversion["nextRetry"]) == (
        "running",
        1,
        None,
    )
    assert conversion["lastError"] == "ZeroDivisionError: a bug in the service"


async def crash_the_desk(daemon: Daemon, token: str) -> None:
    async def fault(*_: object) -> None:
        raise ZeroDivisionError("a bug in the service")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_ConversionService, "convert", fault)
        assert (await daemon.convert(token, "https://example.org/")).status_code == 503


async def test_status_tells_of_the_browser(with_browser: Daemon) -> None:
    browser = (await status_of(with_browser))["browser"]
    assert browser["state"] in {"starting", "waiting"}
    assert browser["ready"] is False
    assert (browser["version"], browser["pid"]) == (None, None)
    assert browser["restarts"] >= 1
    assert browser["lastRestartReason"].startswith("launch failed: ")


async def test_status_tells_that_there_is_no_browser(daemon: Daemon) -> None:
    assert (await status_of(daemon))["browser"] is None


async def test_status_tells_of_the_queues_and_the_account(
    selling: Daemon, sandbox: Sandbox
) -> None:
    status = await status_of(selling)
    assert status["conversion"] == {
        "requestsWaiting": 0,
        "submitsWaiting": 0,
        "rememberedLinks": 0,
        "rememberedProducts": 0,
    }
    assert (status["cookie"], status["accounts"]) == (None, [])
    await selling.post("/api/sync-cookie", {"cookie": COOKIE, "accountName": "mine"})
    await selling.convert(await selling.login(), f"{sandbox.shop_url}/product/7/1")
    status = await status_of(selling)
    assert status["conversion"]["rememberedLinks"] == 1
    assert status["cookie"]["accountName"] == "mine"
    states = {account["account"]: account["state"] for account in status["accounts"]}
    assert states == {"4711": "active", "open api": "active"}
    assert ".ec-of-4711" not in str(status)


# For whoever writes a client


async def test_the_document_is_openapi(daemon: Daemon) -> None:
    answer = await daemon.get("/openapi.json")
    assert answer.headers["Content-Type"] == "application/json"
    assert answer.json()["openapi"].startswith("3.1.")
    assert answer.json()["info"]["version"] == __version__


async def test_the_page_and_its_files_are_there(daemon: Daemon) -> None:
    for path, kind in (
        ("/docs", "text/html"),
        ("/docs/swagger-ui.css", "text/css"),
        ("/docs/docs.js", "text/javascript"),
    ):
        answer = await daemon.get(path)
        assert answer.status_code == 200
        assert answer.headers["Content-Type"].startswith(kind)
        assert answer.headers["Content-Security-Policy"].startswith("default-src 'none'")


async def test_log_shows_newest_records_with_filters(daemon: Daemon) -> None:
    await daemon.post("/api/auth/login", {"password": "wrong guess"})
    token = await daemon.login()
    shown = (await daemon.get("/api/log?level=warning&q=WRONG+password", token=token)).json()
    assert shown["records"][0]["message"].startswith("wrong password from ")
    assert {record["level"] for record in shown["records"]} == {"warning"}
    refused = await daemon.get("/api/log?limit=501", token=token)
    assert (refused.status_code, refused.json()["error"]) == (400, "limit: must be 500 or less")


async def test_series_begins_with_the_daemon(daemon: Daemon) -> None:
    token = await daemon.login()
    shown = (await daemon.get("/api/series?name=memory_bytes&hours=1", token=token)).json()
    assert [point["value"] > 2**20 for point in shown["points"]] == [True]
