"""What the log tells of executions: the events, and whom each line is about."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import pytest

from smartlinkd.crews.execution import MAX_LOGGED_OUTPUT
from smartlinkd.logs import LogContext, LogEvent, bind_log_contexts
from smartlinkd.logs.context import ContextFilter
from smartlinkd.logs.formats import context_fields, message_text

if TYPE_CHECKING:
    from tests.crews.executor.conftest import MakeCrew, OpenHouse


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


async def test_an_execution_is_accepted_for_a_request_and_ends_for_itself(
    open_house: OpenHouse, crew: MakeCrew, log: pytest.LogCaptureFixture
) -> None:
    house = await open_house(crew(max_running=1))
    with bind_log_contexts((LogContext(request_id="mine"),)):
        kickoff_id = await house.kickoff()
    with bind_log_contexts((LogContext(request_id="another"),)):
        second = await house.kickoff()
    await house.end_of(second)
    first_fields = {"crew": ["c"], "kickoff_id": [kickoff_id]}
    second_fields = {"crew": ["c"], "kickoff_id": [second]}
    assert told(log, LogEvent.EXECUTION_ACCEPTED) == [
        {"request_id": ["mine"], **first_fields},
        {"request_id": ["another"], **second_fields},
    ]
    # The second was begun by the end of the first, and its lines are its own nevertheless.
    assert told(log, LogEvent.EXECUTION_FINISHED) == [first_fields, second_fields]


async def test_a_key_that_is_used_again_accepts_nothing(
    open_house: OpenHouse, crew: MakeCrew, log: pytest.LogCaptureFixture
) -> None:
    house = await open_house(crew())
    assert await house.kickoff(key="k") == await house.kickoff(key="k")
    assert len(told(log, LogEvent.EXECUTION_ACCEPTED)) == 1


async def test_one_that_the_daemon_interrupted_is_told_of_as_that(
    open_house: OpenHouse, crew: MakeCrew, log: pytest.LogCaptureFixture
) -> None:
    house = await open_house(crew())
    kickoff_id = await house.kickoff("started", "call gate", "hear", "result ok")
    await house.gate.reaches(1)
    await house.kill()
    assert told(log, LogEvent.EXECUTION_INTERRUPTED) == []
    house = await open_house(crew())
    await house.end_of(kickoff_id)
    assert told(log, LogEvent.EXECUTION_INTERRUPTED) == [
        {"crew": ["c"], "kickoff_id": [kickoff_id]}
    ]
    assert told(log, LogEvent.EXECUTION_FINISHED) == []


async def test_what_one_says_of_its_end_is_one_line_of_the_log(
    open_house: OpenHouse, crew: MakeCrew, log: pytest.LogCaptureFixture
) -> None:
    """It may be anything, and is not to look like lines of ours."""
    house = await open_house(crew())
    end = await house.end_of(await house.kickoff("started", "failed one\nanother \x1b[31m"))
    assert end.error == "one\nanother \x1b[31m"
    (said,) = [m for m in map(message_text, log.records) if "ended as error" in m]
    assert "one" in said
    assert said.isprintable()


async def test_what_a_failed_one_said_last_fits_into_a_record(
    open_house: OpenHouse, crew: MakeCrew, log: pytest.LogCaptureFixture
) -> None:
    house = await open_house(crew())
    nonsense = "".join(f"{number} " for number in range(5000))
    await house.end_of(await house.kickoff("started", nonsense))  # it raises an error with that
    await house.comes_to_rest()
    (told_of,) = [m for m in map(message_text, log.records) if "worker's standard error ended" in m]
    said = f"{nonsense}\n"
    assert told_of.endswith(f":\n{said[-MAX_LOGGED_OUTPUT:]}")
