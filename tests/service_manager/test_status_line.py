"""The line that `systemctl status` shows."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from smartlinkd.admin.reports import (
    NOT_USED_YET,
    AccountReport,
    BrowserReport,
    CookieReport,
    CrewReport,
    PartReport,
    StatusReport,
)
from smartlinkd.supervision.child import ChildSnapshot, ChildState
from smartlinkd.systemd.status_line import format_shutdown, format_status
from tests.service_manager.conftest import report

NOW = datetime(2026, 5, 4, 3, 2, 1, tzinfo=UTC)
COOKIE = CookieReport(account_name="Shop", synced_at=NOW, kept=True)


def part(
    name: str,
    state: ChildState = ChildState.RUNNING,
    *,
    restarts: int = 0,
    error: str | None = None,
) -> PartReport:
    return PartReport.model_construct(name=name, state=state, restarts=restarts, last_error=error)


def browser(state: str = "ready", *, last_end: str | None = None) -> BrowserReport:
    return BrowserReport.model_construct(
        state=state, ready=state == "ready", last_restart_reason=last_end
    )


def crew(running: int, waiting: int, name: str | None = "post", state: str = "ready") -> CrewReport:
    return CrewReport.model_construct(name=name, state=state, running=running, waiting=waiting)


def account(state: str, reason: str | None = None) -> AccountReport:
    return AccountReport(account="4711", state=state, since=NOW, reason=reason)


@pytest.mark.parametrize(
    ("found", "line"),
    [
        (report(part("auth"), part("http")), "All parts run"),
        (
            report(part("auth"), part("crews", ChildState.STARTING), part("http", ChildState.DOWN)),
            "Starting: crews, http",
        ),
        (
            report(part("auth"), part("journal", ChildState.WAITING, error="OSError: disk full")),
            "journal is waiting (OSError: disk full)",
        ),
        (
            report(
                part("crews", ChildState.STARTING, restarts=1), part("journal", ChildState.DOWN)
            ),
            "crews is starting, journal is down",
        ),
        (
            report(part("crews", ChildState.STARTING, error="OSError: disk full")),
            "crews is starting (OSError: disk full)",
        ),
        (report(part("auth"), browser=browser(), cookie=COOKIE), "All parts run; browser ready"),
        (
            report(browser=browser(last_end="crashed: exit code 1"), cookie=COOKIE),
            "All parts run; browser ready",
        ),
        (
            report(browser=browser("waiting", last_end="crashed: exit code 1"), cookie=COOKIE),
            "All parts run; browser waiting (crashed: exit code 1)",
        ),
        (report(browser=browser("starting"), cookie=COOKIE), "All parts run; browser starting"),
        (
            report(browser=browser(), accounts=[]),
            "All parts run; browser ready; no cookie is stored",
        ),
        (report(browser=browser()), "All parts run; browser ready"),
        (report(accounts=[account("active")]), "All parts run"),
        (report(accounts=[account(NOT_USED_YET)]), "All parts run"),
        (
            report(accounts=[account("paused", "the portal asks for a person")]),
            "All parts run; account 4711 paused since 2026-05-04 03:02 UTC: "
            "the portal asks for a person",
        ),
        (report(crews=[crew(1, 3), crew(2, 0)]), "All parts run; 3 executions run, 3 wait"),
        (
            report(
                crews=[crew(1, 0), crew(0, 2, "sick", "broken"), crew(0, 0, None, "broken")],
            ),
            "All parts run; crew sick cannot run; a crew without a name of its own cannot run; "
            "1 executions run, 2 wait",
        ),
    ],
)
def test_status_line_shows_what_does_not_run_and_what_needs_the_owner(
    found: StatusReport, line: str
) -> None:
    assert format_status(found) == line


def snapshot(name: str, state: ChildState) -> ChildSnapshot:
    return ChildSnapshot(name, state, NOW, 0, None, None)


def test_shutdown_line_shows_the_parts_that_are_left() -> None:
    parts = [
        snapshot("service manager", ChildState.RUNNING),
        snapshot("auth", ChildState.RUNNING),
        snapshot("crews", ChildState.STOPPING),
        snapshot("http", ChildState.DOWN),
    ]
    assert format_shutdown(parts) == "Stopping: auth, crews"
    assert format_shutdown(parts[:1]) == "Stopping"
