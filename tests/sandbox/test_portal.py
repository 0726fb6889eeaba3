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
    "403": (403, {"data": None}),
    "429": (429, {"data": None}),
    "logged_out_numeric": (200, {"2": False, "5": HUMAN_CHECK}),
    "human_check_bare": (200, {"error": HUMAN_CHECK}),
}
"""The answers that no test of the daemon meets."""


async def submit(portal: Portal) -> httpx.Response:
    return await portal.post(portal.call(portal.product(1)))


def test_faults_have_names_and_magic_items_of_their_own() -> None:
    names = [fault.name for fault in FAULTS]
    items = [fault.item for fault in FAULTS if fault.item]

    assert len(names) == len(set(names))
    assert len(items) == len(set(items))


@pytest.mark.parametrize("play", ANSWERS)
async def test_call_fault_answers_as_named(portal: Portal, play: str) -> None:
    portal.sandbox.arm(f"submit_{play}", times=1)

    answer = await submit(portal)

    status, body = ANSWERS[play]
    assert answer.status_code == status
    assert body.items() <= answer.json().items()


async def test_page_fault_shows_in_its_answer(portal: Portal) -> None:
    portal.sandbox.arm("page_traffic", times=1)
    portal.sandbox.arm("page_check_in_json", times=1)

    led_away, checked = [await portal.send("GET", "/offer/custom_link") for _ in range(2)]

    location = led_away.headers["location"]
    assert httpx.URL(location).path == "/verify/traffic"
    assert (await portal.client.get(location)).status_code == 200
    assert (checked.status_code, checked.json()["error"]) == (403, HUMAN_CHECK)


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
