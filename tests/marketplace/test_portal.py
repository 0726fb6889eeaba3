"""The portal's adapter, on a tab of a few lines (the scripts themselves: test_portal_chromium)."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest
import trio
import trio.testing
from pydantic import JsonValue

from daemon.browser.errors import ContextLost
from daemon.errors import UpstreamFailed
from daemon.marketplace import portal
from daemon.marketplace.answers import Row
from daemon.marketplace.codes import FailCode
from daemon.marketplace.errors import (
    AccountFrozen,
    HumanCheck,
    NotThere,
    PortalChanged,
    PortalDown,
    PortalSilent,
    ProductsRefused,
    SessionLost,
)
from daemon.marketplace.links import Product
from daemon.marketplace.markets import market

VN = market("vn")
PAGE = "https://affiliate.shopee.vn/offer/custom_link"
LINKS_CALL = "https://affiliate.shopee.vn/api/v3/gql?q=batchCustomLink"
PRODUCT_CALL = "https://affiliate.shopee.vn/api/v3/offer/product?item_id=101"
LOGIN = "https://shopee.vn/buyer/login?next=x"
CAPTCHA = "https://shopee.vn/verify/captcha?next=x"
PRODUCTS = [Product(11, 101), Product(11, 102)]
URLS = ["https://shopee.vn/product/11/101", "https://shopee.vn/product/11/102"]

Json = dict[str, Any]


@dataclass
class Response:
    status: int = 200
    url: str = LINKS_CALL
    mime_type: str = "application/json"
    body: str = ""
    lost: str = ""
    leads_to: str = ""


def look(
    form: str = "ready", *, url: str = PAGE, status: int = 200, password: bool = False
) -> Json:
    return {"url": url, "status": status, "password": password, "form": form}


def row(item_id: int) -> Json:
    return {
        "shortLink": f"https://s.shopee.vn/{item_id}",
        "longLink": f"https://shopee.vn/universal-link/product/11/{item_id}?utm_source=an_1",
        "failCode": 0,
    }


def links_body(*rows: object) -> str:
    return json.dumps({"data": {"batchCustomLink": rows}})


GOOD_ROWS = [
    Row("https://s.shopee.vn/101", row(101)["longLink"], FailCode.SUCCESS, 0),
    Row("https://s.shopee.vn/102", row(102)["longLink"], FailCode.SUCCESS, 0),
]
GOOD_BODY = links_body(row(101), row(102))
PRODUCT_BODY = json.dumps(
    {"code": 0, "data": {"batch_item_for_item_card_full": {"name": "Son", "price": "12220000000"}}}
)


@dataclass
class Tab:
    """A tab that plays what it is told. The last of `looks` is shown from then on.

    `press` and `call` are what the scripts of a submit and of a call give; `answers` are the
    responses that the page then receives, each so many seconds after the other.
    """

    lands: str = PAGE
    looks: Sequence[Json | Exception] = field(default_factory=lambda: [look()])
    press: Any = field(default_factory=lambda: {"pressed": True})
    call: JsonValue | Exception = None
    answers: Sequence[tuple[float, Response]] = ()
    visited: list[str] = field(default_factory=list)
    submits: list[Any] = field(default_factory=list)
    calls: list[Any] = field(default_factory=list)
    followed: list[tuple[str, str]] = field(default_factory=list)

    async def goto(self, url: str) -> str:
        await trio.lowlevel.checkpoint()
        self.visited.append(url)
        return self.lands

    async def evaluate(
        self, function: str, *arguments: JsonValue, deadline: float = 10
    ) -> JsonValue:
        await trio.lowlevel.checkpoint()
        assert function in (portal._FORM, portal._CALL)
        assert deadline < 60
        if arguments[0] == "look":
            return self._look()
        if arguments[0] == "submit":
            self.submits.append(arguments[1:3])
            return self._given(self.press)
        self.calls.append(arguments)
        return self._given(self.call)

    @asynccontextmanager
    async def responses(
        self, *url_parts: str, method: str = "POST"
    ) -> AsyncIterator[trio.MemoryReceiveChannel[Response]]:
        self.followed += [(method, url_part) for url_part in url_parts]
        send, receive = trio.open_memory_channel[Response](16)
        failure: UpstreamFailed | None = None
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._answer, url_parts, send)
            try:
                yield receive
            except UpstreamFailed as error:
                failure = error  # to leave as it is, and in no group of the nursery's
            finally:
                nursery.cancel_scope.cancel()
        if failure is not None:
            raise failure

    async def _answer(
        self, url_parts: Sequence[str], send: trio.MemorySendChannel[Response]
    ) -> None:
        for seconds, response in self.answers:
            await trio.sleep(seconds)
            if any(part in response.url for part in url_parts):
                await send.send(response)

    def _look(self) -> JsonValue:
        first, *rest = self.looks
        self.looks = rest or [first]
        return self._given(first)

    @staticmethod
    def _given(value: Any) -> JsonValue:
        if isinstance(value, Exception):
            raise value
        return value  # type: ignore[no-any-return]


async def raised(error: type[Exception], work: Any) -> Any:
    """The error that `work` raises."""
    with pytest.raises(error) as caught:
        await work
    return caught.value


# Opening the page


async def test_the_page_is_open_when_its_form_can_be_used(
    autojump_clock: trio.testing.MockClock,
) -> None:
    tab = Tab(looks=[look("none"), ContextLost("reloads"), look("disabled"), look("ready")])
    await portal.open_links_page(tab, VN)
    assert tab.visited == [PAGE]
    assert 0 < trio.current_time() < 1


@pytest.mark.parametrize(
    ("lands", "error"),
    [
        (LOGIN, SessionLost),
        ("https://accounts.shopee.vn/x", SessionLost),
        (CAPTCHA, HumanCheck),
        ("https://shopee.vn/verify/traffic", HumanCheck),
    ],
)
async def test_where_the_page_ends_is_a_sign(lands: str, error: type[Exception]) -> None:
    await raised(error, portal.open_links_page(Tab(lands=lands), VN))


@pytest.mark.parametrize(
    ("seen", "error"),
    [
        (look("none", url=LOGIN), SessionLost),
        (look("none", password=True), SessionLost),
        (look("none", url=CAPTCHA), HumanCheck),
        (look("none", url=CAPTCHA, password=True), HumanCheck),
        (look("none", status=401), SessionLost),
        (look("none", status=403), SessionLost),
        (look("none", status=500), PortalDown),
        (look("none", status=503), PortalDown),
        (look("none", status=429), PortalDown),
    ],
)
async def test_what_the_page_shows_after_a_while_is_a_sign(
    seen: Json, error: type[Exception], autojump_clock: trio.testing.MockClock
) -> None:
    await raised(error, portal.open_links_page(Tab(looks=[look("none"), seen]), VN))
    assert trio.current_time() < 1


async def test_a_password_field_beside_the_form_is_no_login() -> None:
    await portal.open_links_page(Tab(looks=[look("ready", password=True)]), VN)


async def test_a_form_that_stays_disabled_is_a_frozen_account(
    autojump_clock: trio.testing.MockClock,
) -> None:
    await raised(AccountFrozen, portal.open_links_page(Tab(looks=[look("disabled")]), VN))
    assert trio.current_time() == pytest.approx(portal.FROZEN_AFTER, abs=0.2)


async def test_a_page_without_a_form_has_changed(autojump_clock: trio.testing.MockClock) -> None:
    error = await raised(PortalChanged, portal.open_links_page(Tab(looks=[look("none")]), VN))
    assert "has changed" in str(error)
    assert trio.current_time() == pytest.approx(portal.FORM_WAIT, abs=0.2)


@pytest.mark.parametrize("seen", [None, [], "x", {}, {"form": 5, "status": "x", "url": None}])
async def test_a_look_that_gives_nonsense_is_no_form(
    seen: Any, autojump_clock: trio.testing.MockClock
) -> None:
    await raised(PortalChanged, portal.open_links_page(Tab(looks=[seen]), VN))


# Submitting by the form


async def submit_form(tab: Tab, *sub_ids: str) -> list[Row]:
    return await portal.submit_form(tab, VN, PRODUCTS, sub_ids)


async def test_the_form_gets_canonical_links_and_the_sub_ids() -> None:
    tab = Tab(answers=[(0, Response(body=GOOD_BODY))])
    assert await submit_form(tab, "a", "", "c") == GOOD_ROWS
    assert tab.submits == [(URLS, ["a", "", "c"])]
    assert tab.followed[0] == ("POST", "/api/v3/gql")
    assert tab.visited == []


async def test_the_pages_other_calls_are_not_taken_for_the_answer() -> None:
    other = Response(url=LINKS_CALL.replace("batchCustomLink", "batchNotice"), body="{}")
    moved = Response(url=LINKS_CALL.replace("?", "?_t=1&"), body=GOOD_BODY)
    assert await submit_form(Tab(answers=[(0, other), (0, moved)])) == GOOD_ROWS


async def test_a_slow_answer_is_waited_for(autojump_clock: trio.testing.MockClock) -> None:
    tab = Tab(answers=[(portal.ANSWER_WAIT - 1, Response(body=GOOD_BODY))])
    assert await submit_form(tab) == GOOD_ROWS


async def test_no_answer_is_silence_within_a_bound(autojump_clock: trio.testing.MockClock) -> None:
    await raised(PortalSilent, submit_form(Tab()))
    assert trio.current_time() == pytest.approx(portal.ANSWER_WAIT, abs=0.1)


@pytest.mark.parametrize(("url", "error"), [(LOGIN, SessionLost), (CAPTCHA, HumanCheck)])
async def test_a_page_that_leaves_instead_of_answering_is_seen_soon(
    url: str, error: type[Exception], autojump_clock: trio.testing.MockClock
) -> None:
    await raised(error, submit_form(Tab(looks=[look(), look("none", url=url)])))
    assert trio.current_time() < 2


@pytest.mark.parametrize(
    ("press", "error", "says"),
    [
        ({"pressed": False, "why": "disabled"}, AccountFrozen, "frozen"),
        ({"pressed": False, "why": "it has no button"}, PortalChanged, "it has no button"),
        (
            {"pressed": False, "why": "its button stays disabled", "hint": "Tối đa 5 liên kết."},
            PortalChanged,
            'its button stays disabled ("Tối đa 5 liên kết.")',
        ),
        (None, PortalChanged, "no result"),
        ({}, PortalChanged, "no result"),
        ([True], PortalChanged, "no result"),
    ],
)
async def test_a_form_that_cannot_be_used(
    press: JsonValue, error: type[Exception], says: str
) -> None:
    assert says in str(await raised(error, submit_form(Tab(press=press))))


@pytest.mark.parametrize(
    ("seen", "error"),
    [
        (look("none", url=LOGIN), SessionLost),
        (look("none", url=CAPTCHA), HumanCheck),
        (look(), ContextLost),
    ],
)
async def test_a_page_that_leaves_while_it_is_filled_in(seen: Json, error: type[Exception]) -> None:
    await raised(error, submit_form(Tab(press=ContextLost("gone"), looks=[seen])))


@pytest.mark.parametrize(
    ("looks", "error"),
    [
        ([look("none", url=LOGIN)], SessionLost),
        ([ContextLost("gone"), look("none", url=LOGIN)], SessionLost),
        ([ContextLost("gone")], PortalChanged),
    ],
)
async def test_a_page_that_left_before_it_was_filled_in(
    looks: list[Json | Exception], error: type[Exception]
) -> None:
    gone: JsonValue = {"pressed": False, "why": "it has no text area for the links"}
    await raised(error, submit_form(Tab(press=gone, looks=looks)))


@pytest.mark.parametrize(
    ("response", "error"),
    [
        (Response(status=401, body="{}"), SessionLost),
        (Response(body="<html>", mime_type="text/html"), SessionLost),
        (Response(body='{"is_login": false, "error": 90309999}'), SessionLost),
        (Response(body='{"error": 90309999}'), HumanCheck),
        (Response(status=500, body="{}"), PortalDown),
        (Response(body='{"data": {"batch'), PortalDown),
        (Response(body=links_body(*[row(101)] * 3)), PortalChanged),
    ],
)
async def test_an_answer_that_is_a_refusal(response: Response, error: type[Exception]) -> None:
    await raised(error, submit_form(Tab(answers=[(0, response)])))


@pytest.mark.parametrize(
    ("looks", "status", "error"),
    [
        ([look()], 0, PortalDown),
        ([look()], 200, PortalDown),
        ([look()], 401, SessionLost),
        ([look("none", url=LOGIN)], 0, SessionLost),
        ([look("none", url=CAPTCHA)], 403, HumanCheck),
        ([ContextLost("on its way"), look("none", url=CAPTCHA)], 403, HumanCheck),
        ([ContextLost("for ever")], 0, PortalDown),
    ],
)
async def test_an_answer_that_was_lost(
    looks: list[Json | Exception],
    status: int,
    error: type[Exception],
    autojump_clock: trio.testing.MockClock,
) -> None:
    lost = Response(status=status, lost="the page went elsewhere")
    await raised(error, submit_form(Tab(looks=looks, answers=[(0, lost)])))


async def test_the_rows_of_a_call_that_graphql_refused_are_unknown_errors(
    caplog: pytest.LogCaptureFixture,
) -> None:
    refused = json.dumps({"errors": [{"message": "odd", "extensions": {"code": 7}}], "data": None})
    rows = await submit_form(Tab(answers=[(0, Response(body=refused))]))
    assert [row.fail_code for row in rows] == [-1, -1]
    assert "a submit of 2 links: odd (code 7)" in caplog.text


async def test_the_portals_own_code_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    failed = {"shortLink": "", "longLink": "", "failCode": 2}
    rows = await submit_form(Tab(answers=[(0, Response(body=links_body(row(101), failed)))]))
    assert [row.fail_code for row in rows] == [0, 10]
    assert "item_id=102): its code 2" in caplog.text


# Submitting by the page's own call


async def submit_fetch(tab: Tab, *sub_ids: str) -> list[Row]:
    return await portal.submit_fetch(tab, VN, PRODUCTS, sub_ids)


def called(body: str, *, status: int = 200, url: str = LINKS_CALL) -> Json:
    return {"status": status, "url": url, "mimeType": "application/json", "body": body}


async def test_the_call_is_the_pages_own() -> None:
    tab = Tab(call=called(GOOD_BODY))
    assert await submit_fetch(tab, "a", "", "c") == GOOD_ROWS
    method, url, body, *_ = tab.calls[0]
    assert (method, url) == ("POST", LINKS_CALL)
    sent = json.loads(body)
    assert sent["operationName"] == "batchGetCustomLink"
    assert "batchCustomLink(linkParams: $linkParams, sourceCaller: $sourceCaller)" in sent["query"]
    assert sent["variables"] == {
        "linkParams": [
            {"originalLink": url, "advancedLinkParams": {"subId1": "a", "subId3": "c"}}
            for url in URLS
        ],
        "sourceCaller": "CUSTOM_LINK_CALLER",
    }


@pytest.mark.parametrize(
    ("call", "error"),
    [
        (called("{}", status=401), SessionLost),
        (called('{"error": 90309999}'), HumanCheck),
        (called("<html>"), SessionLost),
        ({"failed": "TimeoutError"}, PortalSilent),
        ({"failed": "TypeError"}, PortalDown),
        (None, PortalDown),
        ({}, PortalDown),
    ],
)
async def test_a_call_that_fails(call: JsonValue, error: type[Exception]) -> None:
    await raised(error, submit_fetch(Tab(call=call)))


@pytest.mark.parametrize(
    ("seen", "error", "refusal"),
    [
        (look(url=LOGIN), SessionLost, ProductsRefused),
        (look(url=CAPTCHA), HumanCheck, HumanCheck),
        (look(status=401), SessionLost, ProductsRefused),
    ],
)
@pytest.mark.parametrize("broken", [{"failed": "TypeError"}, ContextLost("left")])
async def test_a_call_that_breaks_off_because_its_page_leaves_is_explained_by_where_that_went(
    broken: Any,
    seen: Json,
    error: type[Exception],
    refusal: type[Exception],
    autojump_clock: trio.testing.MockClock,
) -> None:
    looks: list[Json | Exception] = [ContextLost("on its way"), seen]
    await raised(error, submit_fetch(Tab(call=broken, looks=looks)))
    await raised(refusal, read_fetch(Tab(call=broken, looks=looks)))


async def test_a_page_that_left_before_the_call_is_told_at_once(
    autojump_clock: trio.testing.MockClock,
) -> None:
    await raised(HumanCheck, submit_fetch(Tab(call=called("", status=302, url=CAPTCHA))))
    assert trio.current_time() == 0


async def test_a_call_whose_page_is_loaded_anew_is_the_browsers_failure() -> None:
    await raised(ContextLost, submit_fetch(Tab(call=ContextLost("reloaded"))))


def redirected(url: str, led_to: str | None) -> Tab:
    """A tab whose call is answered with a redirect; where it leads shows a little later."""
    detour = [(0.3, Response(status=0, url=led_to, lost="net::ERR_FAILED"))] if led_to else []
    answer = (0.0, Response(status=302, url=url))
    return Tab(call=called("", status=302, url=url), answers=[answer, *detour])


@pytest.mark.parametrize("submit", [submit_form, submit_fetch])
@pytest.mark.parametrize(
    ("led_to", "error"), [(LOGIN, SessionLost), (CAPTCHA, HumanCheck), (None, PortalDown)]
)
async def test_a_redirected_submit_is_explained_by_where_it_leads(
    submit: Any,
    led_to: str | None,
    error: type[Exception],
    autojump_clock: trio.testing.MockClock,
) -> None:
    await raised(error, submit(redirected(LINKS_CALL, led_to)))


@pytest.mark.parametrize("way", [(LOGIN, CAPTCHA), (CAPTCHA, LOGIN)])
async def test_a_redirect_by_way_of_a_login_and_a_check_leads_to_the_check(
    way: tuple[str, ...], autojump_clock: trio.testing.MockClock
) -> None:
    seen = [(0.0, Response(status=302, url=url)) for url in way]
    tab = Tab(answers=[*seen, (0.3, Response(status=302, url=LINKS_CALL))])
    await raised(HumanCheck, submit_form(tab))


async def test_a_redirect_to_a_check_counts_before_the_check_s_page_has_come(
    autojump_clock: trio.testing.MockClock,
) -> None:
    redirect = Response(status=302, url=LINKS_CALL, leads_to=CAPTCHA)
    await raised(HumanCheck, submit_form(Tab(answers=[(0.3, redirect)])))
    assert trio.current_time() == pytest.approx(0.3, abs=0.1)


@pytest.mark.parametrize(
    ("seen", "error", "after"),
    [
        ([], SessionLost, portal._SETTLED_AFTER),
        ([Response(status=200, url=LOGIN)], SessionLost, 1.0),
        ([Response(status=302, url=LOGIN, leads_to=CAPTCHA)], HumanCheck, 1.0),
    ],
    ids=["a slow one", "its page comes", "it leads on to a check"],
)
async def test_a_redirect_to_a_login_counts_when_it_does_not_lead_on(
    seen: list[Response],
    error: type[Exception],
    after: float,
    autojump_clock: trio.testing.MockClock,
) -> None:
    redirect = Response(status=302, url=LINKS_CALL, leads_to=LOGIN)
    later = [(1.0, response) for response in seen]
    await raised(error, submit_form(Tab(answers=[(0.0, redirect), *later])))
    assert trio.current_time() == pytest.approx(after, abs=0.1)


async def test_what_the_page_asks_for_besides_hides_no_check(
    autojump_clock: trio.testing.MockClock,
) -> None:
    other = Response(status=200, url="https://affiliate.shopee.vn/api/login_status")
    redirect = Response(status=302, url=LINKS_CALL)
    answers = [(0.0, redirect), (0.0, other), (1.0, Response(status=200, url=CAPTCHA))]
    await raised(HumanCheck, submit_form(Tab(answers=answers)))


# Reading a product


async def read_fetch(tab: Tab) -> Any:
    return await portal.read_product_fetch(tab, VN, PRODUCTS[0], default_cap=40_000)


async def read_page(tab: Tab) -> Any:
    return await portal.read_product_page(tab, VN, PRODUCTS[0], default_cap=40_000)


async def test_product_data_by_a_call_leaves_the_page_where_it_is() -> None:
    tab = Tab(call=called(PRODUCT_BODY, url=PRODUCT_CALL))
    assert (await read_fetch(tab)).price == 122_200
    assert tab.calls[0][:3] == ("GET", PRODUCT_CALL, None)
    assert tab.visited == []


async def test_product_data_by_the_page_is_what_the_page_is_told() -> None:
    others = [
        Response(url=PRODUCT_CALL.replace("101", "1010"), body="{}"),
        Response(url=PRODUCT_CALL.replace("product?", "product/list?"), body="{}"),
    ]
    good = Response(url=PRODUCT_CALL + "&x=1", body=PRODUCT_BODY)
    tab = Tab(answers=[(0, response) for response in (*others, good)])
    assert (await read_page(tab)).price == 122_200
    assert tab.visited == ["https://affiliate.shopee.vn/offer/product_offer/101"]
    assert tab.followed[0] == ("GET", "/api/v3/offer/product")


@pytest.mark.parametrize(
    ("status", "body", "error"),
    [
        (401, "{}", ProductsRefused),
        (403, "{}", ProductsRefused),
        (429, "{}", ProductsRefused),
        (200, "<html>", ProductsRefused),
        (200, '{"is_login": false}', ProductsRefused),
        (200, '{"error": 90309999}', HumanCheck),
        (500, "{}", PortalDown),
        (200, '{"data": null}', NotThere),
    ],
)
@pytest.mark.parametrize("read", [read_fetch, read_page])
async def test_a_refusal_of_product_data(
    read: Any, status: int, body: str, error: type[Exception]
) -> None:
    response = Response(status=status, url=PRODUCT_CALL, body=body)
    tab = Tab(call=called(body, status=status, url=PRODUCT_CALL), answers=[(0, response)])
    await raised(error, read(tab))


@pytest.mark.parametrize("read", [read_fetch, read_page])
@pytest.mark.parametrize(
    ("led_to", "error"),
    [(LOGIN, ProductsRefused), (CAPTCHA, HumanCheck), (None, ProductsRefused)],
)
async def test_a_redirected_reading_is_explained_by_where_it_leads(
    read: Any, led_to: str | None, error: type[Exception], autojump_clock: trio.testing.MockClock
) -> None:
    await raised(error, read(redirected(PRODUCT_CALL, led_to)))


@pytest.mark.parametrize(("lands", "error"), [(LOGIN, ProductsRefused), (CAPTCHA, HumanCheck)])
async def test_a_product_page_that_ends_elsewhere(lands: str, error: type[Exception]) -> None:
    await raised(error, read_page(Tab(lands=lands)))


async def test_a_product_page_that_asks_nothing_is_silent(
    autojump_clock: trio.testing.MockClock,
) -> None:
    await raised(PortalSilent, read_page(Tab()))
    assert trio.current_time() == pytest.approx(portal.PRODUCT_WAIT, abs=0.1)


@pytest.mark.parametrize(("status", "error"), [(0, PortalDown), (401, ProductsRefused)])
async def test_product_data_that_was_lost(status: int, error: type[Exception]) -> None:
    response = Response(status=status, url=PRODUCT_CALL, lost="net::ERR_CONNECTION_RESET")
    await raised(error, read_page(Tab(answers=[(0, response)])))
