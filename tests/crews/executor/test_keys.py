"""`Idempotency-Key`: one execution for a key, a body and a token, whenever it comes again."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import trio
from pydantic import JsonValue

from daemon.crews.crew import Caller, Input
from daemon.errors import Unavailable, Unprocessable
from daemon.journal.model import State

if TYPE_CHECKING:
    from tests.crews.executor.conftest import House, MakeCrew, OpenHouse

WAITS = ("started", "call gate", "hear", "result ok")
BODY: JsonValue = {"inputs": {"x": 1}}


async def test_the_same_again_is_the_same_execution(house: House) -> None:
    first = await house.kickoff(key="k", body=BODY)
    assert await house.kickoff(key="k", body={"inputs": {"x": 1.0}}) == first
    await house.end_of(first)
    assert await house.kickoff(key="k", body=BODY) == first
    assert (await house.story(first)).count("crew_kickoff_started") == 1
    assert await count(house) == 1


async def test_at_the_same_moment_it_is_one_execution(house: House) -> None:
    ids: list[str] = []

    async def kick_off() -> None:
        ids.append(await house.kickoff(*WAITS, key="k", body=BODY))

    async with trio.open_nursery() as nursery:
        for _ in range(20):
            nursery.start_soon(kick_off)
    assert len(ids) == 20
    assert len(set(ids)) == 1
    assert await count(house) == 1
    house.gate.open()
    await house.end_of(ids[0])
    assert house.gate.most_waiting == 1


async def test_at_the_same_moment_into_the_last_place(
    open_house: OpenHouse, crew: MakeCrew
) -> None:
    """The one that comes second finds no room, and needs none."""
    house = await open_house(crew(max_running=1, queue=0))
    ids: list[str] = []

    async def kick_off() -> None:
        ids.append(await house.kickoff(*WAITS, key="k", body=BODY))

    async with trio.open_nursery() as nursery:
        for _ in range(5):
            nursery.start_soon(kick_off)
    assert len(ids) == 5
    assert len(set(ids)) == 1


async def test_the_same_again_needs_no_room_in_the_queue(
    open_house: OpenHouse, crew: MakeCrew
) -> None:
    house = await open_house(crew(max_running=1, queue=0))
    first = await house.kickoff(*WAITS, key="k", body=BODY)
    with pytest.raises(Unavailable):
        await house.kickoff(key="other", body=BODY)
    assert await house.kickoff(*WAITS, key="k", body=BODY) == first


async def test_another_body_is_refused_and_nothing_is_created(house: House) -> None:
    await house.kickoff(key="k", body=BODY)
    with pytest.raises(Unprocessable, match="Idempotency-Key"):
        await house.kickoff(key="k", body={"inputs": {"x": 2}})
    assert await count(house) == 1


async def test_a_refused_kickoff_spends_no_key(open_house: OpenHouse, crew: MakeCrew) -> None:
    house = await open_house(crew(inputs=(Input("topic"),), max_running=1, queue=0))
    running = await house.kickoff(*WAITS, inputs={"topic": "tea"})
    with pytest.raises(Unprocessable, match="topic"):
        await house.kickoff(key="k", body={"inputs": {}})
    with pytest.raises(Unavailable):
        await house.kickoff(inputs={"topic": "tea"}, key="k", body=BODY)
    house.gate.open()
    await house.end_of(running)
    kickoff_id = await house.kickoff(inputs={"topic": "tea"}, key="k", body={"other": "body"})
    assert (await house.end_of(kickoff_id)).state is State.SUCCESS


async def test_tokens_and_crews_do_not_share_keys(open_house: OpenHouse, crew: MakeCrew) -> None:
    house = await open_house(crew(), crew("other"))
    ids = [
        await house.kickoff(key="k", body=BODY),
        await house.kickoff(key="k", body=BODY, user="an"),
        await house.kickoff(key="k", body={"another": "body"}, user="bo"),
        await house.kickoff(key="k", body=BODY, crew="other"),
    ]
    assert len(set(ids)) == 4


async def test_a_key_outlives_a_restart(open_house: OpenHouse, crew: MakeCrew) -> None:
    house = await open_house()
    first = await house.kickoff(*WAITS, key="k", body=BODY)
    await house.gate.reaches(1)
    await house.kill()
    house = await open_house()
    assert await house.kickoff(*WAITS, key="k", body=BODY) == first


async def test_without_a_key_the_same_body_is_run_each_time(house: House) -> None:
    assert await house.kickoff(body=BODY) != await house.kickoff(body=BODY)


async def count(house: House) -> int:
    page = await house.executor.executions(Caller("c"), state=None, limit=100, cursor=None)
    return len(page.executions)
