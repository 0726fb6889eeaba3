"""Paused accounts: the portal wants a login or a person; the answers, and the affected account."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import httpx
import pytest
import trio

from tests.contract.market import upstream_calls

if TYPE_CHECKING:
    from tests.contract.conftest import Daemon, Portal
    from tests.e2e.conftest import Account

pytestmark = pytest.mark.chromium

NO_PERMISSION = {"error": True, "failCode": 40300}
REMEDIES = ("human check", "open the portal in an ordinary browser")


async def convert(daemon: Daemon, portal: Portal, account: Account | None) -> httpx.Response:
    """Convert a new item."""
    return await daemon.convert(portal.link(portal.item()), account=account)


def is_human_check(answer: httpx.Response) -> bool:
    error = answer.json().get("error", "")
    return answer.status_code == 502 and all(words in error for words in REMEDIES)


async def paused(daemon: Daemon, portal: Portal) -> tuple[Account, str, dict[str, Any]]:
    """Store an account's cookie, convert a link, and let a human check pause the account.

    Return the account, the link, and the link's entry.
    """
    account, item = portal.account(), portal.item()
    await daemon.sync(account)
    link, entry = portal.link(item), portal.entry(item, account, product=False)
    answer = await daemon.convert(link, account=None)
    assert answer.json()["mapping"] == {link: entry}
    await portal.arm("human_check", account)
    assert is_human_check(await convert(daemon, portal, None))
    return account, link, entry


# A lost session


@pytest.mark.parametrize("fault", ["session_lost", "session_lost_softly"])
async def test_session_gone_before_any_link_is_502(
    linking: Daemon, portal: Portal, fault: str
) -> None:
    account = portal.account()
    await portal.arm(fault, account)
    answer = await convert(linking, portal, account)
    assert (answer.status_code, answer.json().keys()) == (502, {"ok", "error"})
    assert "wants a login" in answer.json()["error"]


@pytest.mark.parametrize("fault", ["submit_401", "submit_human_check", "submit_captcha"])
async def test_session_gone_or_human_check_part_way_keeps_what_was_converted(
    linking: Daemon, portal: Portal, fault: str, slow_submits: None
) -> None:
    account = portal.account()
    items = {portal.link(item): item for item in (portal.item() for _ in range(12))}
    answers: list[httpx.Response] = []

    async def convert_all() -> None:
        answers.append(await linking.convert(*items, account=account))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(convert_all)
        # The second submit of three: the sandbox looks for a fault at the end of a submit.
        await portal.submitting(account, nth=2)
        await portal.arm(fault, account)
    first, *_ = await portal.submits(account)
    made = {link: portal.entry(item, account, product=False) for link, item in items.items()}
    expected = {link: made[link] if link in first["originals"] else NO_PERMISSION for link in items}
    assert 0 < len(first["originals"]) < len(items)
    assert (answers[0].status_code, answers[0].json()["mapping"]) == (200, expected)


# A human check


async def test_paused_account_sends_nothing_upstream(linking: Daemon, portal: Portal) -> None:
    account, _, _ = await paused(linking, portal)
    before = await upstream_calls(portal)
    assert is_human_check(await convert(linking, portal, None))
    account.renew()
    assert is_human_check(await convert(linking, portal, account))
    assert await upstream_calls(portal) == before


async def test_paused_account_is_served_what_is_remembered(linking: Daemon, portal: Portal) -> None:
    _, link, entry = await paused(linking, portal)
    new = portal.link(portal.item())
    answer = await linking.convert(link, account=None)
    assert (answer.status_code, answer.json()["mapping"]) == (200, {link: entry})
    answer = await linking.convert(link, new, account=None)
    mapping = {link: entry, new: NO_PERMISSION}
    assert (answer.status_code, answer.json()["mapping"]) == (200, mapping)


async def test_pause_ends_with_a_new_synced_cookie_and_not_with_the_same_one(
    linking: Daemon, portal: Portal
) -> None:
    account, _, _ = await paused(linking, portal)
    await linking.sync(account)
    assert is_human_check(await convert(linking, portal, None))
    account.renew()
    await linking.sync(account)
    assert (await convert(linking, portal, None)).status_code == 200


async def test_pause_ends_when_the_owner_clears_it(linking: Daemon, portal: Portal) -> None:
    await paused(linking, portal)
    token = await linking.login()
    answer = await linking.ask("POST", "/api/account/clear", token=token)
    assert answer.json()["ok"] is True
    assert answer.json()["cleared"] >= 1
    assert (await convert(linking, portal, None)).status_code == 200


async def test_pause_of_one_account_does_not_stop_another(linking: Daemon, portal: Portal) -> None:
    await paused(linking, portal)
    assert (await convert(linking, portal, portal.account())).status_code == 200


# The account of a request


async def test_two_cookies_with_one_user_id_submit_one_after_the_other(
    linking: Daemon, portal: Portal, slow_submits: None
) -> None:
    account = portal.account()
    links = [portal.link(portal.item()) for _ in range(2)]
    answers: list[httpx.Response] = []

    async def convert_link(link: str) -> None:
        answers.append(await linking.convert(link, account=account))

    await linking.login()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(convert_link, links[0])
        await portal.submitting(account)
        account.renew()
        nursery.start_soon(convert_link, links[1])
    assert [answer.status_code for answer in answers] == [200, 200]
    assert len(await portal.submits(account)) == 2
    assert await portal.overlapping(account) == 1


async def test_forged_user_id_shares_neither_links_nor_session_nor_submits(
    linking: Daemon, portal: Portal, slow_submits: None
) -> None:
    owner, item = portal.account(), portal.item()
    link = portal.link(item)
    entry = portal.entry(item, owner, product=False)
    token = await linking.login()
    forged = {"links": [link], "cookie": f"SPC_EC=expired; SPC_ST=x; SPC_U={owner.number}"}
    owned: list[httpx.Response] = []

    async def convert_as_owner() -> None:
        owned.append(await linking.convert(link, account=owner))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(convert_as_owner)
        await portal.submitting(owner)
        during = await linking.ask("POST", "/api/convert", forged, token=token)
    after = await linking.ask("POST", "/api/convert", forged, token=token)
    assert (during.status_code, after.status_code) == (502, 502)
    assert owned[0].json()["mapping"] == {link: entry}
    answer = await linking.convert(link, account=owner)
    assert answer.json()["mapping"] == {link: entry}
    assert len(await portal.submits(owner)) == 1


async def test_cookies_without_user_id_are_accounts_of_their_own(
    linking: Daemon, portal: Portal
) -> None:
    token = await linking.login()

    async def names() -> set[str]:
        answer = await linking.ask("GET", "/api/account", token=token)
        return {account["name"] for account in answer.json()["accounts"]}

    before = await names()
    link = portal.link(portal.item())
    for cookie in [f"SPC_EC=.secret{portal.item()}; SPC_ST=.x" for _ in range(2)] * 2:
        body = {"links": [link], "cookie": cookie}
        answer = await linking.ask("POST", "/api/convert", body, token=token)
        assert answer.status_code == 502
    assert len(await names() - before) == 2
