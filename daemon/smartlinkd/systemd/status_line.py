"""The daemon in one line, as `systemctl status` shows it. Pure: from reports, text."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from smartlinkd.conversion.account import Standing
from smartlinkd.operator import (
    NOT_USED_YET,
    AccountReport,
    BrowserReport,
    CrewReport,
    PartReport,
    StatusReport,
)
from smartlinkd.supervision.child import ChildSnapshot, ChildState

TELLER: Final = "service manager"
"""The part that tells it."""


def status_line(report: StatusReport) -> str:
    """What does not run first, with the reason; then the browser, the account, the crews, of which
    those that cannot run are named."""
    return "; ".join(_parts(report))


def ending_line(parts: Iterable[ChildSnapshot]) -> str:
    """While it stops: who is still to end."""
    running = (ChildState.RUNNING, ChildState.STOPPING)
    left = [part.name for part in parts if part.state in running and part.name != TELLER]
    return f"Stopping: {', '.join(left)}" if left else "Stopping"


def _parts(report: StatusReport) -> Iterator[str]:
    down = [part for part in report.actors if part.state != ChildState.RUNNING]
    if down and all(map(_is_first_start, down)):
        yield f"Starting: {', '.join(part.name for part in down)}"
        return
    yield ", ".join(map(_down, down)) if down else "All parts run"
    if report.browser is not None:
        yield _browser(report.browser)
        if report.cookie is None and report.accounts is not None:
            yield "no cookie is stored"
    well = (Standing.ACTIVE, NOT_USED_YET)
    yield from (_account(each) for each in report.accounts or () if each.state not in well)
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
