"""The example crew calls `convert_links`: from the worker to the portal, through a Chromium."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.e2e.conftest import DEAL_POST

if TYPE_CHECKING:
    from tests.e2e.conftest import Daemon, Portal, Running
    from tests.e2e.crews.conftest import Meet

pytestmark = pytest.mark.chromium


async def test_crew_without_a_cookie_fails(running: Running, portal: Portal, meet: Meet) -> None:
    with running(crews=[DEAL_POST]) as daemon:
        crew = await meet(daemon, "deal-post")
        refused = await crew.ended(await crew.kick_off({"links": [portal.link(portal.item())]}))
    assert (refused["state"], refused["status"]) == ("FAILED", "error")
    assert "no affiliate cookie is stored" in refused["error"]
    assert refused["result"] == refused["error"]


async def test_links_in_a_pasted_message_are_converted(
    crew_daemon: Daemon, portal: Portal, meet: Meet
) -> None:
    crew, account = await meet(crew_daemon, "deal-post"), portal.account()
    first, second = portal.item(), portal.item()
    message = (
        f"Hôm nay có:\nCheck out Son on Shopee! {portal.link(first)}.\n({portal.link(second)})"
    )
    await crew_daemon.sync(account)
    kickoff_id = await crew.kick_off({"links": message})
    written = await crew.ended(kickoff_id)
    assert written["status"] == "completed"
    for item in (first, second):
        assert portal.entry(item, account)["shortLink"] in written["result"]
    types = [event["type"] for event in await crew.events(kickoff_id)]
    assert types.count("tool_usage_started") == types.count("tool_usage_finished") == 1
    assert len(await portal.submits(account)) == 1


async def test_tool_that_is_not_granted_is_refused(
    crew_daemon: Daemon, portal: Portal, meet: Meet
) -> None:
    crew, account = await meet(crew_daemon, "no-tools"), portal.account()
    await crew_daemon.sync(account)
    inputs = {"links": [portal.link(portal.item())]}
    refused = await crew.ended(await crew.kick_off(inputs))
    assert "this crew may not use 'convert_links'" in refused["error"]
    assert await portal.submits(account) == []


async def test_stop_cancels_the_conversion(
    crew_daemon: Daemon, portal: Portal, meet: Meet, slow_submits: None
) -> None:
    crew, account = await meet(crew_daemon, "deal-post"), portal.account()
    await crew_daemon.sync(account)
    kickoff_id = await crew.kick_off({"links": [portal.link(portal.item())]})
    await portal.submitting(account)
    await crew.stop(kickoff_id)
    assert (await crew.status(kickoff_id))["status"] == "stopped"

    async def is_idle() -> bool:
        status = await crew_daemon.status()
        conversion, browser = status["conversion"], status["browser"]
        left = conversion["requestsWaiting"], conversion["submitsWaiting"], browser["jobsRunning"]
        return left == (0, 0, 0)

    await crew_daemon.until("nothing is converted", is_idle)
