"""The portal's adapter, on a tab of a few lines (its scripts: `test_portal_chromium.py`)."""

from __future__ import annotations

import json
from typing import Any

import pytest
import trio
import trio.testing
from pydantic import JsonValue

from smartlinkd.browser.capture import CapturedResponse
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
    Json,
    Tab,
    answered,
    called,
    look,
    open_links,
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
OTHER_CALL = answered(url="https://affiliate.shopee.vn/api/v3/gql?q=other")


# Opening the page


async def test_links_page_with_usable_form_is_open(
    autojump_clock: trio.testing.MockClock,
) -> None:
    tab = Tab(looks=[look("none"), ContextLost("reloads"), look("disabled"), look("ready")])
    await open_links(tab)
    assert tab.visited == [PAGE]
    assert 0 < trio.current_time() < 1


@pytest.mark.parametrize(
    ("seen", "error"),
    [
        (look("none", url=LOGIN), SessionLost),
        (look("none", password=True), SessionLost),
        (look("none", url=CAPTCHA), HumanCheck),
        (look("none", url="https://shopee.vn/verify/traffic"), HumanCheck),
        (look("none", url=CAPTCHA, password=True), HumanCheck),
        *((look("none", status=status), SessionLost) for status in (401, 403)),
        *((look("none", status=status), PortalDown) for status in (500, 503, 429)),
    ],
)
async def test_links_page_that_shows_a_sign_raises_its_error(
    seen: Json, error: type[Exception], autojump_clock: trio.testing.MockClock
) -> None:
    await raised(error, open_links(Tab(looks=[look("none"), seen])))
    await raised(error, open_links(Tab(lands=seen["url"], looks=[seen])))
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
async def test_links_page_of_json_raises_by_json_before_status(
    answer: str, url: str, error: type[Exception], status: int
) -> None:
    shown = look("none", url=url, status=status, json=answer)
    await raised(error, open_links(Tab(looks=[shown])))


@pytest.mark.parametrize(("status", "error"), [(403, SessionLost), (429, PortalDown)])
@pytest.mark.parametrize("answer", ["", '{"error": 1}', '{"error": 903099', "[90309999]"])
async def test_links_page_of_other_json_raises_by_status(
    answer: str, status: int, error: type[Exception]
) -> None:
    shown = look("none", status=status, json=answer)
    await raised(error, open_links(Tab(looks=[shown])))


async def test_links_page_with_form_and_password_field_is_open() -> None:
    await open_links(Tab(looks=[look("ready", password=True)]))


async def test_form_that_stays_disabled_raises_account_frozen(
    autojump_clock: trio.testing.MockClock,
) -> None:
    await raised(AccountFrozen, open_links(Tab(looks=[look("disabled")])))
    assert trio.current_time() == pytest.approx(portal.FROZEN_AFTER, abs=0.2)


async def test_form_is_given_its_time_after_a_slow_first_look(
    autojump_clock: trio.testing.MockClock,
) -> None:
    looks = [look("disabled"), look("disabled"), look()]
    await open_links(Tab(looks=looks, first_look_s=portal.FROZEN_AFTER))
    assert trio.current_time() > portal.FROZEN_AFTER


async def test_form_that_is_built_anew_is_given_its_time_again(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """By a page that is loaded twice, say: the second one is given its time."""
    being_built = [look("disabled")] * 15  # of two seconds three quarters
    looks = [*being_built, look("none"), *being_built, look()]
    await open_links(Tab(looks=looks))
    assert trio.current_time() > portal.FROZEN_AFTER


UNREADABLE: list[Any] = [None, [], "x", {}, {"form": 5, "status": "x", "url": None}]


@pytest.mark.parametrize("seen", [look("none"), *UNREADABLE])
async def test_links_page_without_readable_form_raises_portal_changed(
    seen: Any, autojump_clock: trio.testing.MockClock
) -> None:
    error = await raised(PortalChanged, open_links(Tab(looks=[seen])))
    assert "has changed" in str(error)
    assert trio.current_time() == pytest.approx(portal.FORM_TIMEOUT, abs=0.2)


# A check in a frame or pop-up


@pytest.mark.parametrize("work", [open_links, submit_form, submit_fetch, read_fetch, read_page])
async def test_check_in_frame_is_raised_before_any_work(work: Any) -> None:
    tab = Tab(other_urls=["https://ads.example/", CAPTCHA])
    await raised(HumanCheck, work(tab))
    assert (tab.visited, tab.submits, tab.calls) == ([], [], [])


async def test_frame_of_another_site_is_no_check() -> None:
    other_urls = ["https://ads.example/verify/captcha", "https://shopee.vn/"]
    tab = Tab(answers=[(0, answered(body=GOOD_BODY))], other_urls=other_urls)
    assert await submit_form(tab) == GOOD_ROWS


@pytest.mark.parametrize("looks", [[look()], [CallTimedOut("Runtime.callFunctionOn", 2.0)]])
@pytest.mark.parametrize("answers", [[], [(1.5, OTHER_CALL)] * 30], ids=["quiet", "other calls"])
async def test_check_in_frame_instead_of_answer_is_raised_soon(
    looks: list[Any],
    answers: list[tuple[float, CapturedResponse]],
    nursery: trio.Nursery,
    autojump_clock: trio.testing.MockClock,
) -> None:
    tab = Tab(looks=looks, answers=answers)
    nursery.start_soon(show_check, tab, 1)
    await raised(HumanCheck, submit_form(tab))
    assert trio.current_time() < 6


async def show_check(tab: Tab, after: float) -> None:
    await trio.sleep(after)
    tab.other_urls = [CAPTCHA]


# Submitting by the form


async def test_submitted_form_holds_canonical_links_and_sub_ids() -> None:
    tab = Tab(answers=[(0, answered(body=GOOD_BODY))])
    assert await submit_form(tab, "a", "", "c") == GOOD_ROWS
    assert tab.submits == [(URLS, ["a", "", "c"])]
    assert tab.followed[0] == ("POST", "/api/v3/gql")
    assert tab.visited == []


async def test_error_of_a_long_foreign_text_is_bounded() -> None:
    press = {"pressed": False, "why": "why" * 1000, "hint": "hint" * 1000}
    call: JsonValue = {"failed": "failed" * 1000}
    errors = [
        await raised(PortalChanged, submit_form(Tab(press=press))),
        await raised(PortalDown, submit_fetch(Tab(call=call))),
    ]
    for error in errors:
        assert len(str(error)) < 3 * MAX_LINE


async def test_other_calls_of_the_page_are_not_the_answer() -> None:
    other = answered(url=LINKS_CALL.replace("batchCustomLink", "batchNotice"), body="{}")
    nowhere = answered(url="data://[/api/v3/gql?q=batchCustomLink", body="{}")
    moved = answered(url=LINKS_CALL.replace("?", "?_t=1&"), body=GOOD_BODY)
    answers = [(0.0, response) for response in (other, nowhere, moved)]
    assert await submit_form(Tab(answers=answers)) == GOOD_ROWS


@pytest.mark.parametrize(
    ("body", "codes"),
    [
        ('{"errors": [{"message": "no", "extensions": {"code": 90000}}], "data": null}', [-1, -1]),
        (links_body(row(101), {"failCode": 2}), [0, 10]),
    ],
)
async def test_failed_rows_are_an_answer(body: str, codes: list[int]) -> None:
    rows = await submit_form(Tab(answers=[(0, answered(body=body))]))
    assert [row.fail_code for row in rows] == codes


async def test_page_that_is_busy_now_and_then_is_waited_for(
    autojump_clock: trio.testing.MockClock,
) -> None:
    shown: list[Json | Exception] = [look(), CallTimedOut("Runtime.callFunctionOn", 2)]
    tab = Tab(
        looks=[*shown * 5, look()],
        answers=[(portal.ANSWER_TIMEOUT - 5, answered(body=GOOD_BODY))],
    )
    assert await submit_form(tab) == GOOD_ROWS


async def test_submit_without_answer_raises_portal_silent(
    autojump_clock: trio.testing.MockClock,
) -> None:
    await raised(PortalSilent, submit_form(Tab()))
    assert trio.current_time() == pytest.approx(portal.ANSWER_TIMEOUT, abs=0.1)


GONE = ContextLost("it went elsewhere")
HANGS = CallTimedOut("Runtime.callFunctionOn", 10)
NO_FORM: JsonValue = {"pressed": False, "why": "it has no text area for the links"}


def without_answer(*looks: Json | Exception, status: int = 0, lands: str = PAGE) -> Tab:
    """A tab whose page loses the answer to its submit."""
    lost = answered(status=status, lost="the page went elsewhere")
    return Tab(looks=looks, lands=lands, answers=[(0, lost)])


@pytest.mark.parametrize(
    ("tab", "error"),
    [
        (Tab(goes=LOGIN, looks=[GONE]), SessionLost),
        (Tab(goes=CAPTCHA, looks=[GONE]), HumanCheck),
        (Tab(lands=LOGIN, looks=[HANGS]), SessionLost),
        (Tab(lands=CAPTCHA, looks=[HANGS]), HumanCheck),
        (Tab(looks=[look(), look("none", url=LOGIN)]), SessionLost),
        (Tab(looks=[look(), look("none", url=CAPTCHA)]), HumanCheck),
        (Tab(press=GONE, looks=[look("none", url=LOGIN)]), SessionLost),
        (Tab(press=GONE, looks=[look("none", url=CAPTCHA)]), HumanCheck),
        (Tab(press=GONE, looks=[look()]), ContextLost),
        (Tab(press=NO_FORM, looks=[look("none", url=LOGIN)]), SessionLost),
        (Tab(press=NO_FORM, looks=[GONE, look("none", url=LOGIN)]), SessionLost),
        (Tab(press=NO_FORM, looks=[GONE]), PortalChanged),
        (without_answer(look()), PortalDown),
        (without_answer(look(), status=200), PortalDown),
        (without_answer(look(), status=401), SessionLost),
        (without_answer(look("none", url=LOGIN)), SessionLost),
        (without_answer(look("none", url=CAPTCHA), status=403), HumanCheck),
        (without_answer(GONE, look("none", url=CAPTCHA), status=403), HumanCheck),
        (without_answer(GONE), PortalDown),
        (without_answer(GONE, lands=LOGIN), SessionLost),
        (without_answer(GONE, lands=CAPTCHA), HumanCheck),
    ],
)
async def test_submit_without_answer_raises_by_state_of_page_and_status(
    tab: Tab, error: type[Exception], autojump_clock: trio.testing.MockClock
) -> None:
    await raised(error, submit_form(tab))
    assert trio.current_time() < portal.ANSWER_TIMEOUT + 1


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
async def test_form_that_is_not_pressed_raises_why(
    press: JsonValue, error: type[Exception], says: str
) -> None:
    assert says in str(await raised(error, submit_form(Tab(press=press))))


# Submitting by the page's own call


async def test_fetch_sends_the_call_of_the_portals_own_page() -> None:
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
async def test_failed_call_raises_its_error(call: JsonValue, error: type[Exception]) -> None:
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
async def test_call_broken_off_by_leaving_page_raises_by_new_address(
    broken: Any,
    seen: Json,
    error: type[Exception],
    refusal: type[Exception],
    autojump_clock: trio.testing.MockClock,
) -> None:
    looks: list[Json | Exception] = [ContextLost("on its way"), seen]
    await raised(error, submit_fetch(Tab(call=broken, looks=looks)))
    await raised(refusal, read_fetch(Tab(call=broken, looks=looks)))


async def test_call_of_a_reloaded_page_raises_context_lost() -> None:
    await raised(ContextLost, submit_fetch(Tab(call=ContextLost("reloaded"))))
