"""The metrics page, read by Prometheus' own parser."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from prometheus_client.metrics_core import Metric
from prometheus_client.parser import text_string_to_metric_families
from pydantic import SecretBytes

from smartlinkd.admin.prometheus import Metrics
from smartlinkd.browser.actor import Browser
from smartlinkd.browser.chromium import LaunchSettings
from smartlinkd.browser.instance import InstanceSettings
from smartlinkd.conversion.service import ConversionTimings
from smartlinkd.crews.catalog.catalog import Catalog
from smartlinkd.crews.executor import Executor
from smartlinkd.crews.model import CrewLoad
from smartlinkd.crews.webhooks.dispatcher import WebhookDispatcher
from smartlinkd.store.actor import Store
from smartlinkd.store.model import Retention, Status
from smartlinkd.supervision.child import ChildSnapshot, ChildState
from smartlinkd.supervision.policy import Backoff

RETENTION = Retention(timedelta(days=1), 1)


def part(name: str, state: ChildState, restarts: int = 0) -> ChildSnapshot:
    return ChildSnapshot(name, state, datetime.now(UTC), restarts, None, None)


def stopped_store() -> Store:
    """Return a store that does not run."""
    return Store(Path("/nowhere"), key=SecretBytes(bytes(32)), retention=RETENTION)


def stopped_executor() -> Executor:
    """Return an executor that does not run."""
    return Executor(
        Catalog({}),
        stopped_store(),
        tools={},
        runs=Path("/nowhere"),
        on_calls_queued=lambda: None,
    )


def families(metrics: Metrics) -> dict[str, Metric]:
    found = list(text_string_to_metric_families(metrics.text().decode()))
    names = [family.name for family in found]
    assert len(set(names)) == len(names)
    return {family.name: family for family in found}


def samples(metrics: Metrics, family: str) -> dict[str, float]:
    found = families(metrics)[family].samples
    return {",".join(sample.labels.values()): sample.value for sample in found}


def test_parts_are_read_at_the_scrape() -> None:
    parts = [part("vault", ChildState.RUNNING)]
    metrics = Metrics(None, ConversionTimings(), stopped_executor(), lambda: parts)
    assert samples(metrics, "smartlinkd_part_restarts") == {"vault": 0}
    parts[:] = [part(state, state, restarts=2) for state in ChildState]
    assert samples(metrics, "smartlinkd_part_restarts") == dict.fromkeys(ChildState, 2)
    up = dict.fromkeys(ChildState, 0) | {ChildState.RUNNING: 1}
    assert samples(metrics, "smartlinkd_part_up") == up


def stopped_browser() -> Browser:
    launch = LaunchSettings(
        executable=Path("/nowhere"), user="nobody", no_sandbox=False, start_timeout=1
    )
    settings = InstanceSettings(
        launch=launch, contexts=1, idle_s=1, recycle_after_s=60, recycle_bytes=2**30
    )
    return Browser(settings, queue=1, backoff=Backoff(), on_down=lambda _why: None)


def test_metrics_without_a_browser_have_no_browser_family() -> None:
    def told(browser: Browser | None) -> list[str]:
        return [
            name
            for name in families(Metrics(browser, ConversionTimings(), stopped_executor(), list))
            if "browser" in name
        ]

    assert told(stopped_browser())
    assert not told(None)


def test_values_of_the_parts_are_told_apart_by_their_labels(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    browser, timings, executor = stopped_browser(), ConversionTimings(), stopped_executor()
    webhook_wait, webhook_attempt = WebhookDispatcher(stopped_store(), allow=(), key=None).metrics
    ended, waits = executor.metrics
    metrics = Metrics(
        browser, (*timings, webhook_wait, webhook_attempt, ended, waits), executor, list
    )
    assert samples(metrics, "smartlinkd_browser_restarts")["crashed"] == 0
    assert samples(metrics, "smartlinkd_executions_ended") == {}
    status = replace(browser.status(), ready=True, jobs_running=2, jobs_waiting=3, contexts=4)
    monkeypatch.setattr(browser, "status", lambda: status)
    load = {"deal-post": CrewLoad(running=5, waiting=6), "news": CrewLoad(running=0, waiting=7)}
    monkeypatch.setattr(executor, "load", lambda: load)
    monkeypatch.setattr(Executor, "followers", 8)
    browser.restarts["crashed"] += 1
    ended.labels("deal-post", Status.COMPLETED).inc(2)
    told = {
        "browser_ready": {"": 1},
        "browser_jobs_running": {"": 2},
        "browser_jobs_waiting": {"": 3},
        "browser_contexts": {"": 4},
        "executions_running": {"deal-post": 5, "news": 0},
        "executions_waiting": {"deal-post": 6, "news": 7},
        "execution_followers": {"": 8},
        "executions_ended": {"deal-post,completed": 2},
    }
    assert {name: samples(metrics, f"smartlinkd_{name}") for name in told} == told
    assert samples(metrics, "smartlinkd_browser_restarts")["crashed"] == 1
    browser.downtime.observe(3)
    timings.wait.labels("left").observe(0.7)
    timings.submit.labels("done").observe(0.3)
    timings.products.labels("PortalSilent").observe(10)
    waits.labels("deal-post").observe(40)
    webhook_wait.observe(90)
    webhook_attempt.labels("later").observe(4)
    sums = {
        name: {",".join(each.labels.values()): each.value}
        for name, family in families(metrics).items()
        for each in family.samples
        if each.name.endswith("_sum")
    }
    assert sums == {
        "smartlinkd_browser_down_seconds": {"": 3},
        "smartlinkd_submit_wait_seconds": {"left": 0.7},
        "smartlinkd_submit_seconds": {"done": 0.3},
        "smartlinkd_product_data_seconds": {"PortalSilent": 10},
        "smartlinkd_execution_wait_seconds": {"deal-post": 40},
        "smartlinkd_webhook_wait_seconds": {"": 90},
        "smartlinkd_webhook_attempt_seconds": {"later": 4},
    }
