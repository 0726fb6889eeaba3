"""Doing the conversions and the cookie syncs of a soak."""

from __future__ import annotations

from collections.abc import Iterable

import httpx
import trio

from tests.soak.jobs import Conversion, Kind, Link, Manner, Sync
from tests.soak.world import Account, Json, World, Wrong, right, told

REFUSALS = (502, 503)


async def convert(world: World, http: httpx.AsyncClient, job: Conversion) -> None:
    """One request, or several at once. Raises `Wrong`."""
    account = world.accounts[job.account]
    if job.renewed:
        account.renew()
    match job.manner:
        case Manner.TROUBLE:
            await _meet_fault(world, http, job)
        case Manner.LEAVER:
            with trio.move_on_after(job.patience) as leaving:
                await _convert(world, http, job, job.requests[0], account)
            if leaving.cancelled_caught:
                world.book.also["clients that left"] += 1
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
    """One request with the account's cookie, or (None) with the stored one."""
    began, certain = trio.current_time(), world.stored.certain
    body: Json = {"links": [world.text(link) for link in links], "subIds": job.sub_ids}
    if account is not None:
        body["cookie"] = account.cookie
    answer = await world.convert(http, body)
    calm = world.was_calm(began)
    if answer.status_code in REFUSALS and not calm:
        world.book.also["conversions refused in a crash"] += 1
        return
    mapping = right(answer)["mapping"]
    numbers = {account.number} if account else world.stored.since(certain)
    _check(world, job, links, mapping, numbers, calm=calm)
    world.book.done[Kind.CONVERSION] += 1
    world.book.also["links"] += len(links)


def _check(
    world: World,
    job: Conversion,
    links: tuple[Link, ...],
    mapping: Json,
    numbers: Iterable[str],
    *,
    calm: bool,
) -> None:
    """Raises `Wrong` unless the answer is right for one of the accounts that it may be of."""
    if list(mapping) != list(dict.fromkeys(world.text(link) for link in links)):
        raise Wrong(f"asked for {links}, given {list(mapping)}")
    faults = []
    for number in numbers:
        try:
            for link in links:
                world.check_entry(link, mapping[world.text(link)], number, job.sub_ids, calm=calm)
        except Wrong as fault:
            faults.append(fault)
        else:
            return
    raise faults[0]


async def _meet_fault(world: World, http: httpx.AsyncClient, job: Conversion) -> None:
    """A fault of the portal's strikes this request alone; the next one of the account is well."""
    account = world.troubled
    ((link,),) = job.requests
    async with world.in_trouble:
        began = trio.current_time()
        fault = {"fault": job.fault, "times": 1, "account": account.number}
        await world.ask_portal(http, "POST", "faults", fault)
        body = {"links": [world.text(link)], "cookie": account.cookie}
        answer = await world.convert(http, body)
        await world.ask_portal(http, "DELETE", "faults")  # if it came to nothing
    if not world.was_calm(began):
        return
    if job.fault.startswith("product"):
        entry = right(answer)["mapping"][world.text(link)]
        if entry["product"] is not None or not entry["shortLink"]:
            raise Wrong(f"{job.fault}: {entry}")
    elif answer.status_code != 502:
        raise Wrong(f"{job.fault}: {told(answer)}")
    world.book.done[Kind.CONVERSION] += 1
    world.book.also["conversions that met a fault"] += 1


async def sync(world: World, http: httpx.AsyncClient, job: Sync) -> None:
    """Store a cookie, and read it back. Raises `Wrong`."""
    account = world.accounts[job.account]
    async with world.syncing:
        world.stored.begun.append(account.number)
        path = "/api/sync-cookie-local" if job.local else "/api/sync-cookie"
        cookie = account.cookie
        body = {"cookie": cookie, "accountName": f"Account {account.number}"}
        right(await world.ask(http, "POST", path, body, token=""))
        world.stored.certain = len(world.stored.begun) - 1
        found = right(await world.ask(http, "GET", "/api/sync-cookie", token=""))
    if (found.get("cookie"), found["accountName"]) != (cookie, body["accountName"]):
        raise Wrong(f"the stored cookie is not that of account {account.number}")
    world.book.done[Kind.SYNC] += 1
