"""Every fault that the sandbox can play, from the link in a request to the answer, and what of it
is left for the next request.

Each fault has a story of its own: a request that meets the fault, and an ordinary one after it. The
stories are played first, several at a time, and the tests then look at how each one went. Whatever
costs an account its session, or its page, has that account to itself; the other faults are met by
the same one, one after the other.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from functools import partial
from typing import TYPE_CHECKING

import httpx
import pytest
import trio

from smartlinkd.sandbox.faults import FAULTS, Fault, Point

if TYPE_CHECKING:
    from tests.e2e.conftest import Account, Daemon, Json, Portal

pytestmark = [
    pytest.mark.chromium,
    pytest.mark.deadline(300, reason="one fixture plays all faults, for all tests"),
]

AT_ONCE = 8
"""Stories; each needs a browser context of its own."""


class Due(Enum):
    """What a request that meets a fault is due."""

    # one answer for the whole request
    LOST = "the affiliate portal wants a login"
    CHECK = "the affiliate portal asks for a human check"
    DOWN = "the affiliate portal failed"
    UNREACHED = "could not be loaded: net::ERR_CONNECTION_RESET"
    FROZEN = "the marketplace does not let this account make links"
    LATE = "the marketplace did not answer in time"
    # an entry for each link, the one that meets the fault
    MADE = 0
    UNKNOWN = -1
    INVALID = 10
    # … and the other one alike
    BOTH_UNKNOWN = "-1 for both"
    ONE_UNKNOWN = "-1 for the row that is missing"
    MADE_AND_CHECK = "the links, and the account is paused afterwards"
    # the links, but not the product
    NO_DATA = "product null"
    NO_DATA_FOR_NOW = "product null, and of the next one as well"
    NO_DATA_CHECK = "product null, and the account is paused"

    @property
    def costs_nothing(self) -> bool:
        """Whether the account goes on as before."""
        return not (self.whole or self.pauses or self is Due.NO_DATA_FOR_NOW)

    @property
    def whole(self) -> bool:
        return self.name in ("LOST", "CHECK", "DOWN", "UNREACHED", "FROZEN", "LATE")

    @property
    def pauses(self) -> bool:
        return self in (Due.CHECK, Due.NO_DATA_CHECK, Due.MADE_AND_CHECK)


ANSWERS = {
    "401": Due.LOST,
    "403": Due.LOST,
    "429": Due.DOWN,
    "500": Due.DOWN,
    "html": Due.LOST,
    "logged_out": Due.LOST,
    "logged_out_numeric": Due.LOST,
    "human_check": Due.CHECK,
    "human_check_bare": Due.CHECK,
    "null": Due.BOTH_UNKNOWN,
    "slow": Due.LATE,
    "truncated": Due.DOWN,
    "cut": Due.DOWN,
    "reset": Due.DOWN,
    "login_redirect": Due.LOST,
    "captcha": Due.CHECK,
}
"""To a submit. About a product the same sign means the same, at another price."""

NO_PRODUCT = {
    Due.LOST: Due.NO_DATA_FOR_NOW,
    Due.LATE: Due.NO_DATA_FOR_NOW,
    Due.CHECK: Due.NO_DATA_CHECK,
}

DUE: dict[str, Due] = {
    "row_invalid_link": Due.INVALID,
    "row_unknown": Due.UNKNOWN,
    "row_invalid_sub_id": Due.UNKNOWN,
    "row_code_99": Due.UNKNOWN,
    "row_null": Due.UNKNOWN,
    "row_null_code": Due.MADE,
    "row_no_short_link": Due.UNKNOWN,
    "row_other_account": Due.UNKNOWN,
    "row_other_item": Due.UNKNOWN,
    **{f"submit_{name}": due for name, due in ANSWERS.items()},
    "submit_graphql_error": Due.BOTH_UNKNOWN,
    "submit_null_rows": Due.BOTH_UNKNOWN,
    "submit_short_rows": Due.ONE_UNKNOWN,
    **{f"product_{name}": NO_PRODUCT.get(due, Due.NO_DATA) for name, due in ANSWERS.items()},
    "product_429": Due.NO_DATA_FOR_NOW,
    "page_login_redirect": Due.LOST,
    "page_login_script": Due.LOST,
    "page_login_in_place": Due.LOST,
    "page_captcha": Due.CHECK,
    "page_traffic": Due.CHECK,
    "page_check_in_json": Due.CHECK,
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
    "session_lost_softly": Due.LOST,
    "human_check": Due.CHECK,
    "account_frozen": Due.FROZEN,
}
PORTAL_FAULTS = [fault for fault in FAULTS if fault.name in DUE]
ELSEWHERE = (Point.OPEN_API, Point.ESTIMATE)
"""Faults of other sources, which have tests of their own (see `test_open_api.py`)."""

BY_FETCH = {
    "401",
    "html",
    "human_check",
    "slow",
    "truncated",
    "cut",
    "reset",
    "login_redirect",
    "captcha",
    "graphql_error",
}
"""Of the answers to a submit or about a product, those that the other method of asking might see
otherwise: those that the page would act on, and those that are no answer. The others differ by what
is in them, and that is read in the same place."""


@dataclass(frozen=True)
class Case:
    """One story to be played: a fault, and the daemon that meets it."""

    daemon: str
    fault: Fault
    warm: bool = False
    """The account's page is open when the fault comes."""

    @property
    def due(self) -> Due:
        if self.warm and self.fault.name == "account_frozen":
            return Due.BOTH_UNKNOWN  # its calls are answered with GraphQL's own errors
        return DUE[self.fault.name]

    @property
    def reads(self) -> bool:
        """Whether this daemon reads products."""
        return self.daemon in ("daemon", "fetching")

    @property
    def goes_on(self) -> bool:
        """Whether another request follows; what it finds does not depend on the method."""
        return self.daemon != "fetching"

    def __str__(self) -> str:
        return f"{self.fault.name}-{self.daemon}{'-warm' if self.warm else ''}"


@dataclass
class Story:
    """How it went."""

    account: Account
    good: int
    """The item beside the one that meets the fault."""
    bad: int
    met: httpx.Response
    next: int
    after: httpx.Response | None
    submits_after: int
    """How many submits the sandbox has seen for the request after."""


def _cases() -> list[Case]:
    by_session = [fault for fault in PORTAL_FAULTS if fault.point is Point.SESSION]
    by_fetch = [
        fault
        for fault in PORTAL_FAULTS
        if fault.point in (Point.SUBMIT, Point.PRODUCT) and fault.behaviour.value in BY_FETCH
    ]
    return [
        *(Case("fetching", fault) for fault in by_fetch),
        *(Case(_daemon_for(fault), fault) for fault in PORTAL_FAULTS),
        *(Case(name, fault, warm=True) for name in ("fetching", "linking") for fault in by_session),
    ]


def _daemon_for(fault: Fault) -> str:
    if fault.point is Point.PRODUCT:
        return "daemon"
    return "impatient" if DUE[fault.name] is Due.LATE else "linking"


def _series() -> list[list[Case]]:
    """The cases by the account that they share: most have one of their own."""
    shared: dict[str, list[Case]] = {}
    series = []
    for case in CASES:
        if case.due.costs_nothing and case.fault.item is not None:
            shared.setdefault(case.daemon, []).append(case)
        else:
            series.append([case])
    # Those that wait the longest come first, so that nobody waits for them at the end.
    series.sort(key=lambda cases: (cases[0].due is not Due.LATE, cases[0].fault.name))
    return [*shared.values(), *series]


CASES = _cases()


async def _play(case: Case, daemon: Daemon, portal: Portal, account: Account) -> Story:
    good, bad, follows = portal.item(), portal.item(), portal.item()
    fault = case.fault
    if case.warm:
        first = await daemon.convert(portal.link(portal.item()), account=account)
        assert first.status_code == 200, first.text
    if fault.item is not None:
        bad = fault.item
    else:
        await portal.arm(fault.name, account)
    met = await daemon.convert(portal.link(good), portal.link(bad), account=account)
    if case.due is Due.MADE_AND_CHECK:
        await daemon.until("the account is paused", partial(_is_paused, daemon, account))
    after, before, submits = None, len(await portal.submits(account)), 0
    if case.goes_on:
        after = await daemon.convert(portal.link(follows), account=account)
        submits = len(await portal.submits(account)) - before
    return Story(account, good, bad, met, follows, after, submits)


async def _is_paused(daemon: Daemon, account: Account) -> bool:
    states = {each["account"]: each["state"] for each in (await daemon.status())["accounts"]}
    return states.get(account.number) == "paused"


@pytest.fixture(scope="module")
def stories(
    daemon: Daemon, fetching: Daemon, linking: Daemon, impatient: Daemon, portal: Portal
) -> dict[Case, Story]:
    """All of them, played."""
    daemons = {
        "daemon": daemon,
        "fetching": fetching,
        "linking": linking,
        "impatient": impatient,
    }
    played: dict[Case, Story] = {}

    async def play_all() -> None:
        hands = trio.Semaphore(AT_ONCE)

        async def play(cases: list[Case]) -> None:
            account = portal.account()
            async with hands:
                for case in cases:
                    played[case] = await _play(case, daemons[case.daemon], portal, account)

        for each in daemons.values():
            await each.login()
        async with trio.open_nursery() as nursery:
            for cases in _series():
                nursery.start_soon(play, cases)
                await trio.lowlevel.checkpoint()  # so that they begin in this order

    trio.run(play_all)
    return played


def test_no_fault_is_left_out() -> None:
    of_the_portal = {fault.name for fault in FAULTS if fault.point not in ELSEWHERE}
    assert set(DUE) == of_the_portal
    assert {case.fault.name for case in CASES} == of_the_portal


@pytest.mark.parametrize("case", CASES, ids=str)
def test_each_link_is_answered_for_as_its_fault_is_due(
    case: Case, stories: dict[Case, Story], portal: Portal
) -> None:
    story, due = stories[case], case.due
    if due.whole:
        assert story.met.status_code == 502, story.met.text
        assert story.met.json().keys() == {"ok", "error"}
        assert str(due.value) in story.met.json()["error"]
    else:
        assert story.met.status_code == 200, story.met.text
        mapping = story.met.json()["mapping"]
        good, bad = (mapping.pop(portal.link(item)) for item in (story.good, story.bad))
        assert mapping == {}
        _check_entries(case, story, portal, good, bad)


@pytest.mark.parametrize("case", [case for case in CASES if case.goes_on], ids=str)
def test_the_next_request_is_served_unless_the_account_pauses(
    case: Case, stories: dict[Case, Story], portal: Portal
) -> None:
    story = stories[case]
    assert story.after is not None
    if case.due.pauses:
        assert story.after.status_code == 502, story.after.text
        assert story.after.json()["error"].startswith(str(Due.CHECK.value))
        assert story.submits_after == 0
        return
    assert story.after.status_code == 200, story.after.text
    read = case.reads and case.due is not Due.NO_DATA_FOR_NOW
    entry = portal.entry(story.next, story.account, product=read)
    assert story.after.json()["mapping"] == {portal.link(story.next): entry}
    assert story.submits_after == 1


def _check_entries(case: Case, story: Story, portal: Portal, good: Json, bad: Json) -> None:
    entry = portal.entry(story.good, story.account, product=case.reads)
    spoilt = portal.entry(story.bad, story.account, product=case.reads)
    unknown = {"error": True, "failCode": -1}
    match case.due:
        case Due.MADE | Due.MADE_AND_CHECK:
            assert (good, bad) == (entry, spoilt)
        case Due.UNKNOWN | Due.INVALID:
            assert (good, bad) == (entry, unknown | {"failCode": case.due.value})
        case Due.BOTH_UNKNOWN:
            assert (good, bad) == (unknown, unknown)
        case Due.ONE_UNKNOWN:  # whichever was submitted last
            assert (good, bad) in ((entry, unknown), (unknown, spoilt))
        case Due.NO_DATA:
            assert (good, bad) == (entry, spoilt | {"product": None})
        case _:  # the other one's reading was stopped, or had ended
            assert bad == spoilt | {"product": None}
            assert good in (entry, entry | {"product": None})
