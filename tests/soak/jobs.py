"""The jobs of a soak: conversions, cookie syncs, logins and crashes. `kickoffs.py` has the others.

Each job draws what it does from a generator of its own, so the seed decides the jobs and their
order. Their times depend on the machine. Each product is converted once, because the daemon answers
a repeated one from its memory, without work.
"""

from __future__ import annotations

import os
import random
import signal
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import suppress
from math import inf
from typing import Final

import httpx
import trio

from smartlinkd.sandbox.batch import Origins
from tests.programs import PASSWORD, Account
from tests.simulation.answers import UNRESOLVED, Link, WrongAnswer, check_answer
from tests.soak.crew import End
from tests.soak.kickoffs import kick_off, play_kickoff
from tests.soak.samples import renderers
from tests.soak.world import HOME_ACCOUNTS, Json, World, describe, expect_ok, pick

Job = Callable[[World, httpx.AsyncClient, random.Random], Awaitable[None]]

MOST_LINKS: Final = 15
REFUSALS: Final = (502, 503)
RESTART_DEADLINE: Final = 90.0
"""Seconds from a kill to a new browser: three times the longest restart delay."""
LOGIN: Final = "/api/auth/login"

_MANNERS: Final = {
    "own": 70,  # with a cookie in the request
    "stored": 12,  # with the stored cookie
    "concurrent": 8,  # several at once for one account, with one link in common
    "leaves": 6,  # does not wait for the answer
    "fault": 4,  # meets a fault of the portal
}
_FAULTS: Final = ("submit_500", "submit_html", "submit_truncated", "product_500")
_LETTERS: Final = "ABCDEFGHabcdefgh0123456789"


async def convert(world: World, http: httpx.AsyncClient, chance: random.Random) -> None:
    """Send one request, or several at once.

    Raises:
        WrongAnswer: An answer was wrong.
    """
    manner = pick(chance, _MANNERS)
    if manner == "fault":
        await _convert_with_fault(world, http, chance.choice(_FAULTS))
        return
    is_home = chance.random() < 0.7
    accounts = world.accounts[:HOME_ACCOUNTS] if is_home else world.accounts[HOME_ACCOUNTS:]
    account = chance.choice(accounts)
    if not is_home and chance.random() < 0.5:
        account.renew()  # its open page is useless now
    requests = [_links(world, chance)]
    if manner == "concurrent":
        requests += [_links(world, chance) for _ in range(chance.randint(1, 4))]
        shared = world.canonical_link()
        requests = [[shared, *links][:MOST_LINKS] for links in requests]
    sub_ids = tuple(
        "".join(chance.choices(_LETTERS, k=chance.randint(1, 12)))
        for _ in range(chance.choice((0, 0, 1, 2, 5)))
    )
    sender = None if manner == "stored" else account
    patience = chance.uniform(0.0, 0.4) if manner == "leaves" else inf
    with trio.move_on_after(patience) as leaving:
        async with trio.open_nursery() as nursery:
            for links in requests:
                nursery.start_soon(_convert, world, http, links, sub_ids, sender)
    if leaving.cancelled_caught:
        world.results.others["clients that left"] += 1


def _links(world: World, chance: random.Random) -> list[Link]:
    makes = {world.canonical_link: 84, world.short_link: 10, world.foreign_link: 6}
    most = pick(chance, {1: 40, 5: 30, MOST_LINKS: 30})
    return [pick(chance, makes)() for _ in range(chance.randint(1, most))]


async def _convert(
    world: World,
    http: httpx.AsyncClient,
    links: list[Link],
    sub_ids: tuple[str, ...],
    account: Account | None,
) -> None:
    """Send a request with the account's cookie. None is for the stored cookie."""
    began, known_index = trio.current_time(), world.known_index
    body: Json = {"links": [link.text for link in links], "subIds": sub_ids}
    if account is not None:
        body["cookie"] = account.cookie
    answer = await world.convert(http, body)
    is_undisturbed = world.was_undisturbed(began)
    if answer.status_code in REFUSALS and not is_undisturbed:
        world.results.others["conversions refused in a crash"] += 1
        return
    numbers = [account.number] if account else world.synced[known_index:]
    mapping = expect_ok(answer)
    check_conversion(world.origins, links, sub_ids, mapping, numbers, is_undisturbed=is_undisturbed)
    world.results.done["conversion"] += 1
    world.results.others["links"] += len(links)


def check_conversion(
    origins: Origins,
    links: list[Link],
    sub_ids: tuple[str, ...],
    body: Json,
    numbers: Collection[str],
    *,
    is_undisturbed: bool = True,
) -> None:
    """Check an answer. `numbers` are the accounts whose cookie may have been used.

    Raises:
        WrongAnswer: The answer is wrong for each of the accounts.
    """
    codes = () if is_undisturbed else (UNRESOLVED,)  # there was no browser
    found = check_answer(links, sub_ids, body, origins, codes)
    if found.made and found.account not in numbers:
        raise WrongAnswer(f"{links}, of one of {numbers}, earn for {found.account}")
    if is_undisturbed and found.without_data:
        raise WrongAnswer(f"{found.without_data} links have no product data: {body}")


async def _convert_with_fault(world: World, http: httpx.AsyncClient, kind: str) -> None:
    """Send a request that meets a fault of the portal; the account's next request meets none."""
    account, link = world.fault_account, world.canonical_link()
    async with world.fault_lock:
        began = trio.current_time()
        fault = {"fault": kind, "times": 1, "account": account.number}
        await world.ask_portal(http, "POST", "faults", fault)
        answer = await world.convert(http, {"links": [link.text], "cookie": account.cookie})
        # The request may not have reached the portal.
        await world.ask_portal(http, "DELETE", "faults")
    if not world.was_undisturbed(began):
        return
    if kind.startswith("product"):
        entry = expect_ok(answer)["mapping"][link.text]
        if entry["product"] is not None or not entry["shortLink"]:
            raise WrongAnswer(f"{kind}: {entry}")
    elif answer.status_code != 502:
        raise WrongAnswer(f"{kind}: {describe(answer)}")
    world.results.done["conversion"] += 1
    world.results.others["conversions that met a fault"] += 1


async def sync(world: World, http: httpx.AsyncClient, chance: random.Random) -> None:
    """Store a cookie, and read it back.

    Raises:
        WrongAnswer: The daemon has another cookie.
    """
    account = chance.choice(world.accounts)
    path = chance.choice(("/api/sync-cookie", "/api/sync-cookie-local"))
    async with world.sync_lock:
        world.synced.append(account.number)
        body = {"cookie": account.cookie, "accountName": f"Account {account.number}"}
        expect_ok(await world.ask(http, "POST", path, body, token=""))
        world.known_index = len(world.synced) - 1
        found = expect_ok(await world.ask(http, "GET", "/api/sync-cookie", token=""))
    if {name: found.get(name) for name in body} != body:
        raise WrongAnswer(f"the stored cookie is not that of account {account.number}")
    world.results.done["sync"] += 1


async def log_in(world: World, http: httpx.AsyncClient, chance: random.Random) -> None:
    """Send wrong passwords, then the right one, and use the session.

    Raises:
        WrongAnswer: An answer was wrong.
    """
    headers = {"X-Forwarded-For": f"198.51.100.{chance.randint(1, 100)}"}
    async with world.login_lock:
        for attempt in range(chance.choice((0, 0, 1, 2))):
            body = {"password": f"wrong {attempt}"}
            refused = await world.ask(http, "POST", LOGIN, body, token="", headers=headers)
            if refused.status_code != 401:
                raise WrongAnswer(describe(refused))
        body = {"password": PASSWORD}
        found = expect_ok(await world.ask(http, "POST", LOGIN, body, token="", headers=headers))
    expect_ok(await world.ask(http, "GET", "/api/status", token=found["token"]))
    world.results.done["login"] += 1


# Crashes: SIGKILL for Chromium's main process, a tab or a worker, one at a time


async def crash(world: World, http: httpx.AsyncClient, chance: random.Random) -> None:
    """Kill a tab or a worker.

    Raises:
        WrongAnswer: The worker's execution did not end as it has to.
    """
    async with world.kill_lock:
        if chance.random() < 0.5:
            await _kill_tab(world, http, chance)
        else:
            await play_kickoff(world, http, End.KILL)
            world.results.done["crash"] += 1
            world.results.others["killed: worker"] += 1


async def _kill_tab(world: World, http: httpx.AsyncClient, chance: random.Random) -> None:
    browser = (await world.status(http))["browser"]
    # The first tab is the daemon's canary. Without it the daemon would restart the browser.
    tabs: Sequence[int] = renderers(browser["pid"])[1:]
    if not browser["ready"] or not tabs:
        return
    async with world.disruption():
        with suppress(ProcessLookupError):  # the daemon has closed the tab
            os.kill(chance.choice(tabs), signal.SIGKILL)
            world.results.done["crash"] += 1
            world.results.others["killed: tab"] += 1


async def kill_chromium(world: World, http: httpx.AsyncClient, chance: random.Random) -> None:
    """Kill Chromium within some seconds, and wait for the next one.

    Raises:
        WrongAnswer: No new browser was started in time.
    """
    await trio.sleep(chance.uniform(0.0, 4.0))
    async with world.kill_lock:
        before = (await world.status(http))["browser"]
        if not before["ready"]:
            return
        async with world.disruption():
            os.kill(before["pid"], signal.SIGKILL)
            world.results.others["killed: chromium"] += 1
            await world.until(
                http,
                "browser after a kill",
                lambda status: (
                    status["browser"]["ready"] and status["browser"]["pid"] != before["pid"]
                ),
                RESTART_DEADLINE,
            )
            world.results.done["crash"] += 1


JOBS: Final[Mapping[str, Job]] = {
    "conversion": convert,
    "login": log_in,
    "kickoff": kick_off,
    "sync": sync,
    "crash": crash,
}
