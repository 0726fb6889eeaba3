"""The tools of crews: a real service and vault, with a made-up source of links."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from functools import partial
from math import inf

import pytest
import trio
import trio.testing
from prometheus_client import Counter
from pydantic import JsonValue

from smartlinkd.conversion.limits import ConversionLimits
from smartlinkd.conversion.service import ConversionService, ConversionSetup
from smartlinkd.conversion.sources import MaySend
from smartlinkd.crews.tools import TOOL_NAMES, TOOL_PATIENCE, tools
from smartlinkd.errors import Invalid, Unavailable
from smartlinkd.logs import LogEvent
from smartlinkd.marketplace.answers import FailCode, Row
from smartlinkd.marketplace.links import Product, Short
from smartlinkd.marketplace.markets import market
from smartlinkd.marketplace.products import FIELD_NAMES, ProductData
from smartlinkd.vault.actor import Vault
from smartlinkd.vault.cookie import Cookie

LINK = "https://shopee.vn/a-thing-i.7.1"
OTHER = "https://shopee.vn/a-thing-i.7.2"
COOKIE = "SPC_U=4711; SPC_EC=first"
Convert = Callable[[dict[str, JsonValue]], Awaitable[JsonValue]]


class Source:
    """Makes links and product data, and notes for whom."""

    answered: Counter  # of the service that uses it

    def __init__(self, *, needs_cookie: bool) -> None:
        self.needs_cookie = needs_cookie
        self.at_once = 1
        self.asked: list[tuple[str | None, tuple[str, ...]]] = []
        self.down_until = -inf

    async def create(
        self,
        cookie: Cookie | None,
        products: Sequence[Product],
        sub_ids: tuple[str, ...],
        may_send: MaySend,
    ) -> Sequence[Row]:
        may_send()
        self.asked.append((cookie.account if cookie else None, sub_ids))
        if trio.current_time() < self.down_until:
            raise Unavailable("the browser is down", retry_after=2)
        return [
            Row(f"https://s.shopee.vn/{p.item_id}", f"https://shopee.vn/l/{p.item_id}", FailCode(0))
            for p in products
        ]

    async def read(self, _cookie: Cookie | None, product: Product) -> ProductData | None:
        known = product.item_id == 1
        return ProductData(name="thing 1", price=5) if known else None

    async def resolve(self, short: Short) -> Product:
        raise AssertionError(f"no short link is in these tests, and {short} was followed")


@asynccontextmanager
async def workshop(source: Source, *, cookie: str | None = COOKIE) -> AsyncIterator[Convert]:
    """`convert_links`, over a service and a vault that run."""
    conversion = ConversionService(
        ConversionSetup(
            market=market("vn"),
            links=source,
            products=source,
            resolve=source.resolve,
            limits=ConversionLimits(),
        )
    )
    vault = Vault()
    source.answered = conversion.answered
    async with trio.open_nursery() as nursery:
        await nursery.start(conversion.run)
        await nursery.start(vault.run)
        if cookie is not None:
            await vault.store(cookie, "Test")
        offered = tools(conversion, vault)
        assert set(offered) == TOOL_NAMES  # which the check of a configuration goes by
        yield partial(offered["convert_links"], "deal-post")
        nursery.cancel_scope.cancel()


def short_links(answer: JsonValue) -> list[JsonValue]:
    assert isinstance(answer, dict)
    mapping = answer["mapping"]
    assert isinstance(mapping, dict)
    entries = [each for each in mapping.values() if isinstance(each, dict)]
    return [each.get("shortLink") for each in entries]


@pytest.fixture
def source() -> Source:
    return Source(needs_cookie=True)


async def test_convert_links_answers_as_the_conversion_api_with_the_stored_cookie(
    source: Source,
) -> None:
    async with workshop(source) as convert:
        answer = await convert({"links": [LINK, OTHER, "nonsense"], "subIds": ["", "crew", ""]})
    assert source.asked == [("4711", ("", "crew"))]
    product: JsonValue = dict.fromkeys(FIELD_NAMES) | {"name": "thing 1", "price": 5}
    assert answer == {
        "mapping": {
            LINK: {
                "shortLink": "https://s.shopee.vn/1",
                "longLink": "https://shopee.vn/l/1",
                "failCode": 0,
                "product": product,
            },
            OTHER: {
                "shortLink": "https://s.shopee.vn/2",
                "longLink": "https://shopee.vn/l/2",
                "failCode": 0,
                "product": None,
            },
            "nonsense": {"error": True, "failCode": 10},
        }
    }


async def test_convert_links_without_a_cookie_is_refused_logged_and_counted(
    source: Source, caplog: pytest.LogCaptureFixture
) -> None:
    async with workshop(source, cookie=None) as convert:
        with pytest.raises(Invalid, match=r"^no affiliate cookie is stored.*; sync one"):
            await convert({"links": [LINK]})
    assert source.asked == []
    assert [getattr(each, "event", None) for each in caplog.records] == [LogEvent.COOKIE_MISSING]
    assert next(iter(source.answered.collect())).samples[0].value == 1


async def test_convert_links_waits_while_the_browser_restarts(
    source: Source, autojump_clock: trio.testing.MockClock
) -> None:
    source.down_until = trio.current_time() + 25
    async with workshop(source) as convert:
        answer = await convert({"links": [LINK]})
    assert isinstance(answer, dict)
    assert 25 <= trio.current_time() <= 28
    assert len(source.asked) > 5


async def test_convert_links_gives_up_after_its_patience(
    source: Source, autojump_clock: trio.testing.MockClock
) -> None:
    source.down_until = inf
    async with workshop(source) as convert:
        with pytest.raises(Unavailable, match="the browser is down"):
            await convert({"links": [LINK]})
    assert trio.current_time() == pytest.approx(TOOL_PATIENCE)


@pytest.mark.parametrize("down", [5.0, inf])
async def test_convert_links_waits_for_the_rest_and_answers_with_what_there_is(
    source: Source, autojump_clock: trio.testing.MockClock, down: float
) -> None:
    async with workshop(source) as convert:
        await convert({"links": [LINK]})  # is remembered
        source.down_until = trio.current_time() + down
        answer = await convert({"links": [LINK, OTHER]})
    made = "https://s.shopee.vn/1"
    assert short_links(answer) == [made, None if down == inf else "https://s.shopee.vn/2"]
    assert trio.current_time() == pytest.approx(min(down, TOOL_PATIENCE), abs=2)


@pytest.mark.parametrize(
    ("arguments", "fault"),
    [
        ({}, "convert_links: links: is missing"),
        ({"links": LINK}, "convert_links: links: must be an array"),
        ({"links": []}, "convert_links: links: has too few items (at least 1)"),
        ({"links": [LINK, 7]}, "convert_links: links.1: must be a string"),
        ({"links": [LINK] * 16}, "convert_links: links: has too many items (at most 15)"),
        (
            {"links": [LINK], "subIds": ["a b"]},
            "convert_links: subIds.0: must be 1 to 50 letters a-z, A-Z and digits, or empty",
        ),
        (
            {"links": [LINK], "cookie": "SPC_EC=the-crews-own"},
            "convert_links: cookie: is not a field here",
        ),
    ],
    ids=["no links", "a text", "empty", "a number", "16 links", "a sub-id", "a cookie"],
)
async def test_convert_links_with_wrong_arguments_names_them(
    source: Source, arguments: dict[str, JsonValue], fault: str
) -> None:
    async with workshop(source) as convert:
        with pytest.raises(Invalid) as refused:
            await convert(arguments)
    assert str(refused.value) == fault
    assert refused.value.__context__ is None  # it would hold what was sent
    assert source.asked == []
