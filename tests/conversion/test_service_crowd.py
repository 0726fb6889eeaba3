"""Many requests at once, clients that leave at any step, and the metrics of the service."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from smartlinkd.conversion.schemas import FailureEntry, LinkResult
from smartlinkd.errors import Refused, Unavailable, UpstreamFailed
from smartlinkd.marketplace.errors import HumanCheck, SessionLost
from smartlinkd.vault.cookie import parse_cookie
from tests.conversion.conftest import Fakes
from tests.fakes.scrape import counted, observed
from tests.hygiene.tasks import all_tasks

if TYPE_CHECKING:
    from tests.conversion.conftest import Ask
    from tests.every_step.driver import AtEveryStep
    from tests.every_step.strike import Strike

OTHER = parse_cookie("SPC_U=2002; SPC_EC=first")
CROWD = 50
CHUNK = 5

# Fifty at once


@pytest.mark.usefixtures("any_order")
async def test_concurrent_requests_for_the_same_links_are_one_submit(
    fakes: Fakes, ask: Ask[Any], autojump_clock: MockClock
) -> None:
    await fakes.open()
    fakes.resolver.known = {fakes.short("five"): fakes.item(5)}
    two_forms = [fakes.short("five"), "s.shopee.vn/five?from=app"]
    links = [*map(fakes.link, range(1, 5)), *two_forms]
    asked = [ask(lambda: fakes.convert(*links)) for _ in range(CROWD)]
    await trio.sleep(30)
    right = {link: fakes.entry(n) for link, n in zip(links, (1, 2, 3, 4, 5, 5), strict=True)}
    assert [one.answer for one in asked] == [right] * CROWD
    assert fakes.links.submitted == [{1, 2, 3, 4, 5}]
    assert fakes.resolver.asked == [fakes.short("five")]
    assert sorted(fakes.products.items) == [1, 2, 3, 4, 5]


@pytest.mark.usefixtures("any_order")
async def test_concurrent_requests_get_their_own_links_by_full_submits(
    fakes: Fakes, ask: Ask[Any], autojump_clock: MockClock
) -> None:
    await fakes.open(chunk=CHUNK)
    kinds = [(cookie, sub_ids) for cookie in (fakes.cookie, OTHER) for sub_ids in [(), ("a",)]]
    asked = []
    for n in range(1, CROWD + 1):
        cookie, sub_ids = kinds[n % 4]
        links = (fakes.link(n), fakes.link(n + CROWD))
        question = partial(fakes.convert, *links, sub_ids=sub_ids, cookie=cookie)
        asked.append((n, cookie, sub_ids, ask(question)))
    await trio.sleep(60)
    for n, cookie, sub_ids, one in asked:
        right = {fakes.link(item): fakes.entry(item, sub_ids, cookie) for item in (n, n + CROWD)}
        assert one.answer == right
    assert fakes.links.most_at_work == {"1001": 1, "2002": 1}
    assert sum(map(len, fakes.links.submitted)) == 2 * CROWD
    # The first submit of each account waits for nobody. Of the others only the last one of each
    # kind may be smaller than the chunk: 24 or 26 links of a kind make 5 or 6 submits.
    assert len(fakes.links.submits) <= 2 * 5 + 2 * 6 + 2


# Leaving at every step


def prepare(fakes: Fakes) -> dict[str, LinkResult]:
    """Work of every kind and what comes of it: a short link, one that is no link, and more products
    than fit a submit.
    """
    fakes.resolver.known = {fakes.short("four"): fakes.item(4)}
    right: dict[str, LinkResult] = {
        fakes.short("four"): fakes.entry(4),
        "no link": FailureEntry(fail_code=10),
    }
    right.update({fakes.link(number): fakes.entry(number) for number in range(1, 4)})
    return right


async def assert_nothing_is_left(fakes: Fakes, before: int) -> None:
    await wait_all_tasks_blocked()
    status = await fakes.service.status()
    assert (status.requests_under_way, status.waiting_submits) == (0, 0)
    at_work = (fakes.links.at_work.total(), fakes.products.at_work, fakes.resolver.at_work)
    assert at_work == (0, 0, 0)
    assert set(fakes.links.most_at_work.values()) <= {1}
    assert len(all_tasks()) == before


@pytest.mark.parametrize("company", [0, 2])
@pytest.mark.parametrize("remember", [0.0, 100.0], ids=["forgetting", "remembering"])
def test_client_leaves_at_every_step_and_nothing_is_left(
    at_every_step: AtEveryStep, company: int, remember: float
) -> None:
    async def scenario(strike: Strike) -> None:
        fakes = Fakes()
        right = prepare(fakes)
        answers: list[dict[str, LinkResult]] = []

        async def convert() -> None:
            answers.append(await fakes.convert(*right))

        async with trio.open_nursery() as nursery:
            await fakes.open(nursery, chunk=2, ttl_s=remember, product_ttl_s=remember)
            await wait_all_tasks_blocked()
            before = len(all_tasks())
            async with trio.open_nursery() as askers:
                for _ in range(company):
                    askers.start_soon(convert)
                with trio.CancelScope() as scope:
                    strike.arm(scope.cancel)
                    await convert()
                strike.disarm()
            await assert_nothing_is_left(fakes, before)
            # Nothing is pending that one could wait for in vain.
            await convert()
            nursery.cancel_scope.cancel()
        assert answers == [right] * (company + 1 + (not scope.cancelled_caught))

    assert at_every_step(scenario) >= 40


def test_service_that_ends_at_every_step_leaves_nobody_waiting(
    at_every_step: AtEveryStep,
) -> None:
    async def scenario(strike: Strike) -> None:
        fakes = Fakes()
        right = prepare(fakes)
        service = fakes.make(chunk=2, timeout_s=30.0)
        answers: list[dict[str, LinkResult]] = []
        refusals: list[Refused] = []

        async def convert() -> None:
            try:
                answers.append(await fakes.convert(*right))
            except Unavailable as refusal:
                refusals.append(refusal)

        async def instances() -> None:
            with trio.CancelScope() as first:
                strike.arm(first.cancel)
                await service.run(trio.TASK_STATUS_IGNORED)
            assert fakes.links.at_work.total() == 0
            await service.run(trio.TASK_STATUS_IGNORED)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(instances)
            async with trio.open_nursery() as askers:
                for _ in range(3):
                    askers.start_soon(convert)
            strike.disarm()
            assert await fakes.convert(*right) == right
            nursery.cancel_scope.cancel()
        assert len(answers) + len(refusals) == 3
        assert answers == [right] * len(answers)

    assert at_every_step(scenario) > 50


SUBMIT = 4.0
READ = 0.5


@pytest.fixture
def slow(fakes: Fakes) -> Fakes:
    fakes.links.seconds = SUBMIT
    fakes.products.seconds = READ
    return fakes


async def convert(slow: Fakes, *numbers: int) -> None:
    await slow.convert(*(slow.link(number) for number in numbers))


async def test_waits_submits_and_reads_are_timed_by_their_outcome(
    slow: Fakes, autojump_clock: MockClock
) -> None:
    slow.links.script = [UpstreamFailed("no")]
    slow.products.script[2] = UpstreamFailed("no")
    service = await slow.open()
    with pytest.raises(UpstreamFailed):
        await convert(slow, 1)
    for number in (2, 3):
        await convert(slow, number)
    assert observed(service.timings.wait) == {"done": (3, 0)}
    assert observed(service.timings.submit) == {
        "UpstreamFailed": (1, SUBMIT),
        "done": (2, 2 * SUBMIT),
    }
    assert observed(service.timings.products) == {
        "UpstreamFailed": (1, READ),
        "done": (1, READ),
    }


async def test_links_are_counted_by_code(slow: Fakes, autojump_clock: MockClock) -> None:
    service = await slow.open()
    await slow.convert(slow.link(1), "https://example.org/")
    await slow.convert(slow.link(1))
    assert counted(service.answered) == {"0": 2, "10": 1}


@pytest.mark.parametrize(
    ("refusal", "code"),
    [(HumanCheck(), "40300"), (SessionLost(), "40300"), (UpstreamFailed("no"), "-1")],
    ids=lambda value: type(value).__name__ if isinstance(value, Refused) else value,
)
async def test_links_of_a_refused_request_are_counted(
    slow: Fakes, autojump_clock: MockClock, refusal: Refused, code: str
) -> None:
    """By the code that they would have had beside one that was made."""
    slow.links.script = [refusal]
    service = await slow.open()
    with pytest.raises(type(refusal)):
        await convert(slow, 1, 2)
    assert counted(service.answered) == {code: 2}
