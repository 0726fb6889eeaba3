"""Redirects and pages that do not come, on a tab of a few lines."""

from __future__ import annotations

from typing import Any

import pytest
import trio
import trio.testing

from smartlinkd.browser.capture import CapturedResponse
from smartlinkd.browser.errors import CallTimedOut, ContextLost, NavigationFailed
from smartlinkd.conversion.sources import READ_WITHIN
from smartlinkd.marketplace.errors import (
    HumanCheck,
    PortalDown,
    ProductsRefused,
    SessionLost,
)
from smartlinkd.marketplace.page_state import LOGIN_TIMEOUT
from tests.marketplace.tabs import (
    CAPTCHA,
    LINKS_CALL,
    LOGIN,
    PAGE,
    PRODUCT_CALL,
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

PRODUCT_PAGE = "https://affiliate.shopee.vn/offer/product_offer/101"


def redirected(url: str, led_to: str | None) -> Tab:
    """A tab whose call is answered with a redirect; where it leads shows a little later."""
    detour = [(0.3, answered(status=0, url=led_to, lost="net::ERR_FAILED"))] if led_to else []
    answer = (0.0, answered(status=302, url=url))
    return Tab(call=called("", status=302, url=url), answers=[answer, *detour])


async def test_check_behind_another_redirect_raises_human_check(
    autojump_clock: trio.testing.MockClock,
) -> None:
    gone = NavigationFailed(PAGE, "it was not there within 30 s")
    gate = "https://affiliate.shopee.vn/anti/x"
    answers = [(0.0, hop(PAGE, gate)), (0.0, hop(gate, CAPTCHA))]
    tab = Tab(fails=gone, fails_after=30, answers=answers, reports_all=True)
    await raised(HumanCheck, open_links(tab))


@pytest.mark.parametrize(
    ("work", "url", "lost", "down"),
    [
        (submit_form, LINKS_CALL, SessionLost, PortalDown),
        (submit_fetch, LINKS_CALL, SessionLost, PortalDown),
        (read_fetch, PRODUCT_CALL, ProductsRefused, ProductsRefused),
        (read_page, PRODUCT_CALL, ProductsRefused, ProductsRefused),
    ],
)
async def test_redirected_call_raises_by_where_it_leads(
    work: Any,
    url: str,
    lost: type[Exception],
    down: type[Exception],
    autojump_clock: trio.testing.MockClock,
) -> None:
    for led_to, error in ((LOGIN, lost), (CAPTCHA, HumanCheck), (None, down)):
        await raised(error, work(redirected(url, led_to)))


@pytest.mark.parametrize("way", [(LOGIN, CAPTCHA), (CAPTCHA, LOGIN)])
async def test_redirect_past_login_and_check_raises_human_check(
    way: tuple[str, ...], autojump_clock: trio.testing.MockClock
) -> None:
    seen = [(0.0, answered(status=302, url=url)) for url in way]
    tab = Tab(answers=[*seen, (0.3, answered(status=302, url=LINKS_CALL))])
    await raised(HumanCheck, submit_form(tab))


async def test_redirect_to_check_is_raised_before_its_page_comes(
    autojump_clock: trio.testing.MockClock,
) -> None:
    redirect = answered(status=302, url=LINKS_CALL, leads_to=CAPTCHA)
    await raised(HumanCheck, submit_form(Tab(answers=[(0.3, redirect)])))
    assert trio.current_time() == pytest.approx(0.3, abs=0.1)


@pytest.mark.parametrize(
    ("seen", "error", "after"),
    [
        ([], SessionLost, LOGIN_TIMEOUT),
        ([answered(status=200, url=LOGIN)], SessionLost, 1.0),
        ([answered(status=302, url=LOGIN, leads_to=CAPTCHA)], HumanCheck, 1.0),
    ],
    ids=["a slow one", "its page comes", "it leads on to a check"],
)
async def test_redirect_to_login_is_raised_when_it_does_not_lead_on(
    seen: list[CapturedResponse],
    error: type[Exception],
    after: float,
    autojump_clock: trio.testing.MockClock,
) -> None:
    redirect = answered(status=302, url=LINKS_CALL, leads_to=LOGIN)
    later = [(1.0, response) for response in seen]
    await raised(error, submit_form(Tab(answers=[(0.0, redirect), *later])))
    assert trio.current_time() == pytest.approx(after, abs=0.1)


# Where a load leads to

HANGS = CallTimedOut("Runtime.callFunctionOn", 10)
HANGS_WITHIN = 12


@pytest.mark.parametrize("opens", [open_links, read_page])
@pytest.mark.parametrize(("leads_to", "error"), [(CAPTCHA, HumanCheck), (LOGIN, SessionLost)])
@pytest.mark.parametrize("after", [0, 30], ids=["at once", "when its time is up"])
async def test_page_that_never_comes_raises_by_its_redirects(
    opens: Any,
    leads_to: str,
    error: type[Exception],
    after: float,
    autojump_clock: trio.testing.MockClock,
) -> None:
    gone = NavigationFailed("https://shopee.vn/", "net::ERR_CONNECTION_RESET")
    asked = PRODUCT_PAGE if opens is read_page else PAGE
    tab = Tab(fails=gone, fails_after=after, answers=[(0, hop(asked, leads_to))])
    if opens is read_page and error is SessionLost:
        error = ProductsRefused
    began = trio.current_time()
    await raised(error, opens(tab))
    assert trio.current_time() - began < (1 if error is HumanCheck else 31)


@pytest.mark.parametrize(("url", "error"), [(CAPTCHA, HumanCheck), (LOGIN, SessionLost)])
async def test_page_that_never_comes_raises_by_its_last_address(
    url: str, error: type[Exception], autojump_clock: trio.testing.MockClock
) -> None:
    gone = NavigationFailed(PAGE, "it was not there within 30 s")
    await raised(error, open_links(Tab(lands=url, fails=gone, fails_after=30)))


@pytest.mark.parametrize(
    "hops",
    [
        [],
        [answered(status=200, url=CAPTCHA)],
        [answered(status=200, url="https://accounts.google.com/gsi/client")],
    ],
    ids=["nothing", "a check", "a login"],
)
async def test_other_requests_of_a_page_are_no_sign(
    hops: list[CapturedResponse], autojump_clock: trio.testing.MockClock
) -> None:
    answers = [(0.0, each) for each in hops]
    await open_links(Tab(answers=answers))
    gone = NavigationFailed(PAGE, "net::ERR_CONNECTION_RESET")
    assert await raised(NavigationFailed, open_links(Tab(fails=gone, answers=answers))) is gone


async def test_login_that_leads_on_is_no_sign(autojump_clock: trio.testing.MockClock) -> None:
    """A session that is renewed on the way, of which the page then breaks off."""
    gone = NavigationFailed(PAGE, "net::ERR_CONNECTION_RESET")
    ticket = f"{PAGE}?ticket=1"
    answers = [(0.0, hop(PAGE, LOGIN)), (0.0, hop(LOGIN, ticket))]
    tab = Tab(fails=gone, fails_after=1, answers=answers, reports_all=True)
    await raised(NavigationFailed, open_links(tab))


@pytest.mark.parametrize(
    ("status", "error"),
    [(401, SessionLost), (403, SessionLost), (503, PortalDown), (0, NavigationFailed)],
)
async def test_page_replaced_by_browser_error_raises_by_its_status(
    status: int, error: type[Exception], autojump_clock: trio.testing.MockClock
) -> None:
    failed = NavigationFailed("https://shopee.vn/", "net::ERR_HTTP_RESPONSE_CODE_FAILURE")
    came = answered(status=status, url=PAGE, lost="net::ERR_ABORTED")
    tab = Tab(fails=failed, answers=[(0, hop(PAGE, PAGE)), (0, came)])
    await raised(error, open_links(tab))


@pytest.mark.parametrize("opens", [open_links, read_page])
@pytest.mark.parametrize(
    "sees",
    [HANGS, look("none", url="chrome-error://chromewebdata/"), ContextLost("it goes")],
    ids=["busy", "broken off", "unseen"],
)
@pytest.mark.parametrize("after", [0, 30], ids=["at once", "in the end"])
async def test_unreadable_check_that_a_script_leaves_for_raises_human_check(
    opens: Any, sees: Any, after: int, autojump_clock: trio.testing.MockClock
) -> None:
    tab = Tab(goes=CAPTCHA, looks=[*after * [look("none")], sees])
    await raised(HumanCheck, opens(tab))
    assert trio.current_time() < READ_WITHIN + after


async def test_login_that_a_script_leaves_for_refuses_product_data_only(
    autojump_clock: trio.testing.MockClock,
) -> None:
    await raised(SessionLost, open_links(Tab(goes=LOGIN, looks=[ContextLost("it goes")])))
    await raised(ProductsRefused, read_page(Tab(goes=LOGIN, looks=[HANGS])))
    await raised(ProductsRefused, read_page(Tab(goes=LOGIN, looks=[ContextLost("it goes")])))


async def test_page_that_only_hangs_raises_its_timeout(
    autojump_clock: trio.testing.MockClock,
) -> None:
    await raised(CallTimedOut, open_links(Tab(looks=[HANGS])))
    began = trio.current_time()
    await raised(CallTimedOut, submit_form(Tab(looks=[HANGS])))
    assert trio.current_time() - began < HANGS_WITHIN


def hop(url: str, leads_to: str) -> CapturedResponse:
    return answered(status=302, url=url, leads_to=leads_to)
