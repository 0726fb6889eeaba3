"""The jobs of a soak, drawn from a seed. Pure.

The seed decides the jobs and their order; their times depend on the machine. Each product is
converted once, because the daemon answers a repeated one from its memory, without work.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from itertools import count
from typing import Final, TypeVar

from tests.soak.worker import End

_T = TypeVar("_T")

HOME_ACCOUNTS: Final = 3
"""Accounts with most conversions, so that their pages stay open."""
POOL: Final = 16
"""The number of all accounts. The pages of the others are mostly opened again for each use."""
MOST_LINKS: Final = 15
FIRST_ITEM: Final = 500_000_000
FIRST_SPARE_ITEM: Final = 400_000_000


class Kind(StrEnum):
    """The kind of a job, for the counts."""

    CONVERSION = "conversion"
    LOGIN = "login"
    KICKOFF = "kickoff"
    SYNC = "sync"
    CRASH = "crash"


class Form(StrEnum):
    """The form of a link."""

    CANONICAL = "canonical"
    SHORT = "short"
    FOREIGN = "foreign"  # of another shop


@dataclass(frozen=True)
class Link:
    """A link. Each has a product of its own."""

    form: Form
    item: int


class Manner(StrEnum):
    """The way in which a client converts links."""

    OWN = "own"  # with a cookie in the request
    STORED = "stored"  # with the stored cookie
    CONCURRENT = "concurrent"  # several at once for one account, with one link in common
    LEAVES = "leaves"  # does not wait for the answer
    FAULT = "fault"  # meets a fault of the portal


@dataclass(frozen=True)
class Conversion:
    """One request, or several at once. `account` is an index in the pool."""

    manner: Manner
    account: int
    has_new_session: bool  # the owner has logged in again, so its open page is useless
    requests: tuple[tuple[Link, ...], ...]
    sub_ids: tuple[str, ...]
    patience: float  # seconds until the client leaves, if it leaves
    fault: str  # name of the fault of the portal, if the request meets one


@dataclass(frozen=True)
class Login:
    """A login from `address`, after `wrong` attempts with a wrong password."""

    wrong: int
    address: str


@dataclass(frozen=True)
class Kickoff:
    """A kickoff whose execution ends with `end`. `item` is for a link to convert."""

    end: End
    item: int
    webhooks: bool  # for every event, not for the end alone
    first_call_refused: bool  # the receiver answers 500 once


@dataclass(frozen=True)
class Sync:
    """A sync of the account's cookie, with `local` by the path for this machine."""

    account: int
    local: bool


class Victim(StrEnum):
    CHROMIUM = "chromium"
    TAB = "tab"
    WORKER = "worker"


@dataclass(frozen=True)
class Crash:
    """A process is killed. `place`, from 0 to 1, chooses among several."""

    victim: Victim
    place: float


Job = Conversion | Login | Kickoff | Sync | Crash

_MANNERS: Final = {
    Manner.OWN: 70,
    Manner.STORED: 12,
    Manner.CONCURRENT: 8,
    Manner.LEAVES: 6,
    Manner.FAULT: 4,
}
_FORMS: Final = {
    Form.CANONICAL: 84,
    Form.SHORT: 10,
    Form.FOREIGN: 6,
}
_FAULTS: Final = ("submit_500", "submit_html", "submit_truncated", "product_500")
_ENDS: Final = {
    End.RESULT: 45,
    End.LINKS: 15,
    End.FAILURE: 15,
    End.HUMAN: 10,
    End.STOP: 15,
}
_LETTERS: Final = "ABCDEFGHabcdefgh0123456789"


class Planner:
    """Draws jobs from a seed."""

    def __init__(self, seed: int) -> None:
        self._chance = random.Random(seed)
        # The number of calls of `moment` depends on the machine, so it has its own generator.
        self._moments = random.Random(seed)
        self._items = count(FIRST_ITEM)
        self._spare_items = count(FIRST_SPARE_ITEM)

    def job(self, weights: Mapping[Kind, float]) -> Job:
        """Return the next job. `weights` are the relative frequencies of the kinds."""
        match self._pick(weights):
            case Kind.CONVERSION:
                return self._conversion()
            case Kind.LOGIN:
                return self._login()
            case Kind.KICKOFF:
                return self._kickoff()
            case Kind.SYNC:
                return Sync(self._chance.randrange(POOL), self._chance.random() < 0.5)
            case _:
                victim = self._chance.choice((Victim.TAB, Victim.WORKER))
                return Crash(victim, self._chance.random())

    def moment(self, seconds: float) -> float:
        """Return a random time between 0 and so many seconds."""
        return self._moments.uniform(0.0, seconds)

    def spare_item(self) -> int:
        """Return an item that no job uses."""
        return next(self._spare_items)

    def _conversion(self) -> Conversion:
        chance = self._chance
        manner = self._pick(_MANNERS)
        home = chance.random() < 0.7
        requests = [self._links() for _ in range(chance.randint(2, 5))]
        if manner is Manner.CONCURRENT:
            shared = self._link(Form.CANONICAL)
            requests = [(shared, *links)[:MOST_LINKS] for links in requests]
        else:
            requests = requests[:1]
        if manner is Manner.FAULT:
            requests = [(self._link(Form.CANONICAL),)]
        return Conversion(
            manner,
            chance.randrange(HOME_ACCOUNTS) if home else chance.randrange(HOME_ACCOUNTS, POOL),
            not home and chance.random() < 0.5,
            tuple(requests),
            tuple(self._sub_id() for _ in range(chance.choice((0, 0, 1, 2, 5)))),
            chance.uniform(0.0, 0.4),
            chance.choice(_FAULTS),
        )

    def _links(self) -> tuple[Link, ...]:
        most = self._pick({1: 40, 5: 30, MOST_LINKS: 30})
        return tuple(self._link(self._pick(_FORMS)) for _ in range(self._chance.randint(1, most)))

    def _link(self, form: Form) -> Link:
        return Link(form, next(self._items))

    def _sub_id(self) -> str:
        return "".join(self._chance.choices(_LETTERS, k=self._chance.randint(1, 12)))

    def _login(self) -> Login:
        address = f"198.51.100.{self._chance.randint(1, 100)}"
        return Login(self._chance.choice((0, 0, 1, 2)), address)

    def _kickoff(self) -> Kickoff:
        chance = self._chance
        end = self._pick(_ENDS)
        return Kickoff(end, next(self._items), chance.random() < 0.3, chance.random() < 0.02)

    def _pick(self, weights: Mapping[_T, float]) -> _T:
        (found,) = self._chance.choices(list(weights), list(weights.values()))
        return found
