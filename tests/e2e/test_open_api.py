"""Faults of the sources without a browser: the official Open API, and an estimate service.

The API has one account, the owner's, so its faults occur one after the other.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from smartlinkd.sandbox.faults import FAULTS, Fault, Point
from smartlinkd.sandbox.open_api import APP_ID, SECRET

if TYPE_CHECKING:
    from tests.e2e.conftest import Daemon, Portal, Running

pytestmark = pytest.mark.chromium

EXPECTED = {
    "open_api_10020": "the Affiliate Open API refused the call",
    "open_api_10030": "the Affiliate Open API has had its allowance of calls",
    "open_api_10035": "the Affiliate Open API refused the call",
    "open_api_500": "the Affiliate Open API failed",
    "open_api_slow": "the marketplace did not answer in time",
}
BY_API = [fault for fault in FAULTS if fault.point is Point.OPEN_API]
BY_ESTIMATE = [fault for fault in FAULTS if fault.point is Point.ESTIMATE]


@pytest.fixture(scope="module")
def api_daemon(running: Running, portal: Portal) -> Iterator[Daemon]:
    """A daemon without a browser."""
    origins = portal.origins
    with running(
        browser={"job_timeout": 6},
        links={"source": "open_api"},
        products={"source": "third_party"},
        open_api={"app_id": APP_ID, "secret": SECRET, "url": origins.open_api},
        third_party={"url": origins.estimate},
    ) as daemon:
        daemon.secrets.add(SECRET)
        yield daemon


def test_no_fault_is_left_out() -> None:
    assert set(EXPECTED) == {fault.name for fault in BY_API}


async def check_converts(daemon: Daemon, portal: Portal, item: int, *, product: bool) -> None:
    """Check a conversion by the API without a cookie. The API has no long link; the short link
    takes its place."""
    link = portal.link(item)
    answer = await daemon.convert(link, account=None, sub_ids=["a", "", "c"])
    entry = portal.entry(item, portal.owner(APP_ID), "a", "", "c", product=product)
    entry["longLink"] = entry["shortLink"]
    assert answer.json() == {"ok": True, "mapping": {link: entry}}


@pytest.mark.parametrize("fault", BY_API, ids=lambda fault: fault.name)
async def test_open_api_fault(api_daemon: Daemon, portal: Portal, fault: Fault) -> None:
    await portal.arm(fault.name, portal.owner(APP_ID))
    answer = await api_daemon.convert(portal.link(portal.item()), account=None)
    assert answer.status_code == 502, answer.text
    assert answer.json()["error"].startswith(EXPECTED[fault.name])
    await check_converts(api_daemon, portal, portal.item(), product=True)


@pytest.mark.parametrize("fault", BY_ESTIMATE, ids=lambda fault: fault.name)
async def test_estimate_fault(api_daemon: Daemon, portal: Portal, fault: Fault) -> None:
    assert fault.item is not None
    await check_converts(api_daemon, portal, fault.item, product=False)
    await check_converts(api_daemon, portal, portal.item(), product=True)
