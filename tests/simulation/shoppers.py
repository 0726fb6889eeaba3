"""Clients that convert links. They check each answer; without a fault it must not be an error."""

from __future__ import annotations

import random
from math import inf

import trio

from smartlinkd.sandbox.products import PRODUCTS, product_link, product_of
from smartlinkd.sandbox.shortlinks import CODES
from tests.fakes.network import ORIGINS, Json
from tests.simulation.answers import (
    ALLOWED_FAIL_CODES,
    INVALID,
    Converted,
    Link,
    WrongAnswer,
    check_answer,
)
from tests.simulation.expectations import NOBODY, CookieId, PendingConversion, SubIds
from tests.simulation.sessions import Session, Visitor
from tests.simulation.upstream import cookie_of
from tests.simulation.world import Call, World

POPULAR = 12
"""Number of items that all clients ask for."""
SUB_IDS: tuple[SubIds, ...] = ((), ("tg",), ("fb", "", "x1"), ("tg", "2", "3", "4", "5"), ("", "b"))
NO_LINKS = (
    "https://shop.example.evil.example/product/1/2",
    "not a link",
    "",
    "http://shop.example/cart",
    "javascript:alert(1)",
)
SLOW = frozenset({"slow", "broken", "big"})
"""Codes of short links that may fail."""

LEAVES_AFTER = 3.0
"""Mean seconds after which a client leaves without its answer."""
ANSWERED = 60.0 + 1.0 + 2 * 8.0 + 0.5
"""Seconds in which a conversion is answered: its deadline, and those of the actors' calls."""
LARGEST_BURST = 20
"""The most requests of a burst."""


class Shopper:
    """A client that converts links, with habits of its own."""

    def __init__(
        self,
        visitor: Visitor,
        cookie_id: CookieId,
        sub_ids: SubIds,
        world: World,
        chance: random.Random,
    ) -> None:
        self.name = visitor.name
        self._visitor = visitor
        self._cookie_id = cookie_id
        self._sub_ids = sub_ids
        self._world = world
        self._chance = chance
        self._interval_s = chance.uniform(120.0, 600.0)
        self._burst_chance = chance.choice((0.0, 0.02, 0.1))
        self._stored_chance = chance.choice((0.0, 0.3, 1.0))  # for the stored cookie, not its own
        self._leave_chance = chance.choice((0.0, 0.1, 0.4))
        self._popular_chance = chance.uniform(0.0, 0.8)

    async def run(self) -> None:
        await self._world.act_in_bursts(
            self.convert, self._chance, self._interval_s, self._burst_chance, LARGEST_BURST
        )

    async def convert(self) -> None:
        """Send a request, and check its answer."""
        with self._world.busy():
            session = await self._visitor.get_session()
            if session is not None:
                await self._convert(session)

    async def _convert(self, session: Session) -> None:
        chance, world = self._chance, self._world
        links = self._links()
        cookie_id = None if chance.random() < self._stored_chance else self._cookie_id
        patience = (
            chance.expovariate(1 / LEAVES_AFTER) if chance.random() < self._leave_chance else inf
        )
        patience = inf if world.is_calm else patience
        call, pending, is_answered = await self._ask(session, links, cookie_id, patience)
        if is_answered:
            self._check_status(call, pending, links, is_healthy=world.was_healthy(call.began))

    async def _ask(
        self, session: Session, links: list[Link], cookie_id: CookieId | None, patience: float
    ) -> tuple[Call, PendingConversion, bool]:
        """Convert links. The boolean is False when the client left, or the daemon ended."""
        world, sub_ids = self._world, self._sub_ids
        pending = PendingConversion(
            set() if cookie_id is None else {cookie_id},
            frozenset(link.item for link in links if link.item),
            sub_ids,
            is_stored=cookie_id is None,
        )
        body: Json = {"links": [link.text for link in links], "subIds": list(sub_ids)}
        if cookie_id is not None:
            body["cookie"] = cookie_of(cookie_id)
        world.expectations.conversion_sent(pending)
        call = world.ask("POST", "/api/convert", body, token=session.token)
        is_answered = await self._wait(call, patience)
        world.expectations.conversion_ended(pending)
        if is_answered:
            self._visitor.note_answer(call, session)
        return call, pending, is_answered

    async def _wait(self, call: Call, patience: float) -> bool:
        world = self._world
        with trio.move_on_after(min(patience, ANSWERED)):
            await call.wait()
        if not call.exchange.ended.is_set():
            call.gone.set()
            world.log.note(f"{self.name} left", count="clients gone")
            if patience > ANSWERED:
                world.fail(f"{self.name} was not answered within {ANSWERED:g} s")
            return False
        world.log.note(f"{self.name} got {call.status} {call.exchange.fault}", count="requests")
        return call.status != 0

    async def check_conversion(self, session: Session, *, data: bool) -> bool:
        """Check that a request succeeds, with `data` also that it has product data.

        Return False when the session is refused.
        """
        world, cookie_id = self._world, self._cookie_id
        item = 600_000_000 + world.next_item()
        links = [Link(product_link(product_of(item), ORIGINS.shop), item)]
        call, pending, _ = await self._ask(session, links, cookie_id, inf)
        if call.status == 403:
            return False
        if call.status != 200:
            world.fail(f"nothing is wrong, and yet: {call.status} {call.exchange.body!r}")
            return True
        found = self._check_answer(call, pending, links, is_healthy=True)
        if data and found and found.without_data:
            world.fail(f"nothing is wrong, and yet there is no product data: {call.answer}")
        return True

    def _check_status(
        self, call: Call, pending: PendingConversion, links: list[Link], *, is_healthy: bool
    ) -> None:
        world = self._world
        match call.status:
            case 200:
                self._check_answer(call, pending, links, is_healthy=is_healthy)
            case 400 if NOBODY in pending.may_be and "none stored" in call.error:
                pass
            case 403:
                pass  # `Visitor.note_answer` has checked it
            case 502:
                if not pending.is_stored and "human check" in call.error:
                    ((account, _),) = pending.may_be
                    world.expectations.owner_told_of_pause(account, call.began)
                if is_healthy and not self._may_be_refused(pending):
                    world.fail(f"{self.name}: nothing is wrong, and yet {call.error}")
            case 503:
                if not 1 <= int(call.exchange.response_headers.get("retry-after", 0)) <= 30:
                    world.fail(f"{self.name} got a 503 without a good Retry-After: {call.error}")
                if is_healthy:
                    world.fail(f"{self.name}: nothing is wrong, and yet {call.error}")
            case status:
                world.fail(f"{self.name} was answered {status}: {call.exchange.body!r}")

    def _check_answer(
        self, call: Call, pending: PendingConversion, links: list[Link], *, is_healthy: bool
    ) -> Converted | None:
        """Return what the answer says; None when it is wrong."""
        world = self._world
        try:
            had_invalid = world.invalid_answers.until >= call.began
            codes = {*ALLOWED_FAIL_CODES, *([INVALID] if had_invalid else ())}
            found = check_answer(links, pending.sub_ids, call.answer, ORIGINS, codes)
        except WrongAnswer as wrong:
            world.fail(f"{self.name}, {pending}: {wrong}")
            return None
        world.log.counts["conversions"] += len(found.made)
        self._check_account(found, pending)
        if is_healthy and found.failed and not self._may_be_refused(pending):
            world.fail(f"{self.name}: nothing is wrong, and yet {call.answer}")
        return found

    def _check_account(self, found: Converted, pending: PendingConversion) -> None:
        if not found.account:
            return
        if found.account not in {account for account, _ in pending.may_be}:
            self._world.fail(f"{self.name}, {pending}: the links earn for {found.account}")
        if len(pending.may_be) == 1:
            (cookie_id,) = pending.may_be
            self._world.expectations.handed_out(pending, cookie_id, found.made)

    def _may_be_refused(self, pending: PendingConversion) -> bool:
        """True if a cookie of the request may be refused without a fault."""
        return any(map(self._world.expectations.may_be_refused, pending.may_be))

    def _links(self) -> list[Link]:
        chance = self._chance
        count = chance.choice((1, 1, 1, 1, 2, 3, 5, 6, 15))
        return [self._link() for _ in range(count)]

    def _link(self) -> Link:
        chance, world = self._chance, self._world
        kind = chance.random()
        if kind < 0.05:
            return Link(chance.choice(NO_LINKS), 0)
        if kind < 0.10:
            row = chance.choice([row for row in CODES if row.code not in SLOW])
            behind = 0 if row.product is None else PRODUCTS[row.product].item_id
            return Link(f"{ORIGINS.short}/{row.code}", behind)
        popular = chance.random() < self._popular_chance
        item = 500_000_000 + (chance.randrange(POPULAR) if popular else world.next_item())
        product = product_of(item)
        if kind < 0.25:
            return Link(f"{ORIGINS.short}/p{product.shop_id}i{item}", item)
        text = product_link(product, ORIGINS.shop)
        return Link(text + chance.choice(("", "", "?utm_source=an_1&x=%20", "\n")), item)
