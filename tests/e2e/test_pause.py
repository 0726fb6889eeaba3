"""What lasts after trouble, and what ends it: a paused account, product data left alone, a session
that is lost half-way through a request.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import httpx
import pytest
import trio

if TYPE_CHECKING:
    from tests.e2e.conftest import Account, Daemon, Portal, Running

pytestmark = pytest.mark.chromium

LATER = {"error": True, "failCode": 40300}


def is_human_check(answer: httpx.Response) -> bool:
    """A 502 that says what it is and what to do."""
    error = answer.json().get("error", "")
    remedies = ("human check", "ordinary browser", "sync the new cookie", "account clear")
    return answer.status_code == 502 and all(words in error for words in remedies)


async def pause(daemon: Daemon, portal: Portal) -> tuple[Account, int]:
    """An account that a human check has paused, and an item that was converted before."""
    account, item = portal.account(), portal.item()
    await daemon.sync(account)
    answer = await daemon.convert(portal.link(item), account=None)
    assert answer.json()["mapping"][portal.link(item)] == portal.entry(item, account)
    await portal.arm("human_check", account)
    assert is_human_check(await daemon.convert(portal.link(portal.item()), account=None))
    return account, item


async def test_nothing_is_sent_for_a_paused_account(daemon: Daemon, portal: Portal) -> None:
    account, _ = await pause(daemon, portal)
    upstream = ("submit", "product read", "page custom_link")
    before = [await portal.counted(one) for one in upstream]
    assert is_human_check(await daemon.convert(portal.link(portal.item()), account=None))
    account.renew()  # in a request it may be a forgery: only a synced one ends a pause
    assert is_human_check(await daemon.convert(portal.link(portal.item()), account=account))
    assert [await portal.counted(one) for one in upstream] == before


async def test_what_is_remembered_is_served_in_a_pause(daemon: Daemon, portal: Portal) -> None:
    account, item = await pause(daemon, portal)
    remembered, new = portal.link(item), portal.link(portal.item())
    entry = portal.entry(item, account)
    answer = await daemon.convert(remembered, account=None)
    assert (answer.status_code, answer.json()["mapping"]) == (200, {remembered: entry})
    answer = await daemon.convert(remembered, new, account=None)
    assert answer.json()["mapping"] == {remembered: entry, new: LATER}


async def test_the_same_cookie_does_not_end_a_pause(daemon: Daemon, portal: Portal) -> None:
    account, _ = await pause(daemon, portal)
    await daemon.sync(account)
    before = await portal.counted("submit")
    assert is_human_check(await daemon.convert(portal.link(portal.item()), account=None))
    assert await portal.counted("submit") == before


async def test_a_new_cookie_ends_a_pause(daemon: Daemon, portal: Portal) -> None:
    account, _ = await pause(daemon, portal)
    account.renew()
    await daemon.sync(account)
    item = portal.item()
    answer = await daemon.convert(portal.link(item), account=None)
    assert answer.json()["mapping"] == {portal.link(item): portal.entry(item, account)}


async def test_the_owner_ends_a_pause(daemon: Daemon, portal: Portal) -> None:
    account, item = await pause(daemon, portal)

    async def standing() -> str:
        shown = json.loads(await daemon.run("account", "show", "--json"))
        states = {one["account"]: one["state"] for one in shown["accounts"]}
        return str(states[account.number])

    assert await standing() == "paused"
    assert json.loads(await daemon.run("account", "clear", "--json"))["cleared"] >= 1
    assert await standing() == "active"
    item = portal.item()
    answer = await daemon.convert(portal.link(item), account=None)
    assert answer.json()["mapping"] == {portal.link(item): portal.entry(item, account)}


@pytest.mark.parametrize("end", ["killed", "stopped"])
async def test_a_pause_outlasts_the_daemon(running: Running, portal: Portal, end: str) -> None:
    with running() as daemon:
        daemon.wait_for_browser()
        account, _ = await pause(daemon, portal)
        if end == "killed":
            await daemon.until("it is on the disk", lambda: is_kept(daemon, account))
            await daemon.kill()
        else:
            daemon.program.stop()
        daemon.start()
        daemon.wait_for_browser()
        await daemon.sync(account)
        before = await portal.counted("submit")
        assert is_human_check(await daemon.convert(portal.link(portal.item()), account=None))
        assert await portal.counted("submit") == before
        account.renew()
        await daemon.sync(account)
        item = portal.item()
        answer = await daemon.convert(portal.link(item), account=None)
        assert answer.json()["mapping"] == {portal.link(item): portal.entry(item, account)}


async def is_kept(daemon: Daemon, account: Account) -> bool:
    file = daemon.state / "pauses.json"
    return file.exists() and account.number in file.read_text()


async def test_a_pause_is_one_accounts(daemon: Daemon, portal: Portal) -> None:
    await pause(daemon, portal)
    other, item = portal.account(), portal.item()
    answer = await daemon.convert(portal.link(item), account=other)
    assert answer.json()["mapping"] == {portal.link(item): portal.entry(item, other)}


async def test_refused_product_data_is_left_alone(daemon: Daemon, portal: Portal) -> None:
    account, items = portal.account(), [portal.item() for _ in range(4)]
    await portal.arm("product_401", account)
    await daemon.convert(portal.link(items[0]), account=account)
    before = await portal.counted("product read")
    for item in items[1:]:
        answer = await daemon.convert(portal.link(item), account=account)
        entry = portal.entry(item, account, product=False)
        assert answer.json()["mapping"] == {portal.link(item): entry}
    assert await portal.counted("product read") == before
    account.renew()
    await daemon.sync(account)
    answer = await daemon.convert(portal.link(items[0]), account=None)
    assert answer.json()["mapping"] == {portal.link(items[0]): portal.entry(items[0], account)}


@pytest.mark.parametrize("fault", ["submit_401", "submit_human_check", "submit_captcha"])
async def test_trouble_part_way(
    linking: Daemon, portal: Portal, fault: str, slow_submits: None
) -> None:
    account = portal.account()
    items = {portal.link(item): item for item in (portal.item() for _ in range(12))}
    answers: list[httpx.Response] = []

    async def convert() -> None:
        answers.append(await linking.convert(*items, account=account))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(convert)
        # The second of three: a fault is looked for at the end of a submit.
        await portal.submitting(account, nth=2)
        await portal.arm(fault, account)
    first, *others = await portal.submits(account)
    assert [submit["outcome"] for submit in (first, *others)] == ["rows", fault]
    assert answers[0].status_code == 200, answers[0].text
    assert answers[0].json()["mapping"] == {
        link: portal.entry(item, account, product=False) if link in first["originals"] else LATER
        for link, item in items.items()
    }
