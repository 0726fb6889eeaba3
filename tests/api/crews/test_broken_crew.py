"""A crew whose configuration is wrong: it cannot run, and what it ran before stays readable.

| promised | test |
|---|---|
| who held a token still gets an answer | `test_it_says_that_it_cannot_run[…]` |
| /inputs and / are 503 with a text | `test_it_says_that_it_cannot_run[…]` |
| /kickoff is 503 with a text | `test_it_cannot_be_kicked_off` |
| what it ran before stays readable | `test_what_it_ran_stays_readable` |
| a user of it still sees only own executions | `test_a_user_of_it_sees_own_executions` |
| a broken default crew | `test_it_may_be_the_default` |
"""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

import pytest

from smartlinkd.crews.catalog.catalog import Catalog
from smartlinkd.crews.executor import Executor
from smartlinkd.errors import Unavailable
from smartlinkd.store.model import Status

if TYPE_CHECKING:
    from tests.api.crews.conftest import House, OpenHouse, StandIn


@pytest.mark.parametrize("path", ["/", "/inputs"])
async def test_it_says_that_it_cannot_run(house: House, path: str) -> None:
    answer = await house.main.get(f"/crews/gamma{path}", house.tokens["gamma"])
    assert answer.status_code == 503
    assert int(answer.headers["Retry-After"]) >= 1
    assert answer.json()["error"] == "Service Unavailable"
    assert "gamma" in answer.json()["message"]


async def test_it_cannot_be_kicked_off(house: House, executor: StandIn) -> None:
    executor.refusal = Unavailable("crew gamma cannot run", retry_after=60)
    answer = await house.main.post("/crews/gamma/kickoff", house.tokens["gamma"], {})
    assert (answer.status_code, answer.headers["Retry-After"]) == (503, "60")
    assert answer.json()["message"] == "crew gamma cannot run"


async def test_what_it_ran_stays_readable(house: House, executor: StandIn) -> None:
    known = executor.add("gamma", status=Status.COMPLETED, result="done")
    executor.happen(known.id, "crew_kickoff_completed")
    token = house.tokens["gamma"]
    status = await house.main.get(f"/crews/gamma/status/{known.id}", token)
    assert status.json()["result"] == "done"
    listed = await house.main.get("/crews/gamma/executions", token)
    assert [each["kickoff_id"] for each in listed.json()["executions"]] == [known.id]
    told = await house.main.get(f"/crews/gamma/events/{known.id}", token)
    assert "crew_kickoff_completed" in told.text


async def test_a_user_of_it_sees_own_executions(house: House, executor: StandIn) -> None:
    token = (await house.crew_tokens.show("gamma", "ann")).get_secret_value()
    own, other = executor.add("gamma", "ann"), executor.add("gamma", "")
    statuses = [
        (await house.main.get(f"/crews/gamma/status/{each.id}", token)).status_code
        for each in (own, other)
    ]
    assert statuses == [200, 404]


async def test_it_may_be_the_default(
    open_house: OpenHouse, executor: StandIn, crews: Catalog
) -> None:
    catalog = Catalog(crews=crews.crews, broken=crews.broken, default="gamma")
    async with open_house(cast(Executor, executor), catalog=catalog) as house:
        answer = await house.main.get("/inputs", house.tokens["gamma"])
    assert answer.status_code == 503
