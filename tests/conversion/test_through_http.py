"""Short links over HTTP, as the desk has them resolved."""

from __future__ import annotations

from functools import partial

import httpx
import trio
import trio.testing

from smartlinkd.conversion.through_http import HttpResolver
from smartlinkd.marketplace.answers import FailCode
from smartlinkd.marketplace.links import Short
from smartlinkd.marketplace.markets import market
from smartlinkd.marketplace.shortlinks import CONCURRENT_HOPS
from smartlinkd.net.client import HttpClient


async def test_all_links_of_a_silent_host_wait_for_each_other(
    autojump_clock: trio.testing.MockClock,
) -> None:
    codes: list[object] = []

    async def silent(_: httpx.Request) -> httpx.Response:
        await trio.sleep_forever()
        raise AssertionError

    async def one(resolver: HttpResolver, number: int) -> None:
        codes.append(await resolver.resolve(Short(f"https://s.shopee.vn/a{number}")))

    async with HttpClient(httpx.MockTransport(silent)) as client:
        resolver = HttpResolver(client, market("vn"))
        async with trio.open_nursery() as nursery:
            for number in range(CONCURRENT_HOPS + 1):
                nursery.start_soon(partial(one, resolver, number))
            await trio.sleep(10)
            assert len(codes) == CONCURRENT_HOPS
    assert codes == [FailCode.UNKNOWN] * (CONCURRENT_HOPS + 1)
