"""Readiness, metrics and the status, also while a part is down."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import pytest
from prometheus_client.parser import text_string_to_metric_families
from trio.testing import MockClock

from smartlinkd.browser.actor import Browser
from smartlinkd.conversion.service import ConversionService
from smartlinkd.sandbox.server import Sandbox
from smartlinkd.vault.actor import Vault
from tests.api.client import answer_in_time
from tests.api.conftest import crash

if TYPE_CHECKING:
    from tests.api.conftest import Daemon, Start


COOKIE = "SPC_U=4711; SPC_EC=.ec-of-4711"


@pytest.fixture
async def with_browser(start: Start) -> Daemon:
    """A daemon that looks for a browser where there is none."""
    return await start(
        links={"source": "browser"},
        products={"source": "portal"},
        browser={"executable": "/nowhere/chromium"},
    )


async def test_health_and_readyz_follow_the_browser(
    with_browser: Daemon, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Browser, "is_ready", True)
    assert (await with_browser.get("/api/health")).json()["browserReady"] is True
    assert (await with_browser.get("/readyz")).status_code == 200


async def test_readyz_is_503_while_a_part_is_restarted(
    mock_clock: MockClock, daemon: Daemon, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as broken:
        broken.setattr(Vault, "current", crash())
        assert (await daemon.get("/api/sync-cookie")).status_code == 503
    answer = await daemon.get("/readyz")
    assert (answer.status_code, answer.json()["error"]) == (503, "waiting")
    mock_clock.jump(1)
    assert (await daemon.get("/api/sync-cookie")).status_code == 200  # waited for it
    assert (await daemon.get("/readyz")).status_code == 200


async def metrics_of(daemon: Daemon) -> dict[str, dict[tuple[str, ...], float]]:
    """Return the values by sample name, then by the values of the labels."""
    answer = await daemon.get("/metrics")
    assert answer.headers["Content-Type"] == "text/plain; version=0.0.4; charset=utf-8"
    found: dict[str, dict[tuple[str, ...], float]] = {}
    for family in text_string_to_metric_families(answer.text):
        assert family.documentation
        for sample in family.samples:
            found.setdefault(sample.name, {})[tuple(sample.labels.values())] = sample.value
    return found


async def crash_the_service(daemon: Daemon, token: str) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ConversionService, "convert", crash("a bug in the service"))
        assert (await daemon.convert(token, "https://example.org/")).status_code == 503


async def test_metrics_count_links_by_code(selling: Daemon, sandbox: Sandbox) -> None:
    links = [f"{sandbox.shop_url}/product/7/{item}" for item in (1, 2)]
    await selling.convert(await selling.login(), *links, "https://example.org/")
    counted = (await metrics_of(selling))["smartlinkd_links_total"]
    assert counted == {("0",): 2, ("10",): 1}


async def test_status_shows_a_part_that_is_down_and_why(
    slow_restarts: None, mock_clock: MockClock, daemon: Daemon
) -> None:
    await daemon.post("/api/sync-cookie", {"cookie": COOKIE})
    token = await daemon.login()
    await crash_the_service(daemon, token)
    answer = await answer_in_time(mock_clock, partial(daemon.get, "/api/status", token=token))
    status = answer.json()
    assert status["conversion"] is None
    assert status["accounts"] is None
    assert status["cookie"]["accountName"] == "Affiliate"
    conversion = next(part for part in status["actors"] if part["name"] == "conversion")
    assert (conversion["state"], conversion["restarts"]) == ("waiting", 0)
    assert conversion["lastError"] == "ZeroDivisionError: a bug in the service"
    assert conversion["nextRetry"] > 100
