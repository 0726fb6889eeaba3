"""The page at `/metrics`, in Prometheus' text format.

Counters and histograms belong to the actors that count; those of HTTP requests are here. Gauges are
read from the actors at the scrape, so no value is older than the scrape.
"""

from __future__ import annotations

from collections import Counter as Counts
from collections.abc import Callable, Iterable
from datetime import UTC, datetime

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Histogram,
    Info,
    ProcessCollector,
    generate_latest,
)
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from smartlinkd import __version__
from smartlinkd.admin.reports import AccountResponse
from smartlinkd.browser.actor import Browser
from smartlinkd.crews.executor import Executor
from smartlinkd.metrics import SECONDS
from smartlinkd.supervision.child import ChildSnapshot, ChildState

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


class Metrics(Collector):
    """The daemon's metrics, in a registry of their own."""

    def __init__(
        self,
        browser: Browser | None,
        observed: Iterable[Counter | Histogram],
        executor: Executor,
        parts: Callable[[], list[ChildSnapshot]],
    ) -> None:
        """Collect `observed`, the actors' own metrics, and the supervised actors of `parts`."""
        self._browser = browser
        self._observed = tuple(observed)
        self._executor = executor
        self._parts = parts
        self._account: AccountResponse | None = None  # at this scrape
        self._registry = CollectorRegistry()
        self._registry.register(self)
        ProcessCollector(registry=self._registry)
        Info("smartlinkd_build", "The running program", registry=self._registry).info(
            {"version": __version__}
        )
        self.requests = Counter(
            "smartlinkd_requests",
            "HTTP requests; the status is `left` where the client had gone before the answer",
            ["route", "status"],
            registry=self._registry,
        )
        self.request_seconds = Histogram(
            "smartlinkd_request_seconds",
            "Time to answer a request, or until its client had gone; but for long polls",
            ["route"],
            buckets=SECONDS,
            registry=self._registry,
        )

    def text(self, account: AccountResponse | None = None) -> bytes:
        """Return the page. `account` is None while its actors do not answer."""
        self._account = account
        return generate_latest(self._registry)

    def describe(self) -> Iterable[Metric]:
        """Return nothing: the registry need not know the families before a scrape."""
        return []

    def collect(self) -> Iterable[Metric]:
        """Yield the actors' metrics as they are now."""
        up = GaugeMetricFamily("smartlinkd_part_up", "1 while the part runs", labels=["part"])
        restarts = CounterMetricFamily(
            "smartlinkd_part_restarts", "Restarts by the supervisor", labels=["part"]
        )
        for part in self._parts():
            up.add_metric([part.name], float(part.state is ChildState.RUNNING))
            restarts.add_metric([part.name], part.restarts)
        yield up
        yield restarts
        if self._browser is not None:
            yield from _browser_metrics(self._browser)
        for each in self._observed:
            yield from each.collect()
        yield from _crew_metrics(self._executor)
        if self._account is not None:
            yield from _account_metrics(self._account)


def _account_metrics(account: AccountResponse) -> Iterable[Metric]:
    states = GaugeMetricFamily(
        "smartlinkd_account_state",
        "Accounts that links were made for, by how they stand with the portal",
        labels=["state"],
    )
    counts = Counts(entry.state for entry in account.accounts)
    for state in ("active", "session_lost", "paused"):
        states.add_metric([state], counts[state])
    yield states
    yield GaugeMetricFamily(
        "smartlinkd_cookie_stored", "1 while a cookie is stored", value=account.cookie.stored
    )
    if account.cookie.synced_at is not None:
        age = (datetime.now(UTC) - account.cookie.synced_at).total_seconds()
        yield GaugeMetricFamily(
            "smartlinkd_cookie_age_seconds", "Time since the cookie was synced", value=age
        )


def _crew_metrics(executor: Executor) -> Iterable[Metric]:
    running = GaugeMetricFamily(
        "smartlinkd_executions_running",
        "Executions that run, or whose worker has yet to go",
        labels=["crew"],
    )
    waiting = GaugeMetricFamily(
        "smartlinkd_executions_waiting", "Executions whose turn has not come", labels=["crew"]
    )
    for crew, load in executor.load().items():
        running.add_metric([crew], load.running)
        waiting.add_metric([crew], load.waiting)
    yield running
    yield waiting
    yield GaugeMetricFamily(
        "smartlinkd_execution_followers",
        "Clients that wait for news of an execution",
        value=executor.followers,
    )


def _browser_metrics(browser: Browser) -> Iterable[Metric]:
    status = browser.status()
    gauges = {
        "ready": ("1 while a page can run script", float(status.ready)),
        "jobs_running": ("Pieces of work under way", status.jobs_running),
        "jobs_waiting": ("Pieces of work in the queue", status.jobs_waiting),
        "contexts": ("Warm browser contexts", status.contexts),
    }
    for name, (text, value) in gauges.items():
        yield GaugeMetricFamily(f"smartlinkd_browser_{name}", text, value=value)
    restarts = CounterMetricFamily(
        "smartlinkd_browser_restarts", "Ends of a Chromium, by reason", labels=["reason"]
    )
    for reason, count in browser.restarts.items():
        restarts.add_metric([reason], count)
    yield restarts
    yield from browser.downtime.collect()
