"""Submits over HTTP: what the portal demands, what it answers, what it remembers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import trio
import trio.testing

from smartlinkd.sandbox.state import SandboxState

if TYPE_CHECKING:
    from tests.sandbox.conftest import Portal

CALLER = "CUSTOM_LINK_CALLER"
LINK = {"originalLink": "x"}


async def test_short_link_leads_to_its_long_link(portal: Portal) -> None:
    (row,) = await portal.rows(portal.product(11))

    answer = await portal.client.get(row["shortLink"])

    assert answer.headers["location"] == row["longLink"]


@pytest.mark.parametrize(
    "link",
    [
        "{shop}/product/1/2?utm_source=an_1",
        "{shop}/product/1/2/",
        "{shop}/Ten-hang-i.1.2",
        "{shop}/",
        "{short}/gone",
        "{short}/p5i6",
        "https://shopee.vn/product/1/2",
        "/product/1/2",
        "{shop}.evil.example/product/1/2",
        "",
    ],
)
async def test_other_link_has_fail_code_2(portal: Portal, link: str) -> None:
    sandbox = portal.sandbox
    link = link.format(shop=sandbox.origins.shop, short=sandbox.origins.short)

    assert await portal.rows(link) == [{"shortLink": "", "longLink": "", "failCode": 2}]


@pytest.mark.parametrize(
    ("place", "value"), [(1, "a b"), (2, "ă"), (3, "x" * 51), (4, "a-b"), (5, "-")]
)
async def test_bad_sub_id_has_the_fail_code_of_its_place(
    portal: Portal, place: int, value: str
) -> None:
    (row,) = await portal.rows(portal.product(1), **{f"subId{place}": value})

    assert row["failCode"] == 2 + place


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"csrf_token": "wrong"}, 403),
        ({"csrf_token": None}, 403),
        ({"affiliate_program_type": None}, 400),
        ({"affiliate_program_type": "2"}, 400),
        ({"content_type": "text/plain"}, 400),
        ({"q": "other"}, 404),
    ],
)
async def test_call_that_the_page_would_not_make_is_refused(
    portal: Portal, headers: dict[str, Any], status: int
) -> None:
    answer = await portal.post(portal.call(portal.product(1)), **headers)

    assert answer.status_code == status
    assert not portal.sandbox.submits


@pytest.mark.parametrize(
    "body",
    [
        {"operationName": "other"},
        {"query": "query batchGetCustomLink { batchCustomLink { shortLink } }"},
        {"variables": {}},
        *({"variables": {"linkParams": [LINK] * n, "sourceCaller": CALLER}} for n in (0, 6)),
        {"variables": {"linkParams": [LINK], "sourceCaller": "OTHER"}},
        {"variables": {"linkParams": [{"originalLink": 1}], "sourceCaller": CALLER}},
        {"extra": 1},
    ],
)
async def test_malformed_call_is_a_graphql_error(portal: Portal, body: dict[str, Any]) -> None:
    answer = await portal.post(portal.call(portal.product(1)) | body)

    assert answer.status_code == 200
    assert answer.json()["data"] is None
    assert answer.json()["errors"][0]["message"]


async def test_magic_item_fails_its_own_row(portal: Portal) -> None:
    """By those of the rows' faults that no test of the daemon meets."""
    items = (1, 900_000_099, 900_000_010, 900_000_014)
    good, undocumented, lost, another = await portal.rows(*map(portal.product, items))

    assert good["failCode"] == 0
    assert undocumented == {"shortLink": "", "longLink": "", "failCode": 99}
    assert lost is None
    assert another["failCode"] == 0
    assert "/900000014?" not in another["longLink"]


async def test_overlapping_submits_are_counted_by_account(
    sandbox: SandboxState, portal: Portal
) -> None:
    sandbox.delays.submit_ms = 100
    other = type(portal)(sandbox, portal.client, "4712")

    async with trio.open_nursery() as nursery:
        for client in (portal, portal, other):
            nursery.start_soon(client.rows, client.product(1))

    assert [sandbox.accounts[a].overlapping for a in ("4711", "4712")] == [2, 1]


async def test_client_that_leaves_ends_its_submit(sandbox: SandboxState, portal: Portal) -> None:
    sandbox.delays.submit_ms = 60_000
    with trio.move_on_after(0.3):
        await portal.rows(portal.product(1))

    await trio.testing.wait_all_tasks_blocked(cushion=0.05)  # the server sees the end of file

    assert len(sandbox.submits) == 1
    assert sandbox.accounts[portal.account].running == 0
