"""A disk that is full when a worker says much in one go: nothing is lost, nothing comes twice."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import trio

from smartlinkd.errors import Invalid
from smartlinkd.store.model import ExecutionState, Status
from tests.crews.executor.test_run_together import DONE, RESULT, STARTED, TASK, at_once, log

if TYPE_CHECKING:
    from tests.crews.executor.conftest import House
    from tests.crews.executor.trouble.conftest import Disk

SAID = (STARTED, TASK, log("1"), log("2"), DONE)
STORY = ["crew_kickoff_started", "task_started", "log", "log", "task_completed"]


async def has_room_soon(disk: Disk) -> None:
    await disk.has_refused(disk.refused + 2)
    disk.refuses_record(number=0, times=0)


@pytest.mark.parametrize("script", [(at_once(*SAID, RESULT),), (at_once(*SAID), "result ok")])
async def test_it_is_held_up_and_told_once(
    disk: Disk, house: House, script: tuple[str, ...]
) -> None:
    disk.refuses_record(number=1, times=3)
    end = await house.end_of(await house.kickoff(*script))
    assert disk.refused == 3
    assert (end.state, end.result, end.completed_tasks) == (ExecutionState.SUCCESS, "ok", 1)
    assert await house.story(end.id) == [*STORY, "crew_kickoff_completed"]


async def test_a_stop_meanwhile_leaves_the_result_and_what_came_with_it(
    disk: Disk, house: House
) -> None:
    disk.refuses_record(number=1, times=1_000_000)
    kickoff_id = await house.kickoff(at_once(*SAID, RESULT), "hang")
    await disk.has_refused(1)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(has_room_soon, disk)
        with pytest.raises(Invalid, match="ended by itself before it was stopped"):
            await house.stop_one(kickoff_id)
    end = await house.look(kickoff_id)
    assert (end.status, end.result) == (Status.COMPLETED, "ok")
    assert await house.story(kickoff_id) == [*STORY, "crew_kickoff_completed"]
