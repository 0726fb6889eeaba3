"""Calls and pages over HTTP, and everything that can come in their place."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import httpx
import pytest
import trio

from smartlinkd.sandbox.server import Sandbox

if TYPE_CHECKING:
    from tests.sandbox.conftest import Portal


HUMAN_CHECK = 90309999

ANSWERS: dict[str, tuple[int, dict[str, Any]]] = {
    "401": (401, {"is_login": False}),
    "403": (403, {"data": None}),
    "429": (429, {"data": None}),
    "500": (500, {"data": None}),
    "logged_out": (200, {"is_login": False, "error": HUMAN_CHECK}),
    "logged_out_numeric": (200, {"2": False, "5": HUMAN_CHECK}),
    "human_check": (200, {"is_login": True, "error": HUMAN_CHECK}),
    "human_check_bare": (200, {"error": HUMAN_CHECK}),
    "null": (200, {"data": None}),
}
REDIRECTS = {"login_redirect": "/buyer/login", "captcha": "/verify/captcha"}


async def submit(portal: Portal, item_id: int = 1) -> httpx.Response:
    return await portal.post(portal.call(portal.product(item_id), portal.product(2)))


async def read(portal: Portal, item_id: int = 1) -> httpx.Response:
    return await portal.get(f"/api/v3/offer/product?item_id={item_id}")


CALLS = {"submit": submit, "product": read}


async def met(portal: Portal, name: str) -> httpx.Response:
    """The answer of the call that the fault is for, with the fault switched on."""
    portal.sandbox.state.faults.arm(name, times=1)
    return await CALLS[name.partition("_")[0]](portal)


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("play", ANSWERS)
async def test_call_fault_answers_as_named(portal: Portal, call: str, play: str) -> None:
    answer = await met(portal, f"{call}_{play}")

    status, body = ANSWERS[play]
    assert answer.status_code == status
    assert body.items() <= answer.json().items()


async def test_fault_is_met_by_magic_item_or_account(portal: Portal) -> None:
    for item, account in ((900_000_104, portal.account), (1, "990000104")):
        met_by = type(portal)(portal.sandbox, portal.client, account)
        assert (await submit(met_by, item)).status_code == 500


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("play", REDIRECTS)
async def test_redirect_fault_redirects(portal: Portal, call: str, play: str) -> None:
    answer = await met(portal, f"{call}_{play}")

    assert answer.headers["location"] == portal.sandbox.shop_url + REDIRECTS[play]


@pytest.mark.parametrize("call", CALLS)
async def test_broken_answers_are_broken(portal: Portal, call: str) -> None:
    assert "password" in (await met(portal, f"{call}_html")).text
    with pytest.raises(ValueError, match="line 1"):
        (await met(portal, f"{call}_truncated")).json()
    with pytest.raises(httpx.ReadError):
        await met(portal, f"{call}_reset")
    with pytest.raises((httpx.ReadError, httpx.RemoteProtocolError)):
        await met(portal, f"{call}_cut")
    assert (await CALLS[call](portal)).status_code == 200


@pytest.mark.parametrize("call", CALLS)
async def test_slow_answer_comes_after_the_hold(portal: Portal, call: str) -> None:
    begin = trio.current_time()

    answer = await met(portal, f"{call}_slow")

    assert answer.status_code == 200
    assert trio.current_time() - begin >= portal.sandbox.state.hold


async def test_faults_of_a_whole_submit(portal: Portal) -> None:
    refused = (await met(portal, "submit_graphql_error")).json()
    assert (refused["data"], bool(refused["errors"][0]["extensions"]["code"])) == (None, True)
    null = (await met(portal, "submit_null_rows")).json()
    assert null == {"data": {"batchCustomLink": None}}
    short = (await met(portal, "submit_short_rows")).json()
    assert len(short["data"]["batchCustomLink"]) == 1


@pytest.mark.parametrize("item_id", ["", "x", "٣"])
async def test_product_data_of_no_item_is_null(portal: Portal, item_id: str) -> None:
    answer = (await portal.get(f"/api/v3/offer/product?item_id={item_id}")).json()

    assert answer["code"] != 0
    assert answer["data"] is None


PAGES = ["/offer/custom_link", "/offer/product_offer/23456789012"]


@pytest.mark.parametrize("path", PAGES)
async def test_page_of_a_signed_in_account_has_the_form(portal: Portal, path: str) -> None:
    answer = await portal.get(path)

    assert answer.status_code == 200
    assert 'data-behaviour=""' in answer.text


@pytest.mark.parametrize("path", PAGES)
async def test_page_without_a_session_is_the_login_page(portal: Portal, path: str) -> None:
    portal.cookies["SPC_EC"] = "expired"

    answer = await portal.get(path)

    assert answer.status_code == 302
    assert answer.headers["location"].startswith(f"{portal.sandbox.shop_url}/buyer/login?next=http")


@pytest.mark.parametrize(
    ("fault", "status", "shows"),
    [
        ("page_login_redirect", 302, "/buyer/login"),
        ("page_captcha", 302, "/verify/captcha"),
        ("page_traffic", 302, "/verify/traffic"),
        ("session_lost", 302, "/buyer/login"),
        ("human_check", 302, "/verify/captcha"),
        ("page_500", 500, "500"),
        ("page_slow", 200, 'data-behaviour="slow"'),
        ("page_check_in_json", 403, f'"error": {HUMAN_CHECK}'),
        ("page_hang", 200, 'data-behaviour="hang"'),
        ("session_lost_softly", 200, 'data-behaviour="login_script"'),
        ("account_frozen", 200, 'data-behaviour="frozen"'),
    ],
)
async def test_page_fault_shows_in_its_answer(
    portal: Portal, fault: str, status: int, shows: str
) -> None:
    portal.sandbox.state.faults.arm(fault, times=1)

    answer = await portal.get("/offer/custom_link")

    assert answer.status_code == status
    if status == 302:
        location = answer.headers["location"]
        assert httpx.URL(location).path == shows
        assert (await portal.client.get(location)).status_code == 200
    else:
        assert shows in answer.text


async def test_page_reset_breaks_the_connection(portal: Portal) -> None:
    portal.sandbox.state.faults.arm("page_reset")

    with pytest.raises(httpx.ReadError):
        await portal.get("/offer/custom_link")


@pytest.mark.parametrize(
    ("fault", "status", "body"),
    [
        ("session_lost", 401, {"is_login": False}),
        ("session_lost_softly", 200, {"is_login": False, "error": HUMAN_CHECK}),
        ("human_check", 200, {"is_login": True, "error": HUMAN_CHECK}),
        ("account_frozen", 200, {"data": None}),
    ],
)
@pytest.mark.parametrize("call", CALLS)
async def test_session_fault_is_seen_by_every_call(
    portal: Portal, call: str, fault: str, status: int, body: dict[str, Any]
) -> None:
    portal.sandbox.state.faults.arm(fault)

    answer = await CALLS[call](portal)

    assert answer.status_code == status
    assert body.items() <= answer.json().items()


async def test_lost_session_redirects_nothing(portal: Portal) -> None:
    portal.sandbox.state.faults.arm("session_lost", times=1)
    await submit(portal)

    assert not portal.sandbox.state.submits.entries
    assert (await submit(portal)).json()["data"]


async def test_other_files_are_not_served(sandbox: Sandbox, client: httpx.AsyncClient) -> None:
    answer = await client.get(f"{sandbox.portal_url}/static/..%2flogin.html")

    assert answer.status_code == 404


# The control endpoints


class Control:
    def __init__(self, sandbox: Sandbox, client: httpx.AsyncClient) -> None:
        self._base = f"{sandbox.portal_url}/_sandbox"
        self._client = client

    async def get(self, path: str) -> Any:
        return (await self._client.get(self._base + path)).json()

    async def post(self, path: str, body: Any = None) -> httpx.Response:
        return await self._client.post(self._base + path, json=body)

    async def delete(self, path: str) -> None:
        await self._client.delete(self._base + path)


@pytest.fixture
async def control(sandbox: Sandbox, client: httpx.AsyncClient) -> Control:
    return Control(sandbox, client)


async def test_fault_is_armed_for_a_number_of_times_or_until_deleted(
    control: Control, portal: Portal
) -> None:
    await control.post("/faults", {"fault": "submit_500", "times": 2})
    call = portal.call(portal.product(1))

    statuses = [(await portal.post(call)).status_code for _ in range(3)]
    await control.post("/faults", {"fault": "submit_500"})
    await control.delete("/faults")
    statuses.append((await portal.post(call)).status_code)

    assert statuses == [500, 500, 200, 200]


@pytest.mark.parametrize(
    ("path", "body", "named"),
    [
        ("/faults", {"fault": "nonesuch"}, "fault"),
        ("/faults", {"fault": "page_500", "times": 0}, "times"),
        ("/faults", {"fault": "page_500", "time": 1}, "time"),
        ("/faults", [], "body"),
        ("/delay", {"product_ms": -1}, "product_ms"),
        ("/delay", {"submit_ms": 10**9}, "submit_ms"),
    ],
)
async def test_wrong_request_is_refused_with_the_wrong_field(
    control: Control, path: str, body: Any, named: str
) -> None:
    answer = await control.post(path, body)

    assert answer.status_code == 400
    assert answer.json()["error"].startswith(named)


async def test_delay_stays_when_it_is_not_named(control: Control) -> None:
    await control.post("/delay", {"submit_ms": 5, "product_ms": 6})

    answer = await control.post("/delay", {"product_ms": 7})

    assert answer.json() == {"ok": True, "submit_ms": 5, "product_ms": 7}


async def test_log_shows_a_submit(control: Control, portal: Portal) -> None:
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


@pytest.mark.parametrize(
    ("last", "items"), [("2", [3, 4]), ("0", []), ("-1", []), ("x", [1, 2, 3, 4])]
)
async def test_log_shows_the_last_submits(
    control: Control, portal: Portal, last: str, items: list[int]
) -> None:
    for item in (1, 2, 3, 4):
        await portal.rows(portal.product(item))

    submits = (await control.get(f"/log?last={last}"))["submits"]

    assert [submit["originals"] for submit in submits] == [[portal.product(i)] for i in items]


async def test_log_holds_no_session(control: Control, portal: Portal) -> None:
    await portal.rows(portal.product(1))

    log = str(await control.get("/log"))

    assert not [value for name, value in portal.cookies.items() if name != "SPC_U" and value in log]
