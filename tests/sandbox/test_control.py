from __future__ import annotations

from typing import TYPE_CHECKING, Any

import httpx
import pytest

from smartlinkd.sandbox.faults import FAULTS
from smartlinkd.sandbox.running import Sandbox

if TYPE_CHECKING:
    from tests.sandbox.conftest import Portal


class Control:
    def __init__(self, sandbox: Sandbox, client: httpx.AsyncClient) -> None:
        self._base = f"{sandbox.portal_url}/_sandbox"
        self._client = client

    async def get(self, path: str) -> Any:
        return (await self._client.get(self._base + path)).json()

    async def post(self, path: str, body: Any = None) -> httpx.Response:
        return await self._client.post(self._base + path, json=body)

    async def delete(self, path: str) -> Any:
        return (await self._client.delete(self._base + path)).json()


@pytest.fixture
async def control(sandbox: Sandbox, client: httpx.AsyncClient) -> Control:
    return Control(sandbox, client)


async def test_a_fault_is_switched_on_for_so_many_times(control: Control, portal: Portal) -> None:
    answer = await control.post("/faults", {"fault": "submit_500", "times": 1})
    call = portal.call(portal.product(1))

    statuses = [(await portal.post(call)).status_code for _ in range(2)]

    assert answer.json()["armed"] == [{"fault": "submit_500", "left": 1, "account": None}]
    assert statuses == [500, 200]


async def test_a_fault_is_switched_on_for_one_account(control: Control, portal: Portal) -> None:
    await control.post("/faults", {"fault": "submit_500", "times": None, "account": "1"})

    assert (await portal.post(portal.call(portal.product(1)))).status_code == 200


async def test_faults_are_cleared(control: Control, portal: Portal) -> None:
    await control.post("/faults", {"fault": "submit_500"})
    await control.delete("/faults")

    assert (await portal.post(portal.call(portal.product(1)))).status_code == 200


async def test_the_list_of_faults(control: Control) -> None:
    listed = (await control.get("/faults"))["faults"]

    assert [row["fault"] for row in listed] == [fault.name for fault in FAULTS]
    assert {"item", "account", "shows"} <= set(listed[0])


@pytest.mark.parametrize(
    ("path", "body", "named"),
    [
        ("/faults", {"fault": "nonesuch"}, "fault"),
        ("/faults", {"fault": "page_500", "times": 0}, "times"),
        ("/faults", {"fault": "page_500", "time": 1}, "time"),
        ("/faults", [], "body"),
        ("/delay", {"submit_ms": -1}, "submit_ms"),
        ("/delay", {"submit_ms": 10**9}, "submit_ms"),
    ],
)
async def test_a_wrong_request_is_told_what_is_wrong(
    control: Control, path: str, body: Any, named: str
) -> None:
    answer = await control.post(path, body)

    assert answer.status_code == 400
    assert answer.json()["error"].startswith(f"{named}:")


async def test_a_delay_stays_when_it_is_not_named(control: Control) -> None:
    await control.post("/delay", {"submit_ms": 5, "product_ms": 6})

    answer = await control.post("/delay", {"product_ms": 7})

    assert answer.json() == {"ok": True, "submit_ms": 5, "product_ms": 7}


async def test_the_log_tells_of_a_submit(control: Control, portal: Portal) -> None:
    links = [portal.product(1), portal.product(2)]
    await portal.rows(*links, subId2="fb")

    log = await control.get("/log")

    (submit,) = log["submits"]
    assert submit["account"] == portal.account
    assert (submit["links"], submit["originals"]) == (2, links)
    assert submit["sub_ids"] == [["", "fb", "", "", ""]]
    assert submit["ended"] >= submit["started"] >= 0
    assert submit["outcome"] == "rows"
    assert log["accounts"] == {portal.account: {"submits": 1, "links": 2, "overlapping_submits": 1}}
    assert (log["counters"]["submit"], log["counters"]["links"]) == (1, 2)


async def test_the_log_names_the_fault(control: Control, portal: Portal) -> None:
    await portal.post(portal.call(portal.product(900_000_104)))

    log = await control.get("/log")

    assert log["submits"][0]["outcome"] == "submit_500"
    assert log["counters"]["fault submit_500"] == 1


@pytest.mark.parametrize(
    ("last", "items"), [("2", [3, 4]), ("0", []), ("-1", []), ("x", [1, 2, 3, 4])]
)
async def test_the_log_shows_the_last_submits(
    control: Control, portal: Portal, last: str, items: list[int]
) -> None:
    for item in (1, 2, 3, 4):
        await portal.rows(portal.product(item))

    submits = (await control.get(f"/log?last={last}"))["submits"]

    assert [submit["originals"] for submit in submits] == [[portal.product(i)] for i in items]


async def test_the_log_holds_no_session(control: Control, portal: Portal) -> None:
    await portal.rows(portal.product(1))

    log = str(await control.get("/log"))

    assert not [value for name, value in portal.cookies.items() if name != "SPC_U" and value in log]


async def test_a_reset_forgets(control: Control, portal: Portal) -> None:
    (row,) = await portal.rows(portal.product(1))
    await control.post("/faults", {"fault": "submit_500"})
    await control.post("/delay", {"submit_ms": 5})
    await control.post("/reset")

    log = await control.get("/log")
    assert (log["counters"], log["accounts"], log["submits"], log["armed"]) == ({}, {}, [], [])
    assert portal.sandbox.state.delays.submit_ms == 0
    assert (await portal.client.get(row["shortLink"])).status_code == 302
