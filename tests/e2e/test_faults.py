"""The sandbox's faults: the answer to the request that meets a fault, and to the next request.

The portal's code is tested with more faults in `tests/marketplace/test_portal.py`. Here each kind
of answer occurs at least once. A fixture runs all cases first, several at a time; the
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


class Expected(Enum):
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
        return self in (Expected.CHECK, Expected.NO_DATA_CHECK, Expected.MADE_AND_CHECK)


EXPECTED: dict[str, Expected] = {
    "row_invalid_link": Expected.INVALID,
    "row_unknown": Expected.UNKNOWN,
    "row_invalid_sub_id": Expected.UNKNOWN,
    "row_null_code": Expected.MADE,
    "row_no_short_link": Expected.UNKNOWN,
    "row_other_account": Expected.UNKNOWN,
    "submit_html": Expected.LOST,
    "submit_500": Expected.DOWN,
    "submit_human_check": Expected.CHECK,
    "submit_slow": Expected.LATE,
    "submit_null_rows": Expected.BOTH_UNKNOWN,
    "submit_short_rows": Expected.ONE_UNKNOWN,
    "product_500": Expected.NO_DATA,
    "product_401": Expected.NO_DATA_FOR_NOW,
    "product_captcha": Expected.NO_DATA_CHECK,
    "page_login_script": Expected.LOST,
    "page_captcha": Expected.CHECK,
    "page_check_in_frame": Expected.CHECK,
    "page_check_in_window": Expected.CHECK,
    "page_check_afterwards": Expected.MADE_AND_CHECK,
    "page_without_form": Expected.LATE,
    "page_endless": Expected.LATE,
    "page_hang": Expected.LATE,
    "page_hang_on_submit": Expected.LATE,
    "page_alert": Expected.MADE,
    "page_500": Expected.DOWN,
    "page_slow": Expected.LATE,
    "page_reset": Expected.UNREACHED,
    "session_lost": Expected.LOST,
    "human_check": Expected.CHECK,
    "account_frozen": Expected.FROZEN,
}
BY_NAME = {fault.name: fault for fault in FAULTS}


def daemon_for(name: str) -> str:
    """Return the name of the fixture with the daemon that meets the fault."""
    if BY_NAME[name].point is Point.PRODUCT:
        return "daemon"
    return "impatient" if EXPECTED[name] is Expected.LATE else "linking"


@dataclass
class Case:
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


async def _run_case(name: str, daemon: Daemon, portal: Portal) -> Case:
    account, good, bad, follows = portal.account(), portal.item(), portal.item(), portal.item()
    item = BY_NAME[name].item
    if item is not None:
        bad = item
    else:
        await portal.arm(name, account)
    if name == "row_other_account":  # else the first row's id would count
        await daemon.convert(portal.link(portal.item()), account=account)
    met = await daemon.convert(portal.link(good), portal.link(bad), account=account)
    if EXPECTED[name] is Expected.MADE_AND_CHECK:
        await daemon.until("the account is paused", partial(_is_paused, daemon, account))
    before = len(await portal.submits(account))
    after = await daemon.convert(portal.link(follows), account=account)
    submits = len(await portal.submits(account)) - before
    return Case(account, good, bad, met, follows, after, submits)


async def _is_paused(daemon: Daemon, account: Account) -> bool:
    states = {each["account"]: each["state"] for each in (await daemon.status())["accounts"]}
    return states.get(account.number) == "paused"


@pytest.fixture(scope="module")
def cases(daemon: Daemon, linking: Daemon, impatient: Daemon, portal: Portal) -> dict[str, Case]:
    """The results of all cases by fault."""
    daemons = {"daemon": daemon, "linking": linking, "impatient": impatient}
    results: dict[str, Case] = {}

    async def run_all() -> None:
        hands = trio.Semaphore(AT_ONCE)

        async def run_case(name: str) -> None:
            async with hands:
                results[name] = await _run_case(name, daemons[daemon_for(name)], portal)

        for each in daemons.values():
            await each.login()
        async with trio.open_nursery() as nursery:
            # The slowest cases start first.
            for name in sorted(EXPECTED, key=lambda name: EXPECTED[name] is not Expected.LATE):
                nursery.start_soon(run_case, name)
                await trio.lowlevel.checkpoint()  # so that the cases start in this order

    trio.run(run_all)
    return results


@pytest.mark.parametrize("name", EXPECTED)
def test_request_that_meets_a_fault_gets_the_expected_answer(
    name: str, cases: dict[str, Case], portal: Portal
) -> None:
    case, expected = cases[name], EXPECTED[name]
    if expected.whole:
        assert case.met.status_code == 502, case.met.text
        assert case.met.json().keys() == {"ok", "error"}
        assert str(expected.value) in case.met.json()["error"]
    else:
        assert case.met.status_code == 200, case.met.text
        mapping = case.met.json()["mapping"]
        good, bad = (mapping.pop(portal.link(item)) for item in (case.good, case.bad))
        assert mapping == {}
        _check_entries(name, case, portal, good, bad)


@pytest.mark.parametrize("name", EXPECTED)
def test_the_next_request_is_served_unless_the_account_pauses(
    name: str, cases: dict[str, Case], portal: Portal
) -> None:
    case, expected = cases[name], EXPECTED[name]
    if expected.pauses:
        assert case.after.status_code == 502, case.after.text
        assert case.after.json()["error"].startswith(str(Expected.CHECK.value))
        assert case.submits_after == 0
        return
    assert case.after.status_code == 200, case.after.text
    read = daemon_for(name) == "daemon" and expected is not Expected.NO_DATA_FOR_NOW
    entry = portal.entry(case.next, case.account, product=read)
    assert case.after.json()["mapping"] == {portal.link(case.next): entry}
    assert case.submits_after == 1


def _check_entries(name: str, case: Case, portal: Portal, good: Json, bad: Json) -> None:
    reads, expected = daemon_for(name) == "daemon", EXPECTED[name]
    entry = portal.entry(case.good, case.account, product=reads)
    spoilt = portal.entry(case.bad, case.account, product=reads)
    unknown = {"error": True, "failCode": -1}
    match expected:
        case Expected.MADE | Expected.MADE_AND_CHECK:
            assert (good, bad) == (entry, spoilt)
        case Expected.UNKNOWN | Expected.INVALID:
            assert (good, bad) == (entry, unknown | {"failCode": expected.value})
        case Expected.BOTH_UNKNOWN:
            assert (good, bad) == (unknown, unknown)
        case Expected.ONE_UNKNOWN:  # the one that was submitted last
            assert (good, bad) in ((entry, unknown), (unknown, spoilt))
        case Expected.NO_DATA:
            assert (good, bad) == (entry, spoilt | {"product": None})
        case _:  # reading the other product was stopped, or had ended
            assert bad == spoilt | {"product": None}
            assert good in (entry, entry | {"product": None})
