"""The conversions and the cookie syncs of a soak."""

from __future__ import annotations

from collections.abc import Iterable

import httpx
import trio

from tests.programs import Account
from tests.soak.jobs import Conversion, Kind, Link, Manner, Sync
from tests.soak.world import Json, UnexpectedAnswer, World, describe, expect_ok

REFUSALS = (502, 503)


async def convert(world: World, http: httpx.AsyncClient, job: Conversion) -> None:
    """Send one request, or several at once.

    Raises:
        UnexpectedAnswer: An answer was wrong.
    """
    account = world.accounts[job.account]
    if job.has_new_session:
        account.renew()
    match job.manner:
        case Manner.FAULT:
            await _convert_with_fault(world, http, job)
        case Manner.LEAVES:
            with trio.move_on_after(job.patience) as leaving:
                await _convert(world, http, job, job.requests[0], account)
            if leaving.cancelled_caught:
                world.results.other_counts["clients that left"] += 1
        case _:
            sender = None if job.manner is Manner.STORED else account
            async with trio.open_nursery() as nursery:
                for links in job.requests:
                    nursery.start_soon(_convert, world, http, job, links, sender)


async def _convert(
    world: World,
    http: httpx.AsyncClient,
    job: Conversion,
    links: tuple[Link, ...],
    account: Account | None,
) -> None:
    """Send a request with the account's cookie. None is for the stored cookie."""
    began, known_index = trio.current_time(), world.stored.known_index
    body: Json = {"links": [world.text(link) for link in links], "subIds": job.sub_ids}
    if account is not None:
        body["cookie"] = account.cookie
    answer = await world.convert(http, body)
    is_undisturbed = world.was_undisturbed(began)
    if answer.status_code in REFUSALS and not is_undisturbed:
        world.results.other_counts["conversions refused in a crash"] += 1
        return
    mapping = expect_ok(answer)["mapping"]
    numbers = {account.number} if account else world.stored.possible_since(known_index)
    _check(world, job, links, mapping, numbers, is_undisturbed=is_undisturbed)
    world.results.jobs_done[Kind.CONVERSION] += 1
    world.results.other_counts["links"] += len(links)


def _check(
    world: World,
    job: Conversion,
    links: tuple[Link, ...],
    mapping: Json,
    numbers: Iterable[str],
    *,
    is_undisturbed: bool,
) -> None:
    """Check the answer. `numbers` are the accounts whose cookie may have been used.

    Raises:
        UnexpectedAnswer: The answer is wrong for each of the accounts.
    """
    if list(mapping) != list(dict.fromkeys(world.text(link) for link in links)):
        raise UnexpectedAnswer(f"asked for {links}, given {list(mapping)}")
    faults = []
    for number in numbers:
        try:
            for link in links:
                world.check_entry(
                    link,
                    mapping[world.text(link)],
                    number,
                    job.sub_ids,
                    is_undisturbed=is_undisturbed,
                )
        except UnexpectedAnswer as fault:
            faults.append(fault)
        else:
            return
    raise faults[0]


async def _convert_with_fault(world: World, http: httpx.AsyncClient, job: Conversion) -> None:
    """Send a request that meets a fault of the portal; the account's next request meets none."""
    account = world.fault_account
    ((link,),) = job.requests
    async with world.fault_lock:
        began = trio.current_time()
        fault = {"fault": job.fault, "times": 1, "account": account.number}
        await world.ask_portal(http, "POST", "faults", fault)
        body = {"links": [world.text(link)], "cookie": account.cookie}
        answer = await world.convert(http, body)
        # The request may not have reached the portal.
        await world.ask_portal(http, "DELETE", "faults")
    if not world.was_undisturbed(began):
        return
    if job.fault.startswith("product"):
        entry = expect_ok(answer)["mapping"][world.text(link)]
        if entry["product"] is not None or not entry["shortLink"]:
            raise UnexpectedAnswer(f"{job.fault}: {entry}")
    elif answer.status_code != 502:
        raise UnexpectedAnswer(f"{job.fault}: {describe(answer)}")
    world.results.jobs_done[Kind.CONVERSION] += 1
    world.results.other_counts["conversions that met a fault"] += 1


async def sync(world: World, http: httpx.AsyncClient, job: Sync) -> None:
    """Store a cookie, and read it back.

    Raises:
        UnexpectedAnswer: The daemon has another cookie.
    """
    account = world.accounts[job.account]
    async with world.sync_lock:
        world.stored.accounts.append(account.number)
        path = "/api/sync-cookie-local" if job.local else "/api/sync-cookie"
        cookie = account.cookie
        body = {"cookie": cookie, "accountName": f"Account {account.number}"}
        expect_ok(await world.ask(http, "POST", path, body, token=""))
        world.stored.known_index = len(world.stored.accounts) - 1
        found = expect_ok(await world.ask(http, "GET", "/api/sync-cookie", token=""))
    if (found.get("cookie"), found["accountName"]) != (cookie, body["accountName"]):
        raise UnexpectedAnswer(f"the stored cookie is not that of account {account.number}")
    world.results.jobs_done[Kind.SYNC] += 1
