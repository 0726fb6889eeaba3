"""How often somebody may guess. Without I/O; the clock is given.

The problem: there is one password and one second factor, so whoever may guess often enough gets
in, and whoever can make others wait locks the owner out. The limits are per address, because an
account-wide one would let any stranger do the latter; one-time codes, which have only a million
values, have a limit for all addresses on top. Wrong codes can only be sent by somebody who knows
the password already.

* A try is reserved before it is checked. Those under way count as failures, so guesses that are
  sent side by side do not all pass before the first of them has failed. Whoever is kept out by
  them alone has not failed too often, and waits for their verdicts.
* An IPv6 /64 is one address: it is what a single customer gets.
* The table is bounded, and being pushed out of it may not pay. So the newcomer takes the place of
  the record with the fewest failures (of several the one unused for longest), and *inherits its
  count* (the "space-saving" counting of heavy hitters). Nobody's failures are ever forgotten
  cheaply: to lose a count of n somebody has to bring every other record above n first. The price
  is paid in a flood only: an honest newcomer may start with failures that are not his. Even then
  his first try is free, and when it is right the count is gone.

Rejected: forgetting the oldest (4097 networks then guess in a circle, without ever a wait),
forgetting the fewest failures without inheriting (two networks then push each other out), and
one shared record for all that do not fit (the owner waits for strangers).
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from ipaddress import IPv6Address, IPv6Network, ip_address
from typing import Final

import trio

from smartlinkd.errors import TooManyTries, WrongCredential

FREE_FAILURES: Final = 10
MAX_WAIT: Final = 60.0
"""Seconds between two tries: 1 after the last free failure, doubled by each one, up to this."""

WRONG_CODES: Final = 20
WRONG_CODES_WINDOW: Final = 3600.0
WRONG_CODES_PACE: Final = 60.0
"""So many wrong codes in so many seconds, whoever sends them; then one in so many seconds."""

MAX_ADDRESSES: Final = 4096
"""Records kept, well under a megabyte; finding the one to replace takes half a millisecond."""

_WAIT_FOR_VERDICT: Final = 1.0
"""Seconds that are told to somebody whose other tries are still under way."""


class Tries:
    """What is known of one address."""

    def __init__(self) -> None:
        self.failures = 0
        self.under_way = 0
        self.next_at = 0.0
        self.judged = trio.lowlevel.ParkingLot()

    def succeeded(self) -> None:
        """The address has shown that it is the owner's: it starts afresh."""
        self.failures = 0

    def failed(self, now: float) -> None:
        self.failures += 1
        # Whole numbers: a float would overflow after a thousand failures.
        self.next_at = now + min(MAX_WAIT, 2 ** (self.failures - FREE_FAILURES))

    @property
    def slowed_by_one_more(self) -> bool:
        """Whether the next failure is followed by a wait."""
        return self.failures + 1 >= FREE_FAILURES

    def wait(self, now: float, *, code: bool) -> float:
        """Seconds until the next try; none when not positive. Codes are checked one at a time, and
        so need not wait for what may come of passwords."""
        if self.depends_on_verdicts and not code:
            return _WAIT_FOR_VERDICT
        return self.next_at - now if self.failures >= FREE_FAILURES else 0.0

    @property
    def depends_on_verdicts(self) -> bool:
        """Whether those under way decide if there may be another."""
        return self.under_way > 0 and self.failures + self.under_way >= FREE_FAILURES


class Throttle:
    """Counts failures by address, and wrong codes over all. `clock` is monotonic, in seconds."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._by_network: dict[str, Tries] = {}  # the one unused for longest comes first
        self._wrong_codes: deque[float] = deque(maxlen=WRONG_CODES)

    async def wait_for_verdicts(self, address: str) -> None:
        """Wait for those that are under way, while they alone may keep `address` from a try."""
        while (tries := self._tries(address)).depends_on_verdicts:
            await tries.judged.park()

    @contextmanager
    def attempt(self, address: str, *, code: bool = False) -> Iterator[Tries]:
        """Reserve one try, to be made in the body; `code`: of a one-time code.

        A body that raises `WrongCredential` has failed; one that calls `succeeded` on what it is
        given resets the address; any other way to leave it counts as nothing. Raises
        `TooManyTries` when it is too early for the try.
        """
        now = self._clock()
        tries = self._tries(address)
        wait = max(tries.wait(now, code=code), self._wait_for_codes(now) if code else 0.0)
        if wait > 0:
            seconds = math.ceil(wait)
            raise TooManyTries(
                f"too many failed tries; try again in {seconds} s", retry_after=seconds
            )
        tries.under_way += 1
        try:
            yield tries
        except WrongCredential:
            tries.failed(self._clock())
            if code:
                self._wrong_codes.append(self._clock())
            raise
        finally:
            tries.under_way -= 1
            tries.judged.unpark_all()

    def _wait_for_codes(self, now: float) -> float:
        # Codes under way need no count: the actor checks one at a time.
        if len(self._wrong_codes) < WRONG_CODES:
            return 0.0
        window_opens = self._wrong_codes[0] + WRONG_CODES_WINDOW
        return min(window_opens, self._wrong_codes[-1] + WRONG_CODES_PACE) - now

    def _tries(self, address: str) -> Tries:
        network = network_of(address)
        tries = self._by_network.pop(network, None)
        if tries is None:
            tries = Tries()
            if len(self._by_network) >= MAX_ADDRESSES:
                tries.failures = self._replace_one()
        self._by_network[network] = tries
        return tries

    def _replace_one(self) -> int:
        """Give up the record with the fewest failures and return them. Never one in use."""
        network = min(self._by_network, key=self._cost)
        return self._by_network.pop(network).failures

    def _cost(self, network: str) -> tuple[bool, int]:
        tries = self._by_network[network]
        return tries.under_way > 0, tries.failures


def network_of(address: str) -> str:
    """What counts as one address: an IPv4 address, an IPv6 /64. All that is neither is one too."""
    try:
        ip = ip_address(address)
    except ValueError:
        return "no address"
    if not isinstance(ip, IPv6Address):
        return str(ip)
    if ip.ipv4_mapped is not None:
        return str(ip.ipv4_mapped)
    return str(IPv6Network((int(ip) >> 64 << 64, 64)))
