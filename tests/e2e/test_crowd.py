"""Many requests at once: merged for one account, apart for two."""

from __future__ import annotations

from math import ceil
from typing import TYPE_CHECKING

import httpx
import pytest
import trio

if TYPE_CHECKING:
    from tests.e2e.conftest import Account, Daemon, Portal

pytestmark = pytest.mark.chromium

CROWD = 50
CHUNK = 5
LATECOMERS = 3
"""Submits more than there need be: requests do not all arrive while the first one is under way."""


async def convert_all(daemon: Daemon, asked: list[tuple[str, Account]]) -> list[httpx.Response]:
    """One request for each link, all at once; the answers in their order."""
    answers: dict[int, httpx.Response] = {}

    async def convert(place: int, link: str, account: Account) -> None:
        answers[place] = await daemon.convert(link, account=account)

    await daemon.login()
    async with trio.open_nursery() as nursery:
        for place, (link, account) in enumerate(asked):
            nursery.start_soon(convert, place, link, account)
    return [answers[place] for place in range(len(asked))]


async def test_fifty_requests_for_one_account(
    daemon: Daemon, portal: Portal, slow_submits: None
) -> None:
    account = portal.account()
    different = [portal.item() for _ in range(CROWD - 10)]
    items = different + different[:10]
    answers = await convert_all(daemon, [(portal.link(item), account) for item in items])
    assert [answer.json() for answer in answers] == [
        {"ok": True, "mapping": {portal.link(item): portal.entry(item, account)}} for item in items
    ]
    submits = await portal.submits(account)
    submitted = [link for submit in submits for link in submit["originals"]]
    assert sorted(submitted) == sorted(map(portal.link, different))
    assert len(submits) <= 1 + ceil((len(different) - 1) / CHUNK) + LATECOMERS
    assert await portal.overlapping(account) == 1


async def test_two_accounts_at_once(daemon: Daemon, portal: Portal, slow_submits: None) -> None:
    accounts = [portal.account(), portal.account()]
    # The same items for both: what is made for one must not be given to the other.
    items = [portal.item() for _ in range(8)]
    asked = [(item, account) for item in items for account in accounts]
    answers = await convert_all(daemon, [(portal.link(item), account) for item, account in asked])
    assert [answer.json()["mapping"] for answer in answers] == [
        {portal.link(item): portal.entry(item, account)} for item, account in asked
    ]
    one, other = [await portal.submits(account) for account in accounts]
    for submits, account in ((one, accounts[0]), (other, accounts[1])):
        submitted = [link for submit in submits for link in submit["originals"]]
        assert sorted(submitted) == sorted(map(portal.link, items))
        assert await portal.overlapping(account) == 1
    assert any(
        mine["started"] < theirs["ended"] and theirs["started"] < mine["ended"]
        for mine in one
        for theirs in other
    )
