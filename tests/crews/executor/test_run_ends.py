"""Each way in which a worker can end has an error of its own, and the executor goes on."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pytest

from smartlinkd.crews.outcome import failure
from smartlinkd.crews.store_entries import ended, subject_of
from smartlinkd.store import executions
from smartlinkd.store.model import ExecutionState, Status, StoreLimits

if TYPE_CHECKING:
    from tests.crews.executor.conftest import House, MakeCrew, OpenHouse, Step


@pytest.mark.parametrize(
    ("script", "error"),
    [
        (["started", "failed no luck today"], "no luck today"),
        (
            ["started", "exit 3"],
            "the worker exited with code 3 without a result; its last words: its last words",
        ),
        (["started", "exit 0"], "the worker exited with code 0 without a result"),
        (["started", "kill"], "the worker was ended by signal 9 (Killed), which this daemon did"),
        (
            ["started", "fill"],
            "of memory, and its crew may use 64.0 MiB (memory)",
        ),
        (
            ["started", "raw {half a line"],
            "the worker broke the protocol: a line is not JSON (key must be a string at line 1 "
            "column 2). It sent: {half a line",
        ),
        (["task a"], "the worker broke the protocol: `task_started` before `started`"),
    ],
)
async def test_the_end_is_told_as_it_was(
    open_house: OpenHouse, crew: MakeCrew, script: list[Step], error: str
) -> None:
    house = await open_house(crew(memory=64 * 2**20))
    kickoff_id = await house.kickoff(*script)
    end = await house.end_of(kickoff_id)
    assert (end.state, end.status) == (ExecutionState.FAILED, Status.ERROR)
    assert error in (end.error or "")
    assert (end.result, end.finished_at is not None) == (None, True)
    last = (await house.events(kickoff_id))[-1]
    assert last.type == "crew_kickoff_failed"
    assert last.data == {"status": "error", "error": end.error}
    assert (await house.end_of(await house.kickoff())).state is ExecutionState.SUCCESS


async def test_a_worker_that_cannot_be_started(open_house: OpenHouse, crew: MakeCrew) -> None:
    house = await open_house(crew("c", "/no/such/program"))
    kickoff_id = await house.kickoff()
    end = await house.end_of(kickoff_id)
    assert end.error == (
        "the worker could not be started: /no/such/program: "
        "[Errno 2] No such file or directory: 'program'"
    )
    assert await house.story(kickoff_id) == ["crew_kickoff_started", "crew_kickoff_failed"]


async def test_a_task_that_was_open_is_not_among_the_completed_ones(house: House) -> None:
    end = await house.end_of(
        await house.kickoff("started", "task a", "done a", "task b", "failed b is too hard")
    )
    assert [task.task_id for task in end.tasks] == ["a"]
    assert (end.completed_tasks, end.current_task) == (1, None)


@pytest.mark.parametrize("store_limits", [StoreLimits(events=3)])
async def test_more_than_can_be_kept_ends_it_honestly(house: House) -> None:
    kickoff_id = await house.kickoff("started", "log 1", "log 2", "log 3", "result ok")
    end = await house.end_of(kickoff_id)
    assert end.error == (
        "what the worker said cannot be kept: events: more than 3 in one execution; end it"
    )
    assert await house.logs(kickoff_id) == ["1", "2"]


async def test_a_result_that_cannot_be_kept_ends_it_honestly(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(executions._TEXTS, "result", 9)
    end = await house.end_of(await house.kickoff("started", "result longer than that"))
    assert (end.status, end.result) == (Status.ERROR, None)
    assert "what the worker said cannot be kept: result: 16 bytes" in (end.error or "")
    assert (await house.end_of(await house.kickoff("started", "result short"))).error is None
    assert house.executor.ends == {("c", Status.ERROR): 1, ("c", Status.COMPLETED): 1}


async def test_one_that_was_ended_behind_its_back_ends_alone(
    house: House, caplog: pytest.LogCaptureFixture
) -> None:
    other, kickoff_id = [
        await house.kickoff("started", "call gate", "hear", "result ok") for _ in range(2)
    ]
    await house.gate.reaches(2)
    subject = subject_of(await house.look(kickoff_id))
    end = ended(subject, failure(Status.STOPPED, "by nobody we know"), datetime.now(UTC))
    await house.store.record(kickoff_id, end)
    house.gate.open()
    assert (await house.end_of(other)).state is ExecutionState.SUCCESS
    assert (await house.end_of(await house.kickoff())).state is ExecutionState.SUCCESS
    assert (await house.look(kickoff_id)).error == "by nobody we know"
    assert f"execution {kickoff_id} was ended by somebody else while it ran" in caplog.text


async def test_the_owner_finds_a_failed_workers_words_in_the_log(
    house: House, caplog: pytest.LogCaptureFixture
) -> None:
    failed = await house.end_of(await house.kickoff("started", "exit 3"))
    await house.comes_to_rest()
    for where, words in (("output", "what it was at"), ("error", "its last words")):
        told = f"execution {failed.id} failed; its worker's standard {where} ended:\n{words}\n"
        assert told in caplog.text
    caplog.clear()
    await house.end_of(await house.kickoff("started", "result ok"))
    await house.comes_to_rest()
    assert "standard" not in caplog.text
