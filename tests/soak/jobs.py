"""What there is to do in a soak: jobs drawn from a seed. Pure.

The jobs, their order and all that is in them follow from the seed alone; when each one runs depends
on the machine. No product is ever asked for twice: what is remembered costs nothing, and so would
hide what the others cost.
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
"""They make most conversions, so that their pages stay open."""
POOL: Final = 16
"""All accounts. The others' pages are opened anew most times they are used."""
MOST_LINKS: Final = 15
FIRST_ITEM: Final = 500_000_000
FIRST_SPARE_ITEM: Final = 400_000_000


class Kind(StrEnum):
    """What jobs are counted by."""

    CONVERSION = "conversion"
    LOGIN = "login"
    KICKOFF = "kickoff"
    SYNC = "sync"
    CRASH = "crash"


class Form(StrEnum):
    """How a link is written, and so what becomes of it."""

    CANONICAL = "canonical"
    SHORT = "short"
    FOREIGN = "foreign"  # no link of the marketplace's


@dataclass(frozen=True)
class Link:
    """A link to a product that no other link leads to."""

    form: Form
    item: int


class Manner(StrEnum):
    """How a client goes about a conversion."""

    OWN = "own"  # with a cookie in the request
    STORED = "stored"  # with the one that was synced
    CROWD = "crowd"  # several at once for one account, with one link in common
    LEAVER = "leaver"  # does not wait for the answer
    TROUBLE = "trouble"  # meets a fault of the portal's


@dataclass(frozen=True)
class Conversion:
    """One request, or several at once. `account` is a place in the pool."""

    manner: Manner
    account: int
    renewed: bool  # the account's owner has logged in again, so nothing of it is warm
    requests: tuple[tuple[Link, ...], ...]
    sub_ids: tuple[str, ...]
    patience: float  # seconds until a leaver leaves
    fault: str  # of the portal's, by its name


@dataclass(frozen=True)
class Login:
    wrong: int
    address: str


@dataclass(frozen=True)
class Kickoff:
    end: End
    item: int
    webhooks: bool  # for every event, not for the end alone
    refused: bool  # its first webhook call is


@dataclass(frozen=True)
class Sync:
    """A cookie of an account's, stored in one of two ways."""

    account: int
    local: bool


class Victim(StrEnum):
    CHROMIUM = "chromium"
    TAB = "tab"
    WORKER = "worker"


@dataclass(frozen=True)
class Crash:
    """Somebody is killed; `place` among those there are, as a share."""

    victim: Victim
    place: float


Job = Conversion | Login | Kickoff | Sync | Crash

_MANNERS: Final = {
    Manner.OWN: 70,
    Manner.STORED: 12,
    Manner.CROWD: 8,
    Manner.LEAVER: 6,
    Manner.TROUBLE: 4,
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
        self._moments = random.Random(seed)  # their own, since how many there are is chance
        self._items = count(FIRST_ITEM)
        self._spare_items = count(FIRST_SPARE_ITEM)

    def job(self, weights: Mapping[Kind, float]) -> Job:
        """The next one, of kinds by their weights."""
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
        """Some time within so many."""
        return self._moments.uniform(0.0, seconds)

    def spare_item(self) -> int:
        """One that no job has asked for, nor will."""
        return next(self._spare_items)

    def _conversion(self) -> Conversion:
        chance = self._chance
        manner = self._pick(_MANNERS)
        home = chance.random() < 0.7
        requests = [self._links() for _ in range(chance.randint(2, 5))]
        if manner is Manner.CROWD:
            shared = self._link(Form.CANONICAL)
            requests = [(shared, *links)[:MOST_LINKS] for links in requests]
        else:
            requests = requests[:1]
        if manner is Manner.TROUBLE:
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
