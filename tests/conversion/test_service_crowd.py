"""Many at once, and anybody may leave at any step: nobody else notices, and nothing is left."""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING, Any

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from smartlinkd.conversion.request import ConversionRequest, Failed, LinkResult
from smartlinkd.conversion.service import ConversionService
from smartlinkd.errors import Refused, Unavailable, UpstreamFailed
from smartlinkd.marketplace.errors import HumanCheck, SessionLost
from smartlinkd.vault.cookie import parse_cookie
from tests.hygiene.tasks import all_tasks

if TYPE_CHECKING:
    from tests.conversion.conftest import Ask, Bench, NewBench
    from tests.every_step.driver import AtEveryStep
    from tests.every_step.strike import Strike

OTHER = parse_cookie("SPC_U=2002; SPC_EC=first")
CROWD = 50
CHUNK = 5


# Fifty at once


@pytest.mark.usefixtures("any_order")
async def test_fifty_requests_for_the_same_links_are_one_submit(
    bench: Bench, nursery: trio.Nursery, ask: Ask[Any], autojump_clock: MockClock
) -> None:
    await bench.open(nursery)
    bench.resolver.known = {bench.short("five"): bench.item(5)}
    links = [*map(bench.link, range(1, 5)), bench.short("five")]
    asked = [ask(lambda: bench.convert(*links)) for _ in range(CROWD)]
    await trio.sleep(30)
    right = {link: bench.entry(number) for number, link in enumerate(links, 1)}
    assert [one.answer for one in asked] == [right] * CROWD
    assert bench.links.submitted == [{1, 2, 3, 4, 5}]
    assert bench.resolver.asked == [bench.short("five")]
    assert bench.products is not None
    assert sorted(bench.products.items) == [1, 2, 3, 4, 5]


@pytest.mark.usefixtures("any_order")
async def test_fifty_requests_for_other_links_are_merged_into_full_submits(
    bench: Bench, nursery: trio.Nursery, ask: Ask[Any], autojump_clock: MockClock
) -> None:
    await bench.open(nursery, chunk=CHUNK)
    asked = [
        ask(lambda n=n: bench.convert(bench.link(n), bench.link(n + CROWD)))  # type: ignore[misc]
        for n in range(1, CROWD + 1)
    ]
    await trio.sleep(60)
    for n, one in enumerate(asked, 1):
        assert one.answer == {
            bench.link(n): bench.entry(n),
            bench.link(n + CROWD): bench.entry(n + CROWD),
        }
    # The first submit waits for nobody; of the others only the last one may be smaller.
    assert [len(items) for items in bench.links.submitted[1:-1]] == [CHUNK] * (
        len(bench.links.submits) - 2
    )
    assert len(bench.links.submits) <= 1 + 2 * CROWD / CHUNK
    assert sum(map(len, bench.links.submitted)) == 2 * CROWD
    assert bench.links.most_at_work == {"1001": 1}


@pytest.mark.usefixtures("any_order")
async def test_requests_are_served_in_the_order_in_which_they_came(
    bench: Bench, nursery: trio.Nursery, ask: Ask[Any], autojump_clock: MockClock
) -> None:
    await bench.open(nursery, chunk=4)
    for first in (1, 11, 21, 31):
        links = [bench.link(number) for number in range(first, first + 4)]
        ask(lambda links=links: bench.convert(*links))  # type: ignore[misc]
        await wait_all_tasks_blocked()
    await trio.sleep(30)
    assert bench.links.submitted == [{*range(first, first + 4)} for first in (1, 11, 21, 31)]


@pytest.mark.usefixtures("any_order")
async def test_fifty_requests_of_two_accounts_with_two_sets_of_sub_ids_each_get_their_own(
    bench: Bench, nursery: trio.Nursery, ask: Ask[Any], autojump_clock: MockClock
) -> None:
    await bench.open(nursery, chunk=CHUNK)
    kinds = [(cookie, sub_ids) for cookie in (bench.cookie, OTHER) for sub_ids in [(), ("a",)]]
    asked = []
    for n in range(1, CROWD + 1):
        cookie, sub_ids = kinds[n % 4]
        asked.append(
            (n, cookie, sub_ids, ask(_converting(bench.service, bench.link(n), sub_ids, cookie)))
        )
    await trio.sleep(60)
    for n, cookie, sub_ids, one in asked:
        assert one.answer == {bench.link(n): bench.entry(n, sub_ids, cookie)}
    assert bench.links.most_at_work == {"1001": 1, "2002": 1}
    # 12 or 13 links of each kind make 3 submits; the first of each account may be one more.
    assert len(bench.links.submits) <= 4 * 3 + 2


def _converting(
    service: ConversionService, link: str, sub_ids: tuple[str, ...], cookie: Any
) -> Any:
    return lambda: service.convert(ConversionRequest((link,), sub_ids, cookie))


# Leaving at every step


def prepare(bench: Bench) -> dict[str, LinkResult]:
    """Work of every kind and what comes of it: a short link, one that is no link, and more products
    than fit a submit.
    """
    bench.resolver.known = {bench.short("four"): bench.item(4)}
    right: dict[str, LinkResult] = {bench.short("four"): bench.entry(4), "no link": Failed(10)}
    right.update({bench.link(number): bench.entry(number) for number in range(1, 4)})
    return right


async def assert_nothing_is_left(bench: Bench, before: int) -> None:
    await wait_all_tasks_blocked()
    status = await bench.service.status()
    assert (status.waiting_requests, status.waiting_submits) == (0, 0)
    assert bench.products is not None
    at_work = (bench.links.at_work.total(), bench.products.at_work, bench.resolver.at_work)
    assert at_work == (0, 0, 0)
    assert set(bench.links.most_at_work.values()) <= {1}
    assert len(all_tasks()) == before


@pytest.mark.parametrize("company", [0, 2])
@pytest.mark.parametrize("remember", [0.0, 100.0], ids=["forgetting", "remembering"])
def test_an_asker_leaves_at_every_step(
    at_every_step: AtEveryStep,
    new_bench: NewBench,
    company: int,
    remember: float,
) -> None:
    async def scenario(strike: Strike) -> None:
        bench = new_bench()
        right = prepare(bench)
        answers: list[dict[str, LinkResult]] = []

        async def convert() -> None:
            answers.append(await bench.convert(*right))

        async with trio.open_nursery() as nursery:
            await bench.open(nursery, chunk=2, ttl_s=remember, product_ttl_s=remember)
            await wait_all_tasks_blocked()
            before = len(all_tasks())
            async with trio.open_nursery() as askers:
                for _ in range(company):
                    askers.start_soon(convert)
                with trio.CancelScope() as scope:
                    strike.arm(scope.cancel)
                    await convert()
                strike.disarm()
            await assert_nothing_is_left(bench, before)
            # Nothing is pending that one could wait for in vain.
            await convert()
            nursery.cancel_scope.cancel()
        assert answers == [right] * (company + 1 + (not scope.cancelled_caught))

    assert at_every_step(scenario) >= 40


def test_service_that_ends_at_every_step_leaves_nobody_waiting(
    at_every_step: AtEveryStep, new_bench: NewBench
) -> None:
    async def scenario(strike: Strike) -> None:
        bench = new_bench()
        right = prepare(bench)
        service = bench.make(chunk=2, timeout_s=30.0)
        answers: list[dict[str, LinkResult]] = []
        refusals: list[Refused] = []

        async def convert() -> None:
            try:
                answers.append(await bench.convert(*right))
            except Unavailable as refusal:
                refusals.append(refusal)

        async def instances() -> None:
            with trio.CancelScope() as first:
                strike.arm(first.cancel)
                await service.run(trio.TASK_STATUS_IGNORED)
            assert bench.links.at_work.total() == 0
            await service.run(trio.TASK_STATUS_IGNORED)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(instances)
            async with trio.open_nursery() as askers:
                for _ in range(3):
                    askers.start_soon(convert)
            strike.disarm()
            assert await bench.convert(*right) == right
            nursery.cancel_scope.cancel()
        assert len(answers) + len(refusals) == 3
        assert answers == [right] * len(answers)

    assert at_every_step(scenario) > 50


@pytest.mark.parametrize("trouble", [HumanCheck(), SessionLost(), UpstreamFailed("no")])
def test_client_leaves_a_service_in_trouble_at_every_step(
    at_every_step: AtEveryStep, new_bench: NewBench, trouble: Refused
) -> None:
    async def scenario(strike: Strike) -> None:
        bench = new_bench()
        bench.links.script = [1.0, trouble]
        codes: list[list[int]] = []

        async def convert(*links: str) -> None:
            try:
                codes.append(await bench.codes(*links))
            except UpstreamFailed as refusal:
                assert type(refusal) is type(trouble)  # noqa: PT017 - any other one, or none, is right too

        async with trio.open_nursery() as nursery:
            await bench.open(nursery, chunk=1)
            await wait_all_tasks_blocked()
            before = len(all_tasks())
            async with trio.open_nursery() as askers:
                askers.start_soon(convert, bench.link(3), bench.link(4))
                with trio.move_on_at(inf) as scope:
                    strike.arm(scope.cancel)
                    await convert(bench.link(1), bench.link(2))
                strike.disarm()
            await assert_nothing_is_left(bench, before)
            await bench.service.clear_accounts()
            assert await bench.codes(*map(bench.link, range(1, 5))) == [0] * 4
            nursery.cancel_scope.cancel()
        # Who got an answer got a link; the trouble says why not the other one.
        assert all(0 in found and {*found} <= {0, -1, 40300} for found in codes)

    assert at_every_step(scenario) >= 20
