"""The portal's adapter, on a tab of a few lines (its scripts: `test_portal_chromium.py`)."""

from __future__ import annotations

import json
from typing import Any

import pytest
import trio
import trio.testing
from pydantic import JsonValue

from smartlinkd.browser.errors import CallTimedOut, ContextLost
from smartlinkd.marketplace import portal
from smartlinkd.marketplace.answers import FailCode, Row
from smartlinkd.marketplace.errors import (
    AccountFrozen,
    HumanCheck,
    PortalChanged,
    PortalDown,
    PortalSilent,
    ProductsRefused,
    SessionLost,
)
from smartlinkd.untrusted import MAX_LINE
from tests.marketplace.tabs import (
    CAPTCHA,
    LINKS_CALL,
    LOGIN,
    PAGE,
    URLS,
    VN,
    Json,
    Response,
    Tab,
    called,
    look,
    raised,
    read_fetch,
    read_page,
    submit_fetch,
    submit_form,
)


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


@pytest.mark.parametrize("status", [200, 403, 429, 503])
@pytest.mark.parametrize(
    ("answer", "url", "error"),
    [
        ('{"error": 90309999, "is_login": true}', PAGE, HumanCheck),
        ('{"5": "90309999"}', PAGE, HumanCheck),
        ('{"5": "90309999"}', LOGIN, HumanCheck),
        ('{"error": 90309999, "is_login": false}', PAGE, SessionLost),
        ('{"error": 90309999, "is_login": false}', CAPTCHA, HumanCheck),
    ],
)
async def test_json_in_the_pages_place_is_read_before_its_status(
    answer: str, url: str, error: type[Exception], status: int
) -> None:
    shown = look("none", url=url, status=status, json=answer)
    await raised(error, portal.open_links_page(Tab(looks=[shown]), VN))


@pytest.mark.parametrize(("status", "error"), [(403, SessionLost), (429, PortalDown)])
@pytest.mark.parametrize("answer", ["", '{"error": 1}', '{"error": 903099', "[90309999]"])
async def test_of_other_json_the_status_counts(
    answer: str, status: int, error: type[Exception]
) -> None:
    shown = look("none", status=status, json=answer)
    await raised(error, portal.open_links_page(Tab(looks=[shown]), VN))


async def test_a_password_field_beside_the_form_is_no_login() -> None:
    await portal.open_links_page(Tab(looks=[look("ready", password=True)]), VN)


async def test_a_form_that_stays_disabled_is_a_frozen_account(
    autojump_clock: trio.testing.MockClock,
) -> None:
    await raised(AccountFrozen, portal.open_links_page(Tab(looks=[look("disabled")]), VN))
    assert trio.current_time() == pytest.approx(portal.FROZEN_AFTER, abs=0.2)


async def test_a_disabled_form_that_is_built_anew_is_no_frozen_account(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """By a page that is loaded twice, say: the second one is given its time."""
    being_built = [look("disabled")] * 15  # of two seconds three quarters
    looks = [*being_built, look("none"), *being_built, look()]
    await portal.open_links_page(Tab(looks=looks), VN)
    assert trio.current_time() > portal.FROZEN_AFTER


async def test_a_page_without_a_form_has_changed(autojump_clock: trio.testing.MockClock) -> None:
    error = await raised(PortalChanged, portal.open_links_page(Tab(looks=[look("none")]), VN))
    assert "has changed" in str(error)
    assert trio.current_time() == pytest.approx(portal.FORM_TIMEOUT, abs=0.2)


@pytest.mark.parametrize(("url", "error"), [(LOGIN, SessionLost), (CAPTCHA, HumanCheck)])
async def test_a_page_that_has_left_meanwhile_and_is_never_seen_has_not_changed(
    url: str,
    error: type[Exception],
    nursery: trio.Nursery,
    autojump_clock: trio.testing.MockClock,
) -> None:
    tab = Tab(looks=[ContextLost("it went elsewhere")])

    async def leave() -> None:
        await trio.sleep(portal.FORM_TIMEOUT / 2)
        tab.goes = url

    nursery.start_soon(leave)
    await raised(error, portal.open_links_page(tab, VN))


@pytest.mark.parametrize("seen", [None, [], "x", {}, {"form": 5, "status": "x", "url": None}])
async def test_unreadable_state_is_no_form(
    seen: Any, autojump_clock: trio.testing.MockClock
) -> None:
    await raised(PortalChanged, portal.open_links_page(Tab(looks=[seen]), VN))


# A check in a frame or pop-up


async def opened(tab: Tab) -> None:
    await portal.open_links_page(tab, VN)


@pytest.mark.parametrize("work", [opened, submit_form, submit_fetch, read_fetch, read_page])
async def test_check_in_a_frame_comes_before_all_work(work: Any) -> None:
    tab = Tab(other_urls=["https://ads.example/", CAPTCHA])
    await raised(HumanCheck, work(tab))
    assert (tab.visited, tab.submits, tab.calls) == ([], [], [])


async def test_frames_of_other_sites_are_no_check() -> None:
    other_urls = ["https://ads.example/verify/captcha", "https://shopee.vn/"]
    tab = Tab(answers=[(0, Response(body=GOOD_BODY))], other_urls=other_urls)
    assert await submit_form(tab) == GOOD_ROWS


@pytest.mark.parametrize("seen", [look(), CallTimedOut("Runtime.callFunctionOn", 2.0)])
async def test_check_in_a_frame_instead_of_an_answer_is_seen_soon(
    seen: Json | Exception, nursery: trio.Nursery, autojump_clock: trio.testing.MockClock
) -> None:
    tab = Tab(looks=[seen])

    async def show() -> None:
        await trio.sleep(1)
        tab.other_urls = [CAPTCHA]

    nursery.start_soon(show)
    await raised(HumanCheck, submit_form(tab))
    assert trio.current_time() < 6


async def test_links_that_come_while_a_frame_shows_a_check_are_not_lost(
    nursery: trio.Nursery, autojump_clock: trio.testing.MockClock
) -> None:
    tab = Tab(answers=[(1.2, Response(body=GOOD_BODY))])

    async def show() -> None:
        await trio.sleep(0.1)
        tab.other_urls = [CAPTCHA]

    nursery.start_soon(show)
    assert await submit_form(tab) == GOOD_ROWS


@pytest.mark.parametrize(("shown_at", "seen_at"), [(1, 4), (29, 31)])
async def test_other_responses_do_not_delay_a_check_in_a_frame(
    nursery: trio.Nursery,
    autojump_clock: trio.testing.MockClock,
    shown_at: float,
    seen_at: float,
) -> None:
    other = Response(url="https://affiliate.shopee.vn/api/v3/gql?q=other")
    tab = Tab(answers=[(1.5, other)] * 30)

    async def show() -> None:
        await trio.sleep(shown_at)
        tab.other_urls = [CAPTCHA]

    nursery.start_soon(show)
    await raised(HumanCheck, submit_form(tab))
    assert trio.current_time() < seen_at


# Submitting by the form


async def test_the_form_gets_canonical_links_and_the_sub_ids() -> None:
    tab = Tab(answers=[(0, Response(body=GOOD_BODY))])
    assert await submit_form(tab, "a", "", "c") == GOOD_ROWS
    assert tab.submits == [(URLS, ["a", "", "c"])]
    assert tab.followed[0] == ("POST", "/api/v3/gql")
    assert tab.visited == []


async def test_of_a_foreign_text_an_error_holds_the_beginning() -> None:
    press = {"pressed": False, "why": "why" * 1000, "hint": "hint" * 1000}
    call: JsonValue = {"failed": "failed" * 1000}
    errors = [
        await raised(PortalChanged, submit_form(Tab(press=press))),
        await raised(PortalDown, submit_fetch(Tab(call=call))),
    ]
    for error in errors:
        assert len(str(error)) < 3 * MAX_LINE


async def test_the_pages_other_calls_are_not_taken_for_the_answer() -> None:
    other = Response(url=LINKS_CALL.replace("batchCustomLink", "batchNotice"), body="{}")
    nowhere = Response(url="data://[/api/v3/gql?q=batchCustomLink", body="{}")
    moved = Response(url=LINKS_CALL.replace("?", "?_t=1&"), body=GOOD_BODY)
    answers = [(0.0, response) for response in (other, nowhere, moved)]
    assert await submit_form(Tab(answers=answers)) == GOOD_ROWS


async def test_a_slow_answer_is_waited_for(autojump_clock: trio.testing.MockClock) -> None:
    tab = Tab(answers=[(portal.ANSWER_TIMEOUT - 1, Response(body=GOOD_BODY))])
    assert await submit_form(tab) == GOOD_ROWS


async def test_a_page_that_is_too_busy_now_and_then_does_not_hang(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """It has shown something in between: its answer is waited for."""
    shown: list[Json | Exception] = [look(), CallTimedOut("Runtime.callFunctionOn", 2)]
    tab = Tab(
        looks=[*shown * 5, look()],
        answers=[(portal.ANSWER_TIMEOUT - 5, Response(body=GOOD_BODY))],
    )
    assert await submit_form(tab) == GOOD_ROWS


async def test_no_answer_is_silence_within_a_bound(autojump_clock: trio.testing.MockClock) -> None:
    await raised(PortalSilent, submit_form(Tab()))
    assert trio.current_time() == pytest.approx(portal.ANSWER_TIMEOUT, abs=0.1)


@pytest.mark.parametrize(("url", "error"), [(LOGIN, SessionLost), (CAPTCHA, HumanCheck)])
async def test_a_page_that_leaves_for_one_that_is_never_seen_says_why_by_where_it_is(
    url: str, error: type[Exception], autojump_clock: trio.testing.MockClock
) -> None:
    """Each look meets another document, as on a page that loads itself anew."""
    await raised(error, submit_form(Tab(goes=url, looks=[ContextLost("it went elsewhere")])))


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
        ({"failed": "TypeError", "status": 0}, PortalDown),
        ({"failed": "TypeError", "status": 500}, PortalDown),
        ({"failed": "TypeError", "status": 401}, SessionLost),
        ({"failed": [[]]}, PortalDown),
        (called("<html>", url="http://["), SessionLost),
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


async def test_page_that_left_before_the_call_raises_at_once(
    autojump_clock: trio.testing.MockClock,
) -> None:
    await raised(HumanCheck, submit_fetch(Tab(call=called("", status=302, url=CAPTCHA))))
    assert trio.current_time() == 0


async def test_a_call_whose_page_is_loaded_anew_is_the_browsers_failure() -> None:
    await raised(ContextLost, submit_fetch(Tab(call=ContextLost("reloaded"))))
