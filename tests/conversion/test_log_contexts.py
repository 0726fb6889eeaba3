"""Work that is done once for several requests logs all of them."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from smartlinkd.conversion.cache import SingleFlight
from smartlinkd.errors import UpstreamFailed
from smartlinkd.logs import LogContext, bind_log_contexts, current_log_contexts
from smartlinkd.marketplace.links import Product
from tests.conversion.conftest import enqueue, make_queue

if TYPE_CHECKING:
    from collections.abc import Sequence

    from smartlinkd.conversion.sources import MaySend
    from smartlinkd.marketplace.answers import Row
    from smartlinkd.vault.cookie import Cookie
    from tests.conversion.conftest import FakeLinks


async def test_submit_logs_the_requests_of_all_its_links(
    links: FakeLinks,
    nursery: trio.Nursery,
    autojump_clock: MockClock,
    caplog: pytest.LogCaptureFixture,
) -> None:
    seen: list[set[str]] = []

    async def submit(
        cookie: Cookie | None,
        products: Sequence[Product],
        sub_ids: tuple[str, ...],
        may_send: MaySend,
    ) -> Sequence[Row]:
        begun = current_log_contexts()
        try:
            return await links.create(cookie, products, sub_ids, may_send)
        finally:
            seen.append({work.request_id for work in begun})

    async def want(request_id: str, number: int) -> None:
        with bind_log_contexts((LogContext(request_id=request_id),)):
            try:
                await queue.wait_for_row(enqueue(queue, number))
            except UpstreamFailed:
                logging.getLogger("smartlinkd.test").info("%s was refused", request_id)

    queue = make_queue(submit, nursery, chunk=2)
    for request_id, number in (("a", 1), ("b", 2), ("c", 3), ("d", 2)):
        nursery.start_soon(want, request_id, number)
        await wait_all_tasks_blocked()
    await trio.sleep(0.5)  # the first is under way; another one joins it
    nursery.start_soon(want, "e", 1)
    await trio.sleep(10)
    assert seen == [{"a", "e"}, {"b", "c", "d"}]


async def test_shared_work_logs_the_requests_of_all_its_waiters(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    seen: list[set[str]] = []

    async def work() -> None:
        begun = current_log_contexts()
        await trio.sleep(1)
        seen.append({work.request_id for work in begun})

    async def want(request_id: str) -> None:
        with bind_log_contexts((LogContext(request_id=request_id),)):
            await shared.run("a", work)

    shared = SingleFlight[str, None](nursery)
    for request_id in ("a", "b"):
        nursery.start_soon(want, request_id)
        await wait_all_tasks_blocked()
    await trio.sleep(5)
    assert seen == [{"a", "b"}]
