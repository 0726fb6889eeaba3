"""`Idempotency-Key`: one execution for a key, a body and a token, whenever it comes again."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import trio
from pydantic import JsonValue
from trio.testing import wait_all_tasks_blocked

from smartlinkd.crews.catalog.catalog import Catalog
from smartlinkd.crews.model import BrokenCrew, CrewUser, Input
from smartlinkd.crews.recorder import Recorder
from smartlinkd.crews.scheduler import Scheduler
from smartlinkd.errors import Refused, Unavailable, Unprocessable
from smartlinkd.store.model import ExecutionState

if TYPE_CHECKING:
    from tests.crews.executor.conftest import House, MakeCrew, OpenHouse

WAITS = ("started", "call gate", "hear", "result ok")
BODY: JsonValue = {"inputs": {"x": 1}}
BROKEN = Catalog({}, (BrokenCrew("c", (), ()),))
HANG = 20.0  # seconds; what takes that long hangs


async def test_the_same_again_is_the_same_execution(house: House) -> None:
    first = await house.kickoff(key="k", body=BODY)
    assert await house.kickoff(key="k", body={"inputs": {"x": 1.0}}) == first
    await house.end_of(first)
    assert await house.kickoff(key="k", body=BODY) == first
    assert (await house.story(first)).count("crew_kickoff_started") == 1
    assert await count(house) == 1


async def test_what_a_key_stands_for_can_be_asked(house: House) -> None:
    async def ask(key: str | None, body: JsonValue = BODY, user: str = "") -> str | None:
        asker = CrewUser("c", user)
        return await house.executor.created_by(asker, idempotency_key=key, body=body)

    first = await house.kickoff(key="k", body=BODY)
    assert await ask("k") == first
    assert [await ask("other"), await ask(None), await ask("k", user="an")] == [None] * 3
    with pytest.raises(Unprocessable):
        await ask("k", {})


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


@pytest.mark.parametrize("now", ["broken", "gone", "wants more"])
async def test_the_same_again_needs_no_crew_that_would_take_it(
    open_house: OpenHouse, crew: MakeCrew, now: str
) -> None:
    house = await open_house(crew())
    first = await house.kickoff(key="k", body=BODY)
    catalogs = {
        "broken": BROKEN,
        "gone": Catalog({}),
        "wants more": Catalog({"c": crew(inputs=(Input("topic"),))}),
    }
    await house.executor.apply_catalog(catalogs[now])
    with pytest.raises(Refused):
        await house.kickoff(key="other", body=BODY)
    with pytest.raises(Unprocessable, match="Idempotency-Key"):
        await house.kickoff(key="k", body={"inputs": {"x": 2}})
    assert await house.kickoff(key="k", body=BODY) == first


async def test_the_same_again_on_its_way_in_as_its_crew_breaks(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = await house.kickoff(key="k", body=BODY)
    enqueue, may_enter, ids = Scheduler._enqueue, trio.Event(), list[str]()

    async def enter_late(*arguments: Any) -> str:
        await may_enter.wait()
        return await enqueue(*arguments)

    async def kick_off() -> None:
        ids.append(await house.kickoff(key="k", body=BODY))

    monkeypatch.setattr(Scheduler, "_enqueue", enter_late)
    async with trio.open_nursery() as clients:
        clients.start_soon(kick_off)
        await wait_all_tasks_blocked()
        clients.start_soon(house.executor.apply_catalog, BROKEN)
        await wait_all_tasks_blocked()
        may_enter.set()
    assert ids == [first]


async def test_the_same_again_does_not_wait_for_those_at_the_door(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a restart the line may be taken up for a while, and just then clients ask again."""
    first = await house.kickoff(key="k", body=BODY)

    async def enter_never(*_: object) -> None:
        await trio.sleep_forever()

    monkeypatch.setattr(Recorder, "create", enter_never)
    async with trio.open_nursery() as clients:
        clients.start_soon(house.kickoff)
        await wait_all_tasks_blocked()
        with trio.fail_after(HANG):
            assert await house.kickoff(key="k", body=BODY) == first
        clients.cancel_scope.cancel()


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
    assert (await house.end_of(kickoff_id)).state is ExecutionState.SUCCESS


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
    page = await house.executor.executions(CrewUser("c"), state=None, limit=100, cursor=None)
    return len(page.executions)
