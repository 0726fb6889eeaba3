"""People who have links converted, each with habits of their own.

What an answer has to be, follows from what was asked: it is looked at here, whatever the weather.
While nothing is wrong in the world, it also has to be a good one.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from math import inf

import trio

from smartlinkd.sandbox.products import product_link, product_of
from smartlinkd.sandbox.shortlinks import CODES, product_behind
from tests.fakes.network import ORIGINS, Json
from tests.simulation.answers import INVALID, MAY_FAIL, Link, Read, WrongAnswer, read
from tests.simulation.books import NOBODY, Order, SubIds, Whose
from tests.simulation.calls import Call
from tests.simulation.sessions import Session, Visitor
from tests.simulation.upstream import cookie_of
from tests.simulation.world import World

HOT = 12
"""Items that everybody asks for."""
SUB_IDS: tuple[SubIds, ...] = ((), ("tg",), ("fb", "", "x1"), ("tg", "2", "3", "4", "5"), ("", "b"))
NO_LINKS = (
    "https://shop.example.evil.example/product/1/2",
    "not a link",
    "",
    "http://shop.example/cart",
    "javascript:alert(1)",
)
SLOW = frozenset({"slow", "broken", "big"})
"""Short links whose answer may be that nothing is known of them."""

LEAVES_AFTER = 3.0
ANSWERED = 60.0 + 1.0 + 2 * 8.0 + 0.5
"""Seconds in which a conversion is answered: its own, and those of who asks for it."""
AT_ONCE = 20
"""Requests in one burst, at the most."""


@dataclass
class Habits:
    """What somebody does. Chances are between 0 and 1; `every` is in seconds."""

    whose: Whose
    sub_ids: SubIds
    every: float
    burst: float
    stored: float
    leaves: float
    hot: float


class Shopper:
    def __init__(
        self,
        visitor: Visitor,
        habits: Habits,
        world: World,
        chance: random.Random,
    ) -> None:
        self.name = visitor.name
        self._visitor = visitor
        self._habits = habits
        self._world = world
        self._chance = chance

    async def live(self) -> None:
        async with trio.open_nursery() as nursery:
            while True:
                every = self._habits.every / self._world.bustle
                await trio.sleep(self._chance.expovariate(1 / every))
                await self._world.open_hours()
                burst = self._chance.random() < self._habits.burst and not self._world.calm
                for _ in range(self._chance.randint(2, AT_ONCE) if burst else 1):
                    nursery.start_soon(self.convert)

    async def convert(self) -> None:
        """One request, and a look at its answer."""
        with self._world.busy():
            session = await self._visitor.ready()
            if session is not None:
                await self._convert(session)

    async def _convert(self, session: Session) -> None:
        habits, chance, world = self._habits, self._chance, self._world
        links = self._links()
        whose = None if chance.random() < habits.stored else habits.whose
        patience = chance.expovariate(1 / LEAVES_AFTER) if chance.random() < habits.leaves else inf
        patience = inf if world.calm else patience
        call, order, is_answered = await self._ask(session, links, whose, patience)
        if is_answered:
            self._judge(call, order, links, good=world.was_fine(call.began))

    async def _ask(
        self, session: Session, links: list[Link], whose: Whose | None, patience: float
    ) -> tuple[Call, Order, bool]:
        """False when they left, or the daemon ended."""
        world, sub_ids = self._world, self._habits.sub_ids
        order = Order(whose, frozenset(link.item for link in links if link.item), sub_ids)
        body: Json = {"links": [link.text for link in links], "subIds": list(sub_ids)}
        if whose is not None:
            body["cookie"] = cookie_of(whose)
        world.books.ordered(order)
        call = world.ask("POST", "/api/convert", body, token=session.token)
        is_answered = await self._wait(call, patience)
        world.books.left(order)
        if is_answered:
            self._visitor.seen(call, session)
        return call, order, is_answered

    async def _wait(self, call: Call, patience: float) -> bool:
        world = self._world
        with trio.move_on_after(min(patience, ANSWERED)):
            await call.wait()
        if not call.exchange.ended.is_set():
            call.gone.set()
            world.log.note(f"{self.name} left", count="clients gone")
            if patience > ANSWERED:
                world.broken(f"{self.name} was not answered within {ANSWERED:g} s")
            return False
        world.log.note(f"{self.name} got {call.status} {call.exchange.fault}", count="requests")
        return call.status != 0

    async def try_out(self, session: Session, *, data: bool) -> bool:
        """A request that has to go well, with product data where that is due. False when the
        session is not good any more."""
        world, whose = self._world, self._habits.whose
        item = 600_000_000 + world.next_item()
        links = [Link(product_link(product_of(item), ORIGINS.shop), item)]
        call, order, _ = await self._ask(session, links, whose, inf)
        if call.status == 403:
            return False
        if call.status != 200:
            world.broken(f"nothing is wrong, and yet: {call.status} {call.exchange.body!r}")
            return True
        self._read(call, order, links, good=True)
        if data and call.answer["mapping"][links[0].text]["product"] is None:
            world.broken(f"nothing is wrong, and yet there is no product data: {call.answer}")
        return True

    def _judge(self, call: Call, order: Order, links: list[Link], *, good: bool) -> None:
        world = self._world
        match call.status:
            case 200:
                self._read(call, order, links, good=good)
            case 400 if NOBODY in order.may_be and "none stored" in call.error:
                pass
            case 403:
                pass  # its owner has looked at it
            case 502:
                if order.whose is not None and "human check" in call.error:
                    world.books.told_paused(order.whose[0], call.began)
                if good and not self._in_trouble(order):
                    world.broken(f"{self.name}: nothing is wrong, and yet {call.error}")
            case 503:
                if not 1 <= int(call.exchange.response_headers.get("retry-after", 0)) <= 30:
                    world.broken(f"{self.name} was not told when to come again: {call.error}")
                if good:
                    world.broken(f"{self.name}: nothing is wrong, and yet {call.error}")
            case status:
                world.broken(f"{self.name} was answered {status}: {call.exchange.body!r}")

    def _read(self, call: Call, order: Order, links: list[Link], *, good: bool) -> None:
        world = self._world
        try:
            codes = {*MAY_FAIL, *([INVALID] if world.invalid_since(call.began) else ())}
            found = read(links, order.sub_ids, call.answer, world.portal, codes)
        except WrongAnswer as wrong:
            world.broken(f"{self.name}, {order}: {wrong}")
            return
        world.log.counts["conversions"] += len(found.made)
        self._check_account(found, order)
        if good and found.failed and not self._in_trouble(order):
            world.broken(f"{self.name}: nothing is wrong, and yet {call.answer}")

    def _check_account(self, found: Read, order: Order) -> None:
        if not found.account:
            return
        may_be = {order.whose} if order.whose is not None else order.may_be
        if found.account not in {account for account, _ in may_be}:
            self._world.broken(f"{self.name}, {order}: the links earn for {found.account}")
        if len(may_be) == 1:
            (whose,) = may_be
            self._world.books.handed_out(order, whose, found.made)

    def _in_trouble(self, order: Order) -> bool:
        """Whether the account may have trouble of its own."""
        whose = {order.whose} if order.whose is not None else order.may_be
        return any(each is None or self._world.books.in_trouble(each) for each in whose)

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
            code = chance.choice([row for row in CODES if row.code not in SLOW]).code
            behind = product_behind(code)
            return Link(f"{ORIGINS.short}/{code}", behind[1] if behind else 0)
        hot = chance.random() < self._habits.hot
        item = 500_000_000 + (chance.randrange(HOT) if hot else world.next_item())
        product = product_of(item)
        if kind < 0.25:
            return Link(f"{ORIGINS.short}/p{product.shop_id}i{item}", item)
        text = product_link(product, ORIGINS.shop)
        return Link(text + chance.choice(("", "", "?utm_source=an_1&x=%20", "\n")), item)
