"""`/api/convert`: what is taken, the order of its checks, and what trouble upstream becomes."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

import httpx
import pytest
import trio

if TYPE_CHECKING:
    from tests.contract.conftest import Account, Daemon, Portal, Running

pytestmark = pytest.mark.chromium

Json = dict[str, Any]

INVALID = {"error": True, "failCode": 10}
UNKNOWN = {"error": True, "failCode": -1}
LATER = {"error": True, "failCode": 40300}
QUEUE = 6
"""Submits that may wait at the impatient daemon."""
APP_ID, APP_SECRET = "18000000001", "SANDBOXSANDBOXSANDBOXSANDBOXSAND"


async def post(daemon: Daemon, body: object, *, token: str | None = None) -> httpx.Response:
    """Send a body to `/api/convert`, with the owner's session unless a token is given."""
    token = await daemon.login() if token is None else token
    return await daemon.ask("POST", "/api/convert", body, token=token)


async def error_of(daemon: Daemon, body: object, *, token: str | None = None) -> tuple[int, str]:
    answer = await post(daemon, body, token=token)
    return answer.status_code, answer.json()["error"]


async def mapping_of(
    daemon: Daemon, *links: str, account: Account | None, sub_ids: list[str] | None = None
) -> Json:
    answer = await daemon.convert(*links, account=account, sub_ids=sub_ids)
    assert (answer.status_code, answer.json()["ok"]) == (200, True), answer.text
    found: Json = answer.json()["mapping"]
    return found


# What is taken


async def test_link_is_converted_with_its_product(daemon: Daemon, portal: Portal) -> None:
    account, item = portal.account(), portal.item()
    link = portal.link(item)
    assert await mapping_of(daemon, link, account=account) == {link: portal.entry(item, account)}


@pytest.mark.parametrize(
    ("body", "field", "rule"),
    [
        ({}, "links", "is missing"),
        ({"links": []}, "links", "at least 1"),
        ({"links": "x"}, "links", "must be an array"),
        ({"links": ["x", 1]}, "links.1", "must be a string"),
        ({"links": ["x"] * 16}, "links", "at most 15"),
        ({"links": ["x"], "subIds": ["a"] * 6}, "subIds", "at most 5"),
        ({"links": ["x"], "subIds": ["a", "b-c"]}, "subIds.1", "letters"),
        ({"links": ["x"], "subIds": ["x" * 51]}, "subIds.0", "1 to 50"),
        ({"links": ["x"], "subIds": ["é"]}, "subIds.0", "letters"),
    ],
)
async def test_wrong_request_is_400_and_nothing_is_sent(
    daemon: Daemon, portal: Portal, body: Json, field: str, rule: str
) -> None:
    before = await portal.counted("submit")
    status, error = await error_of(daemon, body)
    assert status == 400
    assert error.startswith(f"{field}: ")
    assert rule in error
    assert await portal.counted("submit") == before


async def test_fifteen_links_and_five_sub_ids_keep_their_positions(
    linking: Daemon, portal: Portal
) -> None:
    account, items = portal.account(), [portal.item() for _ in range(15)]
    sub_ids = ["a", "", "C3", "x" * 50, ""]
    links = [portal.link(item) for item in items]
    assert await mapping_of(linking, *links, account=account, sub_ids=sub_ids) == {
        link: portal.entry(item, account, *sub_ids, product=False)
        for link, item in zip(links, items, strict=True)
    }


async def test_same_link_twice_is_one_key_and_converted_once(
    linking: Daemon, portal: Portal
) -> None:
    account, link = portal.account(), portal.link(portal.item())
    assert list(await mapping_of(linking, link, link, link, account=account)) == [link]
    (submit,) = await portal.submits(account)
    assert len(submit["originals"]) == 1


async def test_checks_come_in_the_order_token_body_cookie_links(
    linking: Daemon, portal: Portal
) -> None:
    bad_cookie = {"links": ["no link"], "cookie": "nonsense"}
    assert (await error_of(linking, {"links": 1, "cookie": "nonsense"}, token="wrong"))[0] == 403
    assert (await error_of(linking, {"links": 1, "cookie": "nonsense"}))[1].startswith("links")
    assert (await error_of(linking, bad_cookie))[1].startswith("cookie")
    good = {"links": ["no link"], "cookie": portal.account().cookie}
    answer = await post(linking, good)
    assert answer.json() == {"ok": True, "mapping": {"no link": INVALID}}


async def test_null_or_empty_cookie_is_an_omitted_one(linking: Daemon, portal: Portal) -> None:
    account, item = portal.account(), portal.item()
    await linking.sync(account)
    for cookie in (None, ""):
        answer = await post(linking, {"links": [portal.link(item)], "cookie": cookie})
        entry = portal.entry(item, account, product=False)
        assert answer.json() == {"ok": True, "mapping": {portal.link(item): entry}}


async def test_empty_link_fails_with_10_beside_others(linking: Daemon, portal: Portal) -> None:
    account, item = portal.account(), portal.item()
    mapping = await mapping_of(linking, "", portal.link(item), account=account)
    assert mapping[""] == INVALID
    assert mapping[portal.link(item)]["failCode"] == 0


async def test_no_cookie_given_and_none_stored_is_400(running: Running, portal: Portal) -> None:
    with running(products={"source": "none"}) as daemon:
        status, error = await error_of(daemon, {"links": [portal.link(portal.item())]})
        assert (status, error.startswith("cookie")) == (400, True)
        daemon.wait_for_browser()


# Accounts


async def test_forged_account_number_shares_no_result_but_waits_for_the_other(
    linking: Daemon, portal: Portal, slow_submits: None
) -> None:
    account, link = portal.account(), portal.link(portal.item())
    other = type(account)(account.number)
    other.renew()  # the same SPC_U with another session: a forged one may claim it
    async with trio.open_nursery() as nursery:
        for each in (account, other):
            nursery.start_soon(partial(linking.convert, link, account=each))
    assert len(await portal.submits(account)) == 2
    assert await portal.overlapping(account) == 1


# Trouble upstream


async def test_lost_session_is_502_for_the_request(linking: Daemon, portal: Portal) -> None:
    account = portal.account()
    await portal.arm("submit_401", account)
    answer = await linking.convert(portal.link(portal.item()), account=account)
    assert answer.status_code == 502
    assert "log in" in answer.json()["error"]


@pytest.mark.parametrize("fault", ["submit_401", "submit_human_check"])
async def test_trouble_part_way_keeps_what_was_converted(
    linking: Daemon, portal: Portal, fault: str, slow_submits: None
) -> None:
    account = portal.account()
    items = {portal.link(item): item for item in (portal.item() for _ in range(12))}
    answers: list[httpx.Response] = []

    async def convert() -> None:
        answers.append(await linking.convert(*items, account=account))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(convert)
        await portal.submitting(account, nth=2)
        await portal.arm(fault, account)
    first = (await portal.submits(account))[0]
    assert 0 < len(first["originals"]) < len(items)
    assert answers[0].json()["mapping"] == {
        link: portal.entry(item, account, product=False) if link in first["originals"] else LATER
        for link, item in items.items()
    }


async def test_human_check_is_502_pauses_the_account_and_a_new_cookie_ends_it(
    linking: Daemon, portal: Portal
) -> None:
    account, item = portal.account(), portal.item()
    await linking.sync(account)
    known = await mapping_of(linking, portal.link(item), account=None)
    await portal.arm("submit_human_check", account)
    new = portal.link(portal.item())
    before = len(await portal.submits(account)) + 1
    for _ in range(2):
        answer = await linking.convert(new, account=None)
        assert answer.status_code == 502
        assert "human check" in answer.json()["error"]
        assert "ordinary browser" in answer.json()["error"]
    assert len(await portal.submits(account)) == before  # none for the paused account
    assert await mapping_of(linking, portal.link(item), account=None) == known
    await linking.sync(account)  # the same cookie again ends no pause
    assert (await linking.convert(new, account=None)).status_code == 502
    account.renew()
    await linking.sync(account)
    assert (await mapping_of(linking, new, account=None))[new]["failCode"] == 0


async def test_owner_ends_a_pause(linking: Daemon, portal: Portal) -> None:
    account, link = portal.account(), portal.link(portal.item())
    await portal.arm("submit_human_check", account)
    assert (await linking.convert(link, account=account)).status_code == 502
    await linking.run("account", "clear")
    assert (await mapping_of(linking, link, account=account))[link]["failCode"] == 0


async def test_browser_that_is_not_there_is_503_and_says_when_to_come_again(
    running: Running, portal: Portal
) -> None:
    with running(browser={"executable": "/nowhere/chromium"}) as daemon:
        account = portal.account()
        answer = await daemon.convert(portal.link(portal.item()), account=account)
        assert (answer.status_code, "Retry-After" in answer.headers) == (503, True)
        assert await portal.submits(account) == []


async def test_full_queue_is_503_and_what_is_queued_in_vain_too(
    impatient: Daemon, portal: Portal
) -> None:
    account, link = portal.account(), portal.link(portal.item())
    await portal.arm("submit_slow", account)
    answers: list[httpx.Response] = []

    async def convert(sub_id: str) -> None:
        answers.append(await impatient.convert(link, account=account, sub_ids=[sub_id]))

    async def all_wait() -> bool:
        waiting = (await impatient.status())["conversion"]["submitsWaiting"]
        return bool(waiting == QUEUE)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(convert, "first")
        await portal.submitting(account)
        for number in range(QUEUE):
            nursery.start_soon(convert, f"next{number}")
        await impatient.until("all wait", all_wait)
        refused = await impatient.convert(link, account=account, sub_ids=["last"])
        assert (refused.status_code, "Retry-After" in refused.headers) == (503, True)
        assert answers == []
    # The first was sent and not answered in time: 502. The others were never sent: 503.
    assert sorted(answer.status_code for answer in answers) == [502] + [503] * QUEUE
    assert len(await portal.submits(account)) == 1


# Other sources, and products


@pytest.fixture(scope="module")
def selling(running: Running, portal: Portal) -> Iterator[Daemon]:
    """A daemon that makes links by the Open API, without a browser."""
    with running(
        links={"source": "open_api"},
        products={"source": "none"},
        open_api={
            "app_id": APP_ID,
            "secret": APP_SECRET,
            "url": f"{portal.origins.portal}/graphql",
        },
    ) as daemon:
        daemon.secrets.add(APP_SECRET)
        yield daemon


async def test_open_api_needs_no_cookie_and_gives_no_long_link(
    selling: Daemon, portal: Portal
) -> None:
    link = portal.link(portal.item())
    entry = (await mapping_of(selling, link, account=None))[link]
    assert entry["shortLink"] == entry["longLink"]
    assert entry["shortLink"].startswith(portal.origins.short)
    status, error = await error_of(selling, {"links": [link], "cookie": portal.account().cookie})
    assert (status, error.startswith("cookie")) == (400, True)


async def test_product_that_cannot_be_read_leaves_the_links(daemon: Daemon, portal: Portal) -> None:
    account, item = portal.account(), portal.item()
    await portal.arm("product_500", account)
    link = portal.link(item)
    entry = portal.entry(item, account, product=False)
    assert await mapping_of(daemon, link, account=account) == {link: entry}
    assert entry["product"] is None


async def test_figures_of_products_are_written_as_promised(daemon: Daemon, portal: Portal) -> None:
    account = portal.account()
    links = [portal.link(item) for item in range(600_000_000, 600_000_015)]
    for entry in (await mapping_of(daemon, *links, account=account)).values():
        product = entry["product"]
        assert product["commission"] == product["sellerCommission"] + product["platformCommission"]
        assert all(isinstance(product[name], int) for name in ("price", "commission", "sales"))
        for text, decimals in ((product["rating"], 1), (product["commissionRate"][:-1], 2)):
            assert text == f"{round(float(text), decimals):g}"
        assert product["commissionRate"].endswith("%")


@pytest.mark.parametrize(
    ("item", "fields"),
    [
        (25550001112, {"rating": None, "sales": None, "image": None}),
        (20202020202, {"rating": "4.9", "commissionRate": "17.55%"}),
        (17788990011, {"rating": "5", "commissionRate": "4%", "commission": 40_000}),
        (21334455667, {"platformCommission": 40_000, "sellerCommission": 158_700}),
    ],
)
async def test_known_product_has_its_figures_and_null_for_unknown_ones(
    daemon: Daemon, portal: Portal, item: int, fields: Json
) -> None:
    link = portal.link(item)
    product = (await mapping_of(daemon, link, account=portal.account()))[link]["product"]
    assert {name: product[name] for name in fields} == fields
    assert product["price"] > 0
