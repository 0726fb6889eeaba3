"""Short links: followed as far as the market goes, and no further."""

from __future__ import annotations

from urllib.parse import quote

import httpx
import pytest
import trio
import trio.testing

from smartlinkd.marketplace.links import NotALink, Product, Short
from smartlinkd.marketplace.markets import market
from smartlinkd.marketplace.shortlinks import (
    CONCURRENT_HOPS,
    DEADLINE,
    MAX_BODY,
    ShortLinks,
    Unresolved,
)
from smartlinkd.net.client import HttpClient

VN = market("vn")
START = "https://s.shopee.vn/abc"
ITEM = Product(88201679, 23456789012)
PRODUCT = (
    "https://shopee.vn/universal-link/product/88201679/23456789012"
    "?utm_source=an_17000000001&utm_content=----"
)

Answer = httpx.Response | Exception
Resolved = Product | NotALink | Unresolved


def to(location: str, status: int = 302) -> httpx.Response:
    return httpx.Response(status, headers={"Location": location})


def page(html: str) -> httpx.Response:
    return httpx.Response(200, html=html)


class Web:
    """Answers by URL; anything else is gone. `asked` is every URL that was fetched."""

    def __init__(self, answers: dict[str, Answer]) -> None:
        self.answers = answers
        self.asked: list[str] = []

    def __call__(self, request: httpx.Request) -> httpx.Response:
        self.asked.append(str(request.url))
        assert "cookie" not in request.headers
        answer = self.answers.get(str(request.url), httpx.Response(404))
        if isinstance(answer, Exception):
            raise answer
        answer.headers["Set-Cookie"] = "SPC_F=device; Domain=.shopee.vn; Path=/"
        return answer

    async def resolve(self) -> Resolved:
        async with HttpClient(httpx.MockTransport(self)) as client:
            return await ShortLinks(client, VN).resolve(Short(START))


@pytest.mark.parametrize(
    ("status", "location"),
    [
        *((status, PRODUCT) for status in (301, 302, 303, 307, 308)),
        (302, "//shopee.vn/product/88201679/23456789012"),
        (302, f"/an_redir?origin_link={quote(PRODUCT, safe='')}"),
    ],
)
async def test_redirect_leads_to_the_product(status: int, location: str) -> None:
    web = Web({START: to(location, status)})
    assert await web.resolve() == ITEM
    assert web.asked == [START]  # and not the product's page


@pytest.mark.parametrize(
    "answer",
    [*map(httpx.Response, (404, 410, 302)), to("https://[::1"), to("https://shp.ee/dlink7Qx")],
)
async def test_dead_link_or_redirect_to_nowhere_is_no_link(answer: httpx.Response) -> None:
    web = Web({START: answer})
    assert isinstance(await web.resolve(), NotALink)
    assert web.asked == [START]


async def test_hop_that_hangs_is_unresolved_at_its_own_deadline(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async def slow(request: httpx.Request) -> httpx.Response:
        await trio.sleep(7)
        if str(request.url) == START:
            return to("/next")
        await trio.sleep_forever()
        raise AssertionError

    async with HttpClient(httpx.MockTransport(slow)) as client:
        found = await ShortLinks(client, VN).resolve(Short(START))
    assert found == Unresolved("no answer within 8 seconds")
    assert trio.current_time() == pytest.approx(15, abs=0.01)


class SilentHostWeb:
    """A web with one host that says nothing; all others redirect to the product."""

    def __init__(self, host: str) -> None:
        self.under_way = self.most = 0
        self._host = host

    async def __call__(self, request: httpx.Request) -> httpx.Response:
        if request.url.host != self._host:
            return to(PRODUCT)
        self.under_way += 1
        self.most = max(self.most, self.under_way)
        try:
            await trio.sleep_forever()
        finally:
            self.under_way -= 1
        raise AssertionError


async def test_silent_host_is_asked_a_few_at_a_time_and_delays_no_other(
    autojump_clock: trio.testing.MockClock,
) -> None:
    dead = SilentHostWeb("s.shopee.vn")
    ended: dict[float, int] = {}
    silences = set()
    async with HttpClient(httpx.MockTransport(dead)) as client, trio.open_nursery() as nursery:
        links = ShortLinks(client, VN)

        async def one(number: int) -> None:
            short = Short(f"https://s.shopee.vn/a{number}")
            found = await links.resolve(short)
            assert isinstance(found, Unresolved)
            silences.add(found.why)
            now = round(trio.current_time(), 3)
            ended[now] = ended.get(now, 0) + 1

        for number in range(6 * CONCURRENT_HOPS):
            nursery.start_soon(one, number)
        await trio.testing.wait_all_tasks_blocked()
        assert await links.resolve(Short("https://vn.shp.ee/b")) == ITEM
        assert trio.current_time() == 0
    assert dead.most == CONCURRENT_HOPS
    # Who waited has its eight seconds all the same, and nobody waits for longer than DEADLINE.
    rounds = dict.fromkeys((8.0, 16.0, 24.0, 32.0), CONCURRENT_HOPS)
    assert ended == rounds | {DEADLINE: 2 * CONCURRENT_HOPS}
    assert {"no answer within 8 seconds", "no answer within 40 seconds"} >= silences


WAYS = {
    "meta refresh": f'<meta http-equiv="refresh" content="0;url={PRODUCT}">',
    "script": f"<script>location.replace('{PRODUCT}')</script>",
    "variable": f'<script>var u = "{PRODUCT}"; location.href = u;</script>',
    "canonical": f'<link rel="canonical" href="{PRODUCT}">',
    "og:url": f'<meta property="og:url" content="{PRODUCT}">',
}


@pytest.mark.parametrize("way", WAYS)
async def test_page_that_names_a_product_leads_to_it(way: str) -> None:
    web = Web({START: page(WAYS[way])})
    assert await web.resolve() == ITEM
    assert web.asked == [START]
    campaign = "https://shopee.vn/m/sale"
    assert await Web({START: to(campaign), campaign: page(WAYS[way])}).resolve() == ITEM


async def test_page_that_goes_on_is_followed_before_its_canonical_counts() -> None:
    html = WAYS["canonical"] + '<script>location = "/next"</script>'
    there = to("https://shopee.vn/product/1/2")
    web = Web({START: page(html), "https://s.shopee.vn/next": there})
    assert await web.resolve() == Product(1, 2)


CHECKS_AND_LOGINS = (
    *("https://shopee.vn/verify/captcha?next=x", "https://shopee.vn/verify/traffic"),
    *("https://shopee.vn/buyer/login?next=x", "https://accounts.shopee.vn/x"),
    *("https://s.shopee.vn/buyer/login", "/verify/captcha"),
)
PAGES = (
    '<link rel="canonical" href="https://shopee.vn/verify/traffic">' + WAYS["og:url"],
    '<meta property="og:url" content="/buyer/login?next=x">' + WAYS["script"],
    '<script>location = "/verify/captcha?next=x"</script>' + WAYS["canonical"],
    '<meta http-equiv="refresh" content="0;url=https://accounts.shopee.vn/x">' + WAYS["canonical"],
    " " * MAX_BODY + WAYS["script"],  # behind the bound
)


@pytest.mark.parametrize(
    "answer",
    [
        *(httpx.Response(status) for status in (500, 502, 503, 504, 429, 403, 401, 418, 400)),
        *(error("x") for error in (httpx.ConnectError, httpx.ReadError, httpx.ConnectTimeout)),
        *map(to, CHECKS_AND_LOGINS),
        *map(page, PAGES),
    ],
)
async def test_answer_that_says_nothing_of_the_link_is_unresolved(answer: Answer) -> None:
    web = Web({START: answer})
    assert isinstance(await web.resolve(), Unresolved)
    assert web.asked == [START]
