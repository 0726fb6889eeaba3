"""`convert_links`, called by the example crew, down to the portal and back, through a Chromium."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.e2e.conftest import Daemon, Portal, Running
    from tests.e2e.crews.conftest import Meet

pytestmark = pytest.mark.chromium

EXAMPLE = {
    "runner": "command",
    "command": [sys.executable, "-m", "smartlinkd.crews.deal_post"],
    "inputs": ["links"],
    "grace": 1,
}
GRANTED = {**EXAMPLE, "name": "deal-post", "tools": ["convert_links"]}


@pytest.fixture(scope="module")
def writing(running: Running) -> Iterator[Daemon]:
    """A daemon with the example crew, once with its tool and once without."""
    with running(crews=[GRANTED, {**EXAMPLE, "name": "no-tools"}]) as daemon:
        daemon.wait_for_browser()
        yield daemon


async def test_without_a_cookie_there_is_no_post(
    running: Running, portal: Portal, meet: Meet
) -> None:
    with running(crews=[GRANTED]) as daemon:
        crew = await meet(daemon, "deal-post")
        refused = await crew.ended(await crew.kick_off({"links": [portal.link(portal.item())]}))
    assert (refused["state"], refused["status"]) == ("FAILED", "error")
    assert "no affiliate cookie is stored" in refused["error"]
    assert refused["result"] == refused["error"]


async def test_with_a_cookie_there_is_one(writing: Daemon, portal: Portal, meet: Meet) -> None:
    crew, account = await meet(writing, "deal-post"), portal.account()
    items = [portal.item() for _ in range(2)]
    inputs = {"links": [portal.link(item) for item in items]}
    await writing.sync(account)
    kickoff_id = await crew.kick_off(inputs)
    written = await crew.ended(kickoff_id)
    assert written["status"] == "completed"
    for item in items:
        assert portal.entry(item, account)["shortLink"] in written["result"]
    types = [event["type"] for event in await crew.events(kickoff_id)]
    assert types.count("tool_usage_started") == types.count("tool_usage_finished") == 1
    assert len(await portal.submits(account)) == 1


async def test_links_in_a_pasted_message_are_converted(
    writing: Daemon, portal: Portal, meet: Meet
) -> None:
    crew, account = await meet(writing, "deal-post"), portal.account()
    first, second = portal.item(), portal.item()
    message = (
        f"Hôm nay có:\nCheck out Son on Shopee! {portal.link(first)}.\n({portal.link(second)})"
    )
    await writing.sync(account)
    written = await crew.ended(await crew.kick_off({"links": message}))
    assert written["status"] == "completed"
    for item in (first, second):
        assert portal.entry(item, account)["shortLink"] in written["result"]


async def test_a_tool_that_is_not_granted(writing: Daemon, portal: Portal, meet: Meet) -> None:
    crew, account = await meet(writing, "no-tools"), portal.account()
    await writing.sync(account)
    inputs = {"links": [portal.link(portal.item())]}
    refused = await crew.ended(await crew.kick_off(inputs))
    assert "this crew may not use 'convert_links'" in refused["error"]
    assert await portal.submits(account) == []


async def test_a_stop_withdraws_the_conversion(
    writing: Daemon, portal: Portal, meet: Meet, slow_submits: None
) -> None:
    crew, account = await meet(writing, "deal-post"), portal.account()
    await writing.sync(account)
    kickoff_id = await crew.kick_off({"links": [portal.link(portal.item())]})
    await portal.submitting(account)
    await crew.stop(kickoff_id)
    assert (await crew.status(kickoff_id))["status"] == "stopped"

    async def is_idle() -> bool:
        status = await writing.status()
        conversion, browser = status["conversion"], status["browser"]
        left = conversion["requestsWaiting"], conversion["submitsWaiting"], browser["jobsRunning"]
        return left == (0, 0, 0)

    await writing.until("nothing is converted", is_idle)
