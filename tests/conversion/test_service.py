"""Conversions when all is well, and the alarm for a missing cookie."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import trio
from trio.testing import MockClock

from smartlinkd.conversion.request import PARSED_IN_PLACE
from smartlinkd.conversion.schemas import SuccessEntry
from smartlinkd.errors import Invalid
from smartlinkd.logs import LogEvent
from smartlinkd.marketplace.answers import FailCode, Row
from smartlinkd.marketplace.errors import HumanCheck
from smartlinkd.marketplace.links import NotALink
from smartlinkd.marketplace.shortlinks import Unresolved
from smartlinkd.threads import NoThread
from tests.conversion.conftest import COOKIE, RENEWED

if TYPE_CHECKING:
    from tests.conversion.conftest import Ask, Fakes
    from tests.shortage import Shortage

DAY = 86_400.0


async def test_missing_long_link_is_the_short_link(fakes: Fakes, autojump_clock: MockClock) -> None:
    await fakes.open()
    fakes.links.script = [[Row("https://s.shopee.vn/x", None, FailCode.SUCCESS)]]
    [entry] = (await fakes.convert(fakes.link(1))).values()
    assert isinstance(entry, SuccessEntry)
    assert (entry.short_link, entry.long_link) == ("https://s.shopee.vn/x",) * 2


@pytest.mark.parametrize("cookie", [None, RENEWED], ids=["none stored", "one stored"])
async def test_source_without_cookies_gets_no_cookie(
    fakes: Fakes, autojump_clock: MockClock, cookie: Any
) -> None:
    fakes.links.needs_cookie = False
    service = await fakes.open()
    assert not service.needs_cookie
    assert await fakes.codes(fakes.link(1), cookie=cookie) == [0]
    assert [submit.cookie for submit in fakes.links.submits] == [None]
    assert "open api" in (await service.status()).accounts


async def test_long_links_are_parsed_on_a_thread_and_short_ones_are_not(
    fakes: Fakes, no_thread: Shortage
) -> None:
    await fakes.open()
    fakes.links.seconds = 0
    around = "x " * (PARSED_IN_PLACE // 2)
    with no_thread():
        assert await fakes.codes(fakes.link(1)) == [0]
        with pytest.raises(NoThread):
            await fakes.codes(around + fakes.link(1))
    assert await fakes.codes(around + fakes.link(1)) == [0]


# Short links and what is gathered


@pytest.mark.usefixtures("any_order")
@pytest.mark.parametrize(
    ("slow", "submitted", "times"),
    [(0.4, [{1, 2, 3}], [0.4]), (2.0, [{1, 2}, {3}], [0.5, 2.0])],
    ids=["shared submit", "half a second at most"],
)
async def test_products_wait_for_short_links_to_share_a_submit(
    fakes: Fakes,
    autojump_clock: MockClock,
    slow: float,
    submitted: list[set[int]],
    times: list[float],
) -> None:
    await fakes.open()
    fakes.resolver.known = {
        fakes.short("two"): fakes.item(2),
        fakes.short("three"): fakes.item(3),
    }
    fakes.resolver.slow = {fakes.short("three"): slow}
    await fakes.convert(fakes.link(1), fakes.short("two"), fakes.short("three"))
    assert (fakes.links.submitted, fakes.links.times) == (submitted, times)


@pytest.mark.parametrize(("found", "code"), [(NotALink("no"), 10), (Unresolved("no"), -1)])
async def test_short_link_that_led_nowhere_is_resolved_again(
    fakes: Fakes, autojump_clock: MockClock, found: Any, code: int
) -> None:
    await fakes.open()
    fakes.resolver.known = {fakes.short("one"): found}
    assert await fakes.codes(fakes.short("one")) == [code]
    fakes.resolver.known = {fakes.short("one"): fakes.item(1)}
    assert await fakes.codes(fakes.short("one")) == [0]


# What is remembered


async def test_links_are_remembered_for_their_time_and_product_data_for_ten_minutes(
    fakes: Fakes, autojump_clock: MockClock
) -> None:
    fakes.resolver.seconds = fakes.links.seconds = fakes.products.seconds = 0.0
    fakes.resolver.known = {fakes.short("one"): fakes.item(1)}
    await fakes.open(ttl_s=DAY)
    for at, asked in (
        (0.0, (1, 1, 1)),
        (599.9, (1, 1, 1)),
        (600.0, (1, 1, 2)),
        (DAY - 0.1, (1, 1, 3)),
        (DAY, (2, 2, 3)),
    ):
        await trio.sleep(at - trio.current_time())
        assert await fakes.convert(fakes.short("one")) == {fakes.short("one"): fakes.entry(1)}
        resolved, submits, reads = fakes.resolver.asked, fakes.links.submits, fakes.products.reads
        assert (len(resolved), len(submits), len(reads)) == asked


async def test_remembered_results_are_bounded(fakes: Fakes, autojump_clock: MockClock) -> None:
    service = await fakes.open(max_cached=2, max_cached_products=3)
    await fakes.convert(*map(fakes.link, range(1, 6)))
    status = await service.status()
    assert (status.remembered_links, status.remembered_products) == (2, 3)


@pytest.mark.parametrize(
    "other", [{"sub_ids": ("a",)}, {"cookie": RENEWED}], ids=["sub-ids", "cookie of the account"]
)
async def test_other_cookie_or_sub_ids_share_no_result(
    fakes: Fakes, autojump_clock: MockClock, other: dict[str, Any]
) -> None:
    await fakes.open()
    await fakes.convert(fakes.link(1))
    entries = await fakes.convert(fakes.link(1), **other)
    assert entries == {fakes.link(1): fakes.entry(1, **other)}
    assert len(fakes.links.submits) == 2


@pytest.mark.parametrize(
    ("said", "code"),
    [(FailCode.INVALID_LINK, 10), (FailCode.UNKNOWN, -1), (FailCode.SUCCESS, -1)],
)
async def test_row_without_a_link_has_its_code_and_is_not_remembered(
    fakes: Fakes, autojump_clock: MockClock, said: FailCode, code: int
) -> None:
    service = await fakes.open()
    fakes.links.script = [[Row(None, None, said)]]
    assert await fakes.codes(fakes.link(1)) == [code]
    assert (await service.status()).remembered_links == 0
    assert await fakes.codes(fakes.link(1)) == [0]


@pytest.mark.usefixtures("any_order")
async def test_link_asked_as_its_submit_ends_is_not_submitted_again(
    fakes: Fakes, ask: Ask[Any], autojump_clock: MockClock
) -> None:
    await fakes.open()
    ask(lambda: fakes.convert(fakes.link(1)))
    await trio.sleep(0.5)
    # Its product has waited for the short link long enough at the very moment the submit ends.
    fakes.resolver.slow = {fakes.short("slow"): 3.0}
    asked = ask(lambda: fakes.convert(fakes.link(1), fakes.short("slow")))
    await trio.sleep(5)
    assert asked.answer[fakes.link(1)] == fakes.entry(1)
    assert fakes.links.submitted == [{1}]


async def refused(fakes: Fakes) -> None:
    with pytest.raises(Invalid, match=r"^cookie: none given and none stored"):
        await fakes.convert(fakes.link(1), cookie=None)


async def test_alarm_is_set_by_the_first_request_and_ends_with_the_next_sync(
    fakes: Fakes, autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    service = await fakes.open()
    await refused(fakes)
    await refused(fakes)
    await fakes.convert(fakes.link(1), cookie=COOKIE)  # a client's own
    assert fakes.missing == [True]
    await service.note_synced_cookie(COOKIE, None)
    await service.note_synced_cookie(COOKIE, COOKIE)
    assert fakes.missing == [True, False]
    events = [getattr(record, "event", None) for record in caplog.records]
    assert events == [LogEvent.COOKIE_MISSING, LogEvent.COOKIE_BACK]


async def test_alarm_and_pause_outlive_a_restart_of_the_service(
    fakes: Fakes, autojump_clock: MockClock
) -> None:
    service = fakes.make()
    fakes.links.script = [HumanCheck()]
    for _ in range(2):  # instances
        async with trio.open_nursery() as nursery:
            await nursery.start(service.run)
            await refused(fakes)
            assert fakes.missing == [True]
            with pytest.raises(HumanCheck):
                await fakes.convert(fakes.link(1))
            assert len(fakes.links.submits) == 1
            nursery.cancel_scope.cancel()


@pytest.mark.parametrize(("needs_cookie", "cookie"), [(True, COOKIE), (False, None)])
async def test_alarm_is_not_set_without_a_request_for_the_stored_cookie(
    fakes: Fakes, autojump_clock: MockClock, needs_cookie: bool, cookie: Any
) -> None:
    fakes.links.needs_cookie = needs_cookie
    service = await fakes.open()
    await fakes.convert(fakes.link(1), cookie=cookie)
    await service.note_synced_cookie(COOKIE, None)
    assert fakes.missing == []
