"""The sandbox's faults: the answer to the request that meets a fault, and to the next request.

The portal's code is tested with more faults in `tests/marketplace/test_portal_chromium.py`. Here
each kind of answer occurs at least once. A fixture runs all cases first, several at a time; the
tests then check each case.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from functools import partial
from typing import TYPE_CHECKING

import httpx
import pytest
import trio

from smartlinkd.sandbox.faults import FAULTS, Point

if TYPE_CHECKING:
    from tests.e2e.conftest import Account, Daemon, Json, Portal

pytestmark = [
    pytest.mark.chromium,
    pytest.mark.deadline(300, reason="one fixture plays all faults, for all tests"),
]

AT_ONCE = 8
"""Cases that run at the same time. Each needs its own browser context."""


class Due(Enum):
    """The answer that a request must get when it meets a fault."""

    # one answer for the whole request
    LOST = "the affiliate portal wants a login"
    CHECK = "the affiliate portal asks for a human check"
    DOWN = "the affiliate portal failed"
    UNREACHED = "could not be loaded: net::ERR_CONNECTION_RESET"
    FROZEN = "the marketplace does not let this account make links"
    LATE = "the marketplace did not answer in time"
    # an entry for each link; this is the entry of the link that meets the fault
    MADE = 0
    UNKNOWN = -1
    INVALID = 10
    # an entry for each link; the other link's entry matters, too
    BOTH_UNKNOWN = "-1 for both"
    ONE_UNKNOWN = "-1 for the row that is missing"
    MADE_AND_CHECK = "the links, and the account is paused afterwards"
    # the links without the product
    NO_DATA = "product null"
    NO_DATA_FOR_NOW = "product null, and of the next one as well"
    NO_DATA_CHECK = "product null, and the account is paused"

    @property
    def whole(self) -> bool:
        return self.name in ("LOST", "CHECK", "DOWN", "UNREACHED", "FROZEN", "LATE")

    @property
    def pauses(self) -> bool:
        return self in (Due.CHECK, Due.NO_DATA_CHECK, Due.MADE_AND_CHECK)


DUE: dict[str, Due] = {
    "row_invalid_link": Due.INVALID,
    "row_unknown": Due.UNKNOWN,
    "row_invalid_sub_id": Due.UNKNOWN,
    "row_null_code": Due.MADE,
    "row_no_short_link": Due.UNKNOWN,
    "row_other_account": Due.UNKNOWN,
    "submit_html": Due.LOST,
    "submit_500": Due.DOWN,
    "submit_human_check": Due.CHECK,
    "submit_slow": Due.LATE,
    "submit_null_rows": Due.BOTH_UNKNOWN,
    "submit_short_rows": Due.ONE_UNKNOWN,
    "product_500": Due.NO_DATA,
    "product_401": Due.NO_DATA_FOR_NOW,
    "product_captcha": Due.NO_DATA_CHECK,
    "page_login_script": Due.LOST,
    "page_captcha": Due.CHECK,
    "page_check_in_frame": Due.CHECK,
    "page_check_in_window": Due.CHECK,
    "page_check_afterwards": Due.MADE_AND_CHECK,
    "page_without_form": Due.LATE,
    "page_endless": Due.LATE,
    "page_hang": Due.LATE,
    "page_hang_on_submit": Due.LATE,
    "page_alert": Due.MADE,
    "page_500": Due.DOWN,
    "page_slow": Due.LATE,
    "page_reset": Due.UNREACHED,
    "session_lost": Due.LOST,
    "human_check": Due.CHECK,
    "account_frozen": Due.FROZEN,
}
BY_NAME = {fault.name: fault for fault in FAULTS}


def daemon_for(name: str) -> str:
    """Return the name of the fixture with the daemon that meets the fault."""
    if BY_NAME[name].point is Point.PRODUCT:
        return "daemon"
    return "impatient" if DUE[name] is Due.LATE else "linking"


@dataclass
class Story:
    """The result of a case."""

    account: Account
    good: int
    """The item of the link that does not meet the fault."""
    bad: int
    met: httpx.Response
    next: int
    after: httpx.Response
    submits_after: int
    """Submits that the sandbox has seen for the request after."""


async def _play(name: str, daemon: Daemon, portal: Portal) -> Story:
    account, good, bad, follows = portal.account(), portal.item(), portal.item(), portal.item()
    item = BY_NAME[name].item
    if item is not None:
        bad = item
    else:
        await portal.arm(name, account)
    if name == "row_other_account":  # else the first row's id would count
        await daemon.convert(portal.link(portal.item()), account=account)
    met = await daemon.convert(portal.link(good), portal.link(bad), account=account)
    if DUE[name] is Due.MADE_AND_CHECK:
        await daemon.until("the account is paused", partial(_is_paused, daemon, account))
    before = len(await portal.submits(account))
    after = await daemon.convert(portal.link(follows), account=account)
    submits = len(await portal.submits(account)) - before
    return Story(account, good, bad, met, follows, after, submits)


async def _is_paused(daemon: Daemon, account: Account) -> bool:
    states = {each["account"]: each["state"] for each in (await daemon.status())["accounts"]}
    return states.get(account.number) == "paused"


@pytest.fixture(scope="module")
def stories(daemon: Daemon, linking: Daemon, impatient: Daemon, portal: Portal) -> dict[str, Story]:
    """The results of all cases by fault."""
    daemons = {"daemon": daemon, "linking": linking, "impatient": impatient}
    played: dict[str, Story] = {}

    async def play_all() -> None:
        hands = trio.Semaphore(AT_ONCE)

        async def play(name: str) -> None:
            async with hands:
                played[name] = await _play(name, daemons[daemon_for(name)], portal)

        for each in daemons.values():
            await each.login()
        async with trio.open_nursery() as nursery:
            # The slowest cases start first.
            for name in sorted(DUE, key=lambda name: DUE[name] is not Due.LATE):
                nursery.start_soon(play, name)
                await trio.lowlevel.checkpoint()  # so that the cases start in this order

    trio.run(play_all)
    return played


@pytest.mark.parametrize("name", DUE)
def test_request_that_meets_a_fault_gets_the_expected_answer(
    name: str, stories: dict[str, Story], portal: Portal
) -> None:
    story, due = stories[name], DUE[name]
    if due.whole:
        assert story.met.status_code == 502, story.met.text
        assert story.met.json().keys() == {"ok", "error"}
        assert str(due.value) in story.met.json()["error"]
    else:
        assert story.met.status_code == 200, story.met.text
        mapping = story.met.json()["mapping"]
        good, bad = (mapping.pop(portal.link(item)) for item in (story.good, story.bad))
        assert mapping == {}
        _check_entries(name, story, portal, good, bad)


@pytest.mark.parametrize("name", DUE)
def test_the_next_request_is_served_unless_the_account_pauses(
    name: str, stories: dict[str, Story], portal: Portal
) -> None:
    story, due = stories[name], DUE[name]
    if due.pauses:
        assert story.after.status_code == 502, story.after.text
        assert story.after.json()["error"].startswith(str(Due.CHECK.value))
        assert story.submits_after == 0
        return
    assert story.after.status_code == 200, story.after.text
    read = daemon_for(name) == "daemon" and due is not Due.NO_DATA_FOR_NOW
    entry = portal.entry(story.next, story.account, product=read)
    assert story.after.json()["mapping"] == {portal.link(story.next): entry}
    assert story.submits_after == 1


def _check_entries(name: str, story: Story, portal: Portal, good: Json, bad: Json) -> None:
    reads, due = daemon_for(name) == "daemon", DUE[name]
    entry = portal.entry(story.good, story.account, product=reads)
    spoilt = portal.entry(story.bad, story.account, product=reads)
    unknown = {"error": True, "failCode": -1}
    match due:
        case Due.MADE | Due.MADE_AND_CHECK:
            assert (good, bad) == (entry, spoilt)
        case Due.UNKNOWN | Due.INVALID:
            assert (good, bad) == (entry, unknown | {"failCode": due.value})
        case Due.BOTH_UNKNOWN:
            assert (good, bad) == (unknown, unknown)
        case Due.ONE_UNKNOWN:  # the one that was submitted last
            assert (good, bad) in ((entry, unknown), (unknown, spoilt))
        case Due.NO_DATA:
            assert (good, bad) == (entry, spoilt | {"product": None})
        case _:  # reading the other product was stopped, or had ended
            assert bad == spoilt | {"product": None}
            assert good in (entry, entry | {"product": None})
