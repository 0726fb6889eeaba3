"""The alarm that links are wanted and no cookie is stored."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import trio
from trio.testing import MockClock

from smartlinkd.errors import Invalid
from smartlinkd.logs import LogEvent
from smartlinkd.vault.cookie import parse_cookie

if TYPE_CHECKING:
    from tests.conversion.conftest import Bench

COOKIE = parse_cookie("SPC_U=1001; SPC_EC=first")


async def refused(bench: Bench) -> None:
    with pytest.raises(Invalid, match=r"^cookie: none given and none stored"):
        await bench.convert(bench.link(1), cookie=None)


async def test_alarm_is_set_by_the_first_request_and_ends_with_the_next_sync(
    bench: Bench,
    nursery: trio.Nursery,
    autojump_clock: MockClock,
    caplog: pytest.LogCaptureFixture,
) -> None:
    service = await bench.open(nursery)
    await refused(bench)
    await refused(bench)
    await bench.convert(bench.link(1), cookie=COOKIE)  # a client's own
    assert bench.missing == [True]
    await service.note_synced_cookie(COOKIE, None)
    await service.note_synced_cookie(COOKIE, COOKIE)
    assert bench.missing == [True, False]
    events = [getattr(record, "event", None) for record in caplog.records]
    assert events == [LogEvent.COOKIE_MISSING, LogEvent.COOKIE_BACK]


async def test_alarm_outlives_a_restart_of_the_service(
    bench: Bench, nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    service = bench.make()
    async with trio.open_nursery() as first:
        await first.start(service.run)
        await refused(bench)
        first.cancel_scope.cancel()
    await nursery.start(service.run)
    await refused(bench)
    assert bench.missing == [True]


async def test_alarm_is_not_set_without_a_request_for_the_stored_cookie(
    bench: Bench, nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    service = await bench.open(nursery)
    await bench.convert(bench.link(1), cookie=COOKIE)
    await service.note_synced_cookie(COOKIE, None)
    assert bench.missing == []


async def test_request_that_looked_before_the_sync_sets_no_alarm(
    bench: Bench, nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    service = await bench.open(nursery)
    await service.note_synced_cookie(COOKIE, None)
    await refused(bench)
    assert bench.missing == []


async def test_links_that_need_no_cookie_set_no_alarm(
    bench: Bench, nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    bench.links.needs_cookie = False
    await bench.open(nursery)
    await bench.convert(bench.link(1), cookie=None)
    assert bench.missing == []
