"""Log contexts in tasks, threads and mailboxes."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import pytest
import trio
import trio.testing

from smartlinkd.conversion.cache import SingleFlight
from smartlinkd.errors import Invalid
from smartlinkd.logs import (
    LogContext,
    LogContextSet,
    bind_log_actor,
    bind_log_contexts,
    current_log_contexts,
)
from smartlinkd.logs.context import MAX_CONTEXTS
from smartlinkd.supervision.actor import Mailbox

if TYPE_CHECKING:
    from tests.logs.conftest import LogLines

logger = logging.getLogger("smartlinkd.test")

ONE, TWO = LogContext(request_id="one"), LogContext(request_id="two")


def summary(log_lines: LogLines) -> list[tuple[object, object, object]]:
    """Return message, actor and request ids of each line."""
    return [
        (line["message"], line.get("actor"), line.get("request_id")) for line in log_lines.lines()
    ]


class LoggingActor:
    """An actor that logs in its task and in a thread."""

    async def do(self, what: str) -> None:
        logger.info("%s begins", what)
        await trio.to_thread.run_sync(logger.info, "%s in a thread", what)
        if what == "refused":
            raise Invalid("no")
        await trio.lowlevel.checkpoint()
        logger.info("%s ends", what)


@pytest.mark.parametrize("at_once", [1, 3])
async def test_call_of_an_actor_logs_with_its_callers_context(
    log_lines: LogLines, nursery: trio.Nursery, at_once: int
) -> None:
    mailbox = Mailbox[LoggingActor]("clerk", size=8)

    async def clerk() -> None:
        with bind_log_actor("clerk"), bind_log_contexts((LogContext(request_id="of its start"),)):
            await mailbox.serve(LoggingActor(), at_once=at_once)

    async def ask(work: LogContext, what: str) -> None:
        with bind_log_contexts((work,)):
            try:
                await mailbox.ask(LoggingActor.do, what)
            except Invalid:
                logger.info("%s is over", what)

    nursery.start_soon(clerk)
    async with trio.open_nursery() as asking:
        asking.start_soon(ask, ONE, "done")
        asking.start_soon(ask, TWO, "refused")
    nursery.cancel_scope.cancel()
    assert sorted(summary(log_lines)) == sorted(
        [
            ("done begins", "clerk", "one"),
            ("done in a thread", "clerk", "one"),
            ("done ends", "clerk", "one"),
            ("refused begins", "clerk", "two"),
            ("refused in a thread", "clerk", "two"),
            ("refused is over", None, "two"),
        ]
    )


async def test_shared_work_logs_with_the_contexts_of_all_callers(
    log_lines: LogLines, nursery: trio.Nursery
) -> None:
    shared = SingleFlight[str, int](nursery)
    go_on = trio.Event()

    async def work() -> int:
        logger.info("begun")
        await go_on.wait()
        logger.info("done")
        return 1

    async def ask(one: LogContext) -> None:
        with bind_log_contexts((one,)):
            await shared.run("key", work)

    async with trio.open_nursery() as asking:
        asking.start_soon(ask, ONE)
        await trio.testing.wait_all_tasks_blocked()
        asking.start_soon(ask, TWO)
        await trio.testing.wait_all_tasks_blocked()
        go_on.set()
    assert summary(log_lines) == [("begun", None, "one"), ("done", None, ["one", "two"])]


def test_context_set_has_each_context_once_with_those_of_its_parts() -> None:
    part = LogContextSet()
    whole = LogContextSet(part)
    with bind_log_contexts((ONE, TWO)):
        part.add_current()
        part.add_current()
    with bind_log_contexts((ONE, LogContext(crew="post"))):
        whole.add_current()
    assert list(whole) == [ONE, LogContext(crew="post"), TWO]


def test_context_set_is_bounded() -> None:
    part = LogContextSet()
    whole = LogContextSet(part)
    for number in range(3 * MAX_CONTEXTS):
        with bind_log_contexts((LogContext(request_id=f"{number}"),)):
            (part if number % 2 else whole).add_current()
    assert len(list(whole)) == MAX_CONTEXTS


def test_bound_context_ends_with_its_block() -> None:
    with bind_log_contexts((ONE,)):
        with bind_log_contexts(()):
            assert current_log_contexts() == ()
        assert current_log_contexts() == (ONE,)
    assert current_log_contexts() == ()
