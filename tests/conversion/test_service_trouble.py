"""When not all is well: what is answered part-way, what is raised, what a pause stops."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from smartlinkd.conversion.request import ConversionRequest
from smartlinkd.errors import Refused, Unavailable, UpstreamFailed
from smartlinkd.marketplace.errors import HumanCheck, PortalDown, SessionLost
from smartlinkd.vault.cookie import parse_cookie
from tests.conversion.conftest import RENEWED

if TYPE_CHECKING:
    from tests.conversion.conftest import Ask, Fakes

OTHER = parse_cookie("SPC_U=2002; SPC_EC=first")
FOREIGN = "https://example.org/a-thing-i.7.1"
PATIENCE = 60.0
MAX_REQUESTS = 20

BUSY = Unavailable("the browser is starting", retry_after=2)
DOWN = PortalDown("HTTP 500")


# Part-way


@pytest.mark.parametrize(
    ("refusal", "code", "submits"),
    [(SessionLost(), 40300, 2), (HumanCheck(), 40300, 2), (DOWN, -1, 3), (BUSY, -1, 3)],
    ids=["session lost", "human check", "portal down", "browser gone"],
)
async def test_converted_links_are_answered_beside_a_refusal(
    fakes: Fakes, autojump_clock: MockClock, refusal: Refused, code: int, submits: int
) -> None:
    """A lost session or a human check stops further submits."""
    await fakes.open(chunk=2)
    fakes.links.script = [1.0, refusal, refusal]
    links = [fakes.link(number) for number in range(1, 6)]
    codes = await fakes.codes(*links, FOREIGN)
    assert sorted(codes[:5]) == sorted([0, 0, code, code, code])
    assert codes[5] == 10
    assert len(fakes.links.submits) == submits


# Nothing converted


@pytest.mark.parametrize(
    ("refusals", "gravest"),
    [
        *(([refusal], type(refusal)) for refusal in (SessionLost(), HumanCheck(), DOWN, BUSY)),
        ([BUSY, DOWN, HumanCheck()], HumanCheck),
        ([BUSY, DOWN, SessionLost()], SessionLost),
        ([BUSY, DOWN], PortalDown),
        ([DOWN, BUSY], PortalDown),
    ],
)
async def test_gravest_refusal_is_raised_if_nothing_was_converted(
    fakes: Fakes, autojump_clock: MockClock, refusals: list[Refused], gravest: type[Refused]
) -> None:
    await fakes.open(chunk=1)
    fakes.links.script = list(refusals)
    links = [fakes.link(number + 1) for number in range(len(refusals))]
    with pytest.raises(Refused) as caught:
        await fakes.convert(FOREIGN, *links)
    assert type(caught.value) is gravest
    assert caught.value in refusals
    assert len(fakes.links.submits) == len(refusals)


async def test_missing_row_is_a_bug_that_ends_the_service(
    autojump_clock: MockClock, fakes: Fakes
) -> None:
    with pytest.RaisesGroup(ValueError, flatten_subgroups=True):
        async with trio.open_nursery() as nursery:
            await fakes.open(nursery)
            fakes.links.script = [[]]
            with pytest.raises(Unavailable):
                await fakes.convert(fakes.link(1))


# Deadlines


async def test_links_made_by_the_deadline_are_answered(
    fakes: Fakes, ask: Ask[Any], autojump_clock: MockClock
) -> None:
    await fakes.open(timeout_s=PATIENCE, chunk=2)
    fakes.links.script = [1.0, fakes.silent]
    links = [FOREIGN, *map(fakes.link, range(1, 5))]
    asked = ask(lambda: fakes.codes(*links))
    await trio.sleep(2 * PATIENCE)
    assert asked.at == PATIENCE
    assert asked.answer[0] == 10
    assert sorted(asked.answer[1:]) == [-1, -1, 0, 0]


async def test_deadline_includes_the_wait_for_a_restarting_service(
    fakes: Fakes, ask: Ask[Any], autojump_clock: MockClock
) -> None:
    fakes.make(timeout_s=PATIENCE)
    asked = ask(lambda: fakes.convert(fakes.link(1)))
    await trio.sleep(2 * PATIENCE)
    assert isinstance(asked.refusal, Unavailable)
    assert asked.at == PATIENCE + 1


# Paused


async def test_paused_account_follows_no_new_short_link(
    fakes: Fakes, autojump_clock: MockClock
) -> None:
    await fakes.open()
    fakes.resolver.known = {fakes.short(name): fakes.item(1) for name in ("one", "two")}
    remembered = await fakes.convert(fakes.short("one"))
    fakes.links.script = [HumanCheck()]
    with pytest.raises(HumanCheck):
        await fakes.convert(fakes.link(2))
    assert await fakes.convert(fakes.short("one")) == remembered
    with pytest.raises(HumanCheck):
        await fakes.convert(fakes.short("two"))
    assert await fakes.codes(fakes.short("two"), fakes.link(1), FOREIGN) == [40300, 0, 10]
    assert fakes.resolver.asked == [fakes.short("one")]
    assert await fakes.codes(fakes.short("two"), cookie=OTHER) == [0]


async def test_account_without_user_id_ends_with_its_cookie(
    fakes: Fakes, autojump_clock: MockClock
) -> None:
    first, second = (parse_cookie(f"SPC_EC={which}") for which in ("first", "second"))
    service = await fakes.open()
    fakes.links.script = [HumanCheck()]
    with pytest.raises(HumanCheck):
        await fakes.convert(fakes.link(1), cookie=first)
    await service.note_synced_cookie(second, first)
    statuses = {it.status for it in (await service.status()).accounts.values()}
    assert statuses == {"active"}


@pytest.mark.parametrize("trouble", [HumanCheck, SessionLost])
async def test_replaced_account_in_trouble_is_listed_until_the_owner_clears_it(
    fakes: Fakes, autojump_clock: MockClock, trouble: type[HumanCheck | SessionLost]
) -> None:
    service = await fakes.open()
    fakes.links.script = [trouble()]
    with pytest.raises(trouble):
        await fakes.convert(fakes.link(1))
    await service.note_synced_cookie(OTHER, fakes.cookie)
    statuses = {account: it.status for account, it in (await service.status()).accounts.items()}
    lost = trouble is SessionLost
    assert statuses == {"1001": "session lost" if lost else "paused", "2002": "active"}
    await service.clear_accounts()
    assert list((await service.status()).accounts) == ["2002"]


# Full


async def test_full_queue_refuses_requests_and_serves_remembered_links(
    fakes: Fakes, ask: Ask[Any], autojump_clock: MockClock
) -> None:
    service = await fakes.open(chunk=1, max_waiting_submits=2)
    await fakes.convert(fakes.link(1))
    fakes.links.seconds = 30.0
    for number in (2, 3, 4):
        ask(lambda number=number: fakes.convert(fakes.link(number)))  # type: ignore[misc]
    await wait_all_tasks_blocked()
    assert (await service.status()).waiting_submits == 2
    with pytest.raises(Unavailable, match=r"browser\.queue"):
        await fakes.convert(FOREIGN, fakes.link(5), fakes.link(6))
    assert await fakes.codes(fakes.link(1), FOREIGN) == [0, 10]
    assert (await service.status()).waiting_submits == 2


async def test_service_full_of_requests_refuses_one_more_and_still_reports_its_status(
    fakes: Fakes, ask: Ask[Any], autojump_clock: MockClock
) -> None:
    service = await fakes.open(max_requests=MAX_REQUESTS, timeout_s=PATIENCE)
    fakes.links.script = [fakes.silent]
    order = ConversionRequest((fakes.link(1),), (), fakes.cookie, "owner")
    asked = []
    for _ in range(MAX_REQUESTS):
        asked.append(ask(lambda: service.convert(order)))
    await wait_all_tasks_blocked()
    with pytest.raises(Unavailable, match=str(MAX_REQUESTS)):
        await service.convert(order)
    status = await service.status()
    await service.note_synced_cookie(RENEWED, None)
    assert await service.clear_accounts() == 0
    assert status.requests_under_way == MAX_REQUESTS
    assert trio.current_time() == 0
    await trio.sleep(2 * PATIENCE)
    assert {type(one.refusal) for one in asked} == {UpstreamFailed}
