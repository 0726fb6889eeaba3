"""The line that `systemctl status` shows. Pure: text from reports."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from smartlinkd.admin.reports import (
    NOT_USED_YET,
    AccountReport,
    BrowserReport,
    CrewReport,
    PartReport,
    StatusReport,
)
from smartlinkd.conversion.account import AccountStatus
from smartlinkd.supervision.child import ChildSnapshot, ChildState

REPORTER_NAME: Final = "service manager"
"""The child that reports it."""


def format_status(report: StatusReport) -> str:
    """Format the running daemon: what does not run and why, the browser, accounts, crews."""
    return "; ".join(_segments(report))


def format_shutdown(children: Iterable[ChildSnapshot]) -> str:
    """Format the stopping daemon: the children that have not ended yet."""
    running = (ChildState.RUNNING, ChildState.STOPPING)
    left = [each.name for each in children if each.state in running and each.name != REPORTER_NAME]
    return f"Stopping: {', '.join(left)}" if left else "Stopping"


def _segments(report: StatusReport) -> Iterator[str]:
    down = [part for part in report.actors if part.state != ChildState.RUNNING]
    if down and all(map(_is_first_start, down)):
        yield f"Starting: {', '.join(part.name for part in down)}"
        return
    yield ", ".join(map(_down, down)) if down else "All parts run"
    if report.browser is not None:
        yield _browser(report.browser)
        if report.cookie is None and report.accounts is not None:
            yield "no cookie is stored"
    fine_states = (AccountStatus.ACTIVE, NOT_USED_YET)
    yield from (_account(each) for each in report.accounts or () if each.state not in fine_states)
    yield from (_cannot_run(each) for each in report.crews if each.state == "broken")
    running = sum(crew.running for crew in report.crews)
    waiting = sum(crew.waiting for crew in report.crews)
    if report.crews:
        yield f"{running} executions run, {waiting} wait"


def _is_first_start(part: PartReport) -> bool:
    is_new = part.restarts == 0 and part.last_error is None
    return is_new and part.state in (ChildState.DOWN, ChildState.STARTING)


def _down(part: PartReport) -> str:
    text = f"{part.name} is {part.state}"
    return f"{text} ({part.last_error})" if part.last_error else text


def _browser(browser: BrowserReport) -> str:
    if browser.ready or browser.last_restart_reason is None:
        return f"browser {browser.state}"
    return f"browser {browser.state} ({browser.last_restart_reason})"


def _account(account: AccountReport) -> str:
    since = f"{account.since:%Y-%m-%d %H:%M} UTC"
    return f"account {account.account} {account.state} since {since}: {account.reason}"


def _cannot_run(crew: CrewReport) -> str:
    which = "a crew without a name of its own" if crew.name is None else f"crew {crew.name}"
    return f"{which} cannot run"
