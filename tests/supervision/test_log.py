"""What the log tells of children: by which part, and for which work."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from smartlinkd.logs import LogContext, LogEvent, bind_log_contexts
from smartlinkd.logs.context import ContextFilter
from smartlinkd.supervision.actor import Mailbox
from smartlinkd.supervision.policy import Backoff
from smartlinkd.supervision.supervisor import Supervisor

if TYPE_CHECKING:
    from tests.supervision.conftest import Child, Grow

EVEN = Backoff(first=1.0, longest=8.0, healthy=60.0, jitter=0.0)
logger = logging.getLogger("smartlinkd.test")


@pytest.fixture
def log(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    """All records, with their context."""
    caplog.handler.addFilter(ContextFilter())
    caplog.set_level(logging.INFO, "smartlinkd")
    return caplog


def failures(log: pytest.LogCaptureFixture) -> dict[str, tuple[object, object]]:
    """The event that each error is, and what it is about, by its text."""
    found = [one for one in log.records if one.levelno == logging.ERROR]
    return {one.message: (one.__dict__.get("event"), one.__dict__.get("about")) for one in found}


async def test_a_failure_is_an_event_of_its_part(
    grow: Grow, a: Child, log: pytest.LogCaptureFixture, autojump_clock: MockClock
) -> None:
    async def break_down() -> None:
        raise ValueError("broken")

    grow(Supervisor("tree", [a.spec()], backoff=EVEN))
    await wait_all_tasks_blocked()
    a.before = break_down
    a.fail(ValueError("broken"))
    await trio.sleep(1.5)
    assert failures(log) == {
        "a failed": (LogEvent.PART_FAILED, {"actor": "a"}),
        "a did not start again": (LogEvent.PART_FAILED, {"actor": "a"}),
    }


async def test_what_a_child_logs_is_its_own(
    grow: Grow, a: Child, b: Child, log: pytest.LogCaptureFixture
) -> None:
    async def say() -> None:
        await trio.lowlevel.checkpoint()
        logger.info("here")

    a.before = b.before = say
    grow(Supervisor("tree", [a.spec(), b.spec()]))
    await wait_all_tasks_blocked()
    assert [one.__dict__["actor"] for one in log.records if one.message == "here"] == ["a", "b"]


async def test_what_an_actor_logs_is_for_whoever_asked(
    nursery: trio.Nursery, log: pytest.LogCaptureFixture
) -> None:
    mailbox = Mailbox[object]("it", size=8)

    async def say(_: object) -> None:
        await trio.lowlevel.checkpoint()
        logger.info("done")

    nursery.start_soon(mailbox.serve, object())
    for id_ in ("one", "two"):
        with bind_log_contexts((LogContext(request_id=id_),)):
            await mailbox.ask(say)
    works = [one.__dict__["log_contexts"] for one in log.records if one.message == "done"]
    assert works == [(LogContext(request_id="one"),), (LogContext(request_id="two"),)]
    nursery.cancel_scope.cancel()
