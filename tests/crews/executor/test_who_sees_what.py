"""Who sees what: a user's own, and nothing that would tell of another's."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

import pytest

from smartlinkd.crews.executor import Executor
from smartlinkd.crews.model import CrewUser, Feedback
from smartlinkd.errors import Invalid, NotFound
from smartlinkd.store.model import ExecutionState

if TYPE_CHECKING:
    from tests.crews.executor.conftest import House, MakeCrew, OpenHouse

HANG = 20.0
WAITS = ("started", "call gate", "hear", "result ok")


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
        caller, each, Feedback("a", "x", True), webhooks=()
    ),
}


@pytest.mark.parametrize("question", QUESTIONS)
async def test_another_ones_execution_is_not_to_be_found(
    open_house: OpenHouse, crew: MakeCrew, question: str
) -> None:
    house = await open_house(crew(), crew("other"))
    kickoff_id = await house.kickoff(*WAITS, user="an")
    await house.gate.reaches(1)
    before = await house.look(kickoff_id)
    refusals = set()
    for stranger in (
        CrewUser("c", "bo"),
        CrewUser("other"),
        CrewUser("other", "an"),
        CrewUser("none"),
    ):
        for each in (kickoff_id, "00000000-0000-4000-8000-000000000000"):
            with pytest.raises(NotFound) as refusal:
                await QUESTIONS[question](house.executor, stranger, each)
            refusals.add(str(refusal.value))
    assert len(refusals) == 1
    assert await house.look(kickoff_id) == before
    assert house.executor.followers == 0


@pytest.mark.parametrize("question", QUESTIONS)
async def test_ones_own_is_and_the_organization_sees_all(house: House, question: str) -> None:
    for asker in (CrewUser("c", "an"), CrewUser("c")):
        kickoff_id = await house.kickoff(*WAITS, user="an")
        await house.gate.reaches(1)
        if question == "resume":
            with pytest.raises(Invalid, match="not waiting"):
                await QUESTIONS[question](house.executor, asker, kickoff_id)
        else:
            await QUESTIONS[question](house.executor, asker, kickoff_id)
        house.gate.open()
        await house.executor.wait(asker, kickoff_id, HANG)
        house.gate.close()


async def test_a_users_list_has_its_own(house: House) -> None:
    ids = {user: await house.kickoff(*WAITS, user=user) for user in ("an", "bo", "")}
    assert await listed(house, CrewUser("c", "an")) == [ids["an"]]
    assert await listed(house, CrewUser("c", "bo")) == [ids["bo"]]
    assert await listed(house, CrewUser("c", "cy")) == []
    assert await listed(house, CrewUser("c")) == [ids[""], ids["bo"], ids["an"]]
    assert await listed(house, CrewUser("other")) == []
    await house.gate.reaches(2)
    assert await listed(house, CrewUser("c"), ExecutionState.PENDING) == [ids[""]]


async def test_a_list_goes_on_where_it_ended_and_for_the_same_caller(house: House) -> None:
    for _ in range(3):
        await house.kickoff(user="an")
    ask = house.executor.executions
    first = await ask(CrewUser("c", "an"), state=None, limit=2, cursor=None)
    assert first.next_cursor is not None
    second = await ask(CrewUser("c", "an"), state=None, limit=2, cursor=first.next_cursor)
    assert (len(first.executions), len(second.executions), second.next_cursor) == (2, 1, None)
    with pytest.raises(Invalid, match="cursor"):
        await ask(CrewUser("c", "bo"), state=None, limit=2, cursor=first.next_cursor)


async def listed(house: House, caller: CrewUser, state: ExecutionState | None = None) -> list[str]:
    page = await house.executor.executions(caller, state=state, limit=100, cursor=None)
    return [each.id for each in page.executions]
