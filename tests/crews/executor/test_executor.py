"""The executions that each caller sees, and their lines in the log."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable

import pytest

from smartlinkd.crews.executor import Executor
from smartlinkd.crews.model import CrewUser, Feedback
from smartlinkd.errors import NotFound
from smartlinkd.logs import LogContext, LogEvent, bind_log_contexts
from smartlinkd.logs.context import ContextFilter
from smartlinkd.logs.formats import context_fields, message_text
from tests.crews.executor.conftest import WAITS, StartDaemon, make_crew


async def follow(executor: Executor, caller: CrewUser, kickoff_id: str) -> None:
    async with executor.follow(caller, kickoff_id, after=0) as following:
        await following.next()


Ask = Callable[[Executor, CrewUser, str], Awaitable[object]]
QUESTIONS: dict[str, Ask] = {
    "execution": Executor.execution,
    "wait": lambda executor, caller, each: executor.wait(caller, each, 0.01),
    "follow": follow,
    "stop": Executor.stop,
    "resume": lambda executor, caller, each: executor.resume(
        caller, each, Feedback("a", "x", True)
    ),
}


@pytest.mark.parametrize("question", QUESTIONS)
async def test_execution_of_another_owner_is_not_found(
    start_daemon: StartDaemon, question: str
) -> None:
    daemon = await start_daemon(make_crew(), make_crew("other"))
    kickoff_id = await daemon.kickoff(*WAITS, user="an")
    await daemon.gate.reaches(1)
    before = await daemon.look(kickoff_id)
    refusals = set()
    for stranger in (
        CrewUser("c", "bo"),
        CrewUser("other"),
        CrewUser("other", "an"),
        CrewUser("none"),
    ):
        for each in (kickoff_id, "00000000-0000-4000-8000-000000000000"):
            with pytest.raises(NotFound) as refusal:
                await QUESTIONS[question](daemon.executor, stranger, each)
            refusals.add(str(refusal.value))
    field = "execution_id" if question == "resume" else "kickoff_id"
    assert refusals == {f"{field}: there is no such execution, or not any more"}
    assert await daemon.look(kickoff_id) == before
    assert daemon.executor.followers == 0


@pytest.fixture
def log(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    """All records, with their context."""
    caplog.handler.addFilter(ContextFilter())
    caplog.set_level(logging.INFO, "smartlinkd")
    return caplog


def told(log: pytest.LogCaptureFixture, event: LogEvent) -> list[dict[str, list[str]]]:
    """The fields of each record of that kind, but for the event itself."""
    found = [context_fields(one) for one in log.records if getattr(one, "event", None) is event]
    dull = ("event", "message_id", "actor")
    return [{k: v for k, v in fields.items() if k not in dull} for fields in found]


async def test_log_of_an_execution_names_its_request_at_the_kickoff_alone(
    start_daemon: StartDaemon, log: pytest.LogCaptureFixture
) -> None:
    daemon = await start_daemon(make_crew(max_running=1))
    with bind_log_contexts((LogContext(request_id="mine"),)):
        kickoff_id = await daemon.kickoff()
    with bind_log_contexts((LogContext(request_id="another"),)):
        second = await daemon.kickoff()
    await daemon.end_of(second)
    first_fields = {"crew": ["c"], "kickoff_id": [kickoff_id]}
    second_fields = {"crew": ["c"], "kickoff_id": [second]}
    assert told(log, LogEvent.EXECUTION_ACCEPTED) == [
        {"request_id": ["mine"], **first_fields},
        {"request_id": ["another"], **second_fields},
    ]
    # The second was begun by the end of the first, and its lines are its own nevertheless.
    assert told(log, LogEvent.EXECUTION_FINISHED) == [first_fields, second_fields]


async def test_log_of_an_interrupted_execution_has_its_own_event(
    start_daemon: StartDaemon, log: pytest.LogCaptureFixture
) -> None:
    daemon = await start_daemon(make_crew())
    kickoff_id = await daemon.kickoff("started", "call gate", "echo", "result ok")
    await daemon.gate.reaches(1)
    await daemon.kill()
    assert told(log, LogEvent.EXECUTION_INTERRUPTED) == []
    daemon = await start_daemon(make_crew())
    await daemon.end_of(kickoff_id)
    assert told(log, LogEvent.EXECUTION_INTERRUPTED) == [
        {"crew": ["c"], "kickoff_id": [kickoff_id]}
    ]
    assert told(log, LogEvent.EXECUTION_FINISHED) == []


async def test_error_text_of_a_worker_is_one_printable_line_in_the_log(
    start_daemon: StartDaemon, log: pytest.LogCaptureFixture
) -> None:
    """A worker's text must not look like a line of the daemon's."""
    daemon = await start_daemon(make_crew())
    end = await daemon.end_of(await daemon.kickoff("started", "failed one\nanother \x1b[31m"))
    assert end.error == "one\nanother \x1b[31m"
    (said,) = [m for m in map(message_text, log.records) if "ended as error" in m]
    assert "one" in said
    assert said.isprintable()
