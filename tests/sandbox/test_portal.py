"""Calls and pages over HTTP, and everything that can come in their place."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import httpx
import pytest

from smartlinkd.sandbox.faults import FAULTS

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
    return await portal.send("GET", f"/api/v3/offer/product?item_id={item_id}")


CALLS = {"submit": submit, "product": read}


async def met(portal: Portal, name: str) -> httpx.Response:
    """The answer of the call that the fault is for, with the fault switched on."""
    portal.sandbox.arm(name, times=1)
    return await CALLS[name.partition("_")[0]](portal)


def test_faults_have_names_and_magic_items_of_their_own() -> None:
    names = [fault.name for fault in FAULTS]
    items = [fault.item for fault in FAULTS if fault.item]

    assert len(names) == len(set(names))
    assert len(items) == len(set(items))


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("play", ANSWERS)
async def test_call_fault_answers_as_named(portal: Portal, call: str, play: str) -> None:
    answer = await met(portal, f"{call}_{play}")

    status, body = ANSWERS[play]
    assert answer.status_code == status
    assert body.items() <= answer.json().items()


async def test_fault_is_met_by_magic_item(portal: Portal) -> None:
    assert (await submit(portal, 900_000_104)).status_code == 500


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("play", REDIRECTS)
async def test_redirect_fault_redirects(portal: Portal, call: str, play: str) -> None:
    answer = await met(portal, f"{call}_{play}")

    address = portal.sandbox.origins.shop + REDIRECTS[play]
    assert answer.headers["location"].startswith(f"{address}?next=http")


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


async def test_faults_of_a_whole_submit(portal: Portal) -> None:
    refused = (await met(portal, "submit_graphql_error")).json()
    assert (refused["data"], bool(refused["errors"][0]["extensions"]["code"])) == (None, True)
    null = (await met(portal, "submit_null_rows")).json()
    assert null == {"data": {"batchCustomLink": None}}
    short = (await met(portal, "submit_short_rows")).json()
    assert len(short["data"]["batchCustomLink"]) == 1


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
    portal.sandbox.arm(fault, times=1)

    answer = await portal.send("GET", "/offer/custom_link")

    assert answer.status_code == status
    if status == 302:
        location = answer.headers["location"]
        assert httpx.URL(location).path == shows
        assert (await portal.client.get(location)).status_code == 200
    else:
        assert shows in answer.text


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
    portal.sandbox.arm(fault)

    answer = await CALLS[call](portal)

    assert answer.status_code == status
    assert body.items() <= answer.json().items()


async def test_expired_session_gets_the_login_page_and_no_links(portal: Portal) -> None:
    portal.cookies["SPC_EC"] = "expired"

    page = await portal.send("GET", "/offer/custom_link")
    answer = await submit(portal)

    assert page.headers["location"].startswith(
        f"{portal.sandbox.origins.shop}/buyer/login?next=http"
    )
    assert (answer.status_code, answer.json()["is_login"]) == (401, False)


# The control endpoints


async def test_fault_is_armed_for_a_number_of_times_or_until_deleted(portal: Portal) -> None:
    await portal.send("POST", "/_sandbox/faults", json={"fault": "submit_500", "times": 2})
    statuses = [(await submit(portal)).status_code for _ in range(3)]
    await portal.send("POST", "/_sandbox/faults", json={"fault": "submit_500"})
    await portal.send("DELETE", "/_sandbox/faults")
    statuses.append((await submit(portal)).status_code)

    assert statuses == [500, 500, 200, 200]


@pytest.mark.parametrize(
    ("path", "body", "named"),
    [
        ("faults", {"fault": "nonesuch"}, "fault"),
        ("faults", {"fault": "page_500", "times": 0}, "times"),
        ("faults", {"fault": "page_500", "time": 1}, "time"),
        ("faults", [], "body"),
        ("delay", {"product_ms": -1}, "product_ms"),
        ("delay", {"submit_ms": 10**9}, "submit_ms"),
    ],
)
async def test_wrong_request_is_refused_with_the_wrong_field(
    portal: Portal, path: str, body: Any, named: str
) -> None:
    answer = await portal.send("POST", f"/_sandbox/{path}", json=body)

    assert answer.status_code == 400
    assert answer.json()["error"].startswith(named)


async def test_log_shows_a_submit_and_no_session(portal: Portal) -> None:
    links = [portal.product(1), portal.product(2)]
    await portal.rows(*links, subId2="fb")

    answer = await portal.send("GET", "/_sandbox/log")

    log = answer.json()
    (shown,) = log["submits"]
    assert shown["account"] == portal.account
    assert (shown["originals"], shown["sub_ids"]) == (links, [["", "fb", "", "", ""]])
    assert log["accounts"] == {
        portal.account: {"submits": 1, "links": 2, "overlapping": 1, "running": 0}
    }
    assert log["counters"]["submit"] == 1
    secret = [value for name, value in portal.cookies.items() if name != "SPC_U"]
    assert not [value for value in secret if value in answer.text]
