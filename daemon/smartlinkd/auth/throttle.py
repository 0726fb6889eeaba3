"""Limits on guessing: failures of each network, and wrong codes of all. No I/O; the clock is given.

An attempt is reserved before its check, and pending ones count as failures, so that attempts sent
side by side do not all pass before the first has failed. If only pending attempts block a client,
it waits until they are decided. One-time codes have only a million values, so they have a limit
over all networks too; only a client that knows the password can send any. The table is bounded: a
new network inherits the count of the one it evicts. See docs/decisions/032-throttle.md.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from ipaddress import IPv6Address, IPv6Network, ip_address
from typing import Final

import trio

from smartlinkd.errors import TooManyTries, WrongCredential

FREE_FAILURES: Final = 10
MAX_WAIT: Final = 60.0
"""Seconds between two attempts: 1 after the last free failure, doubled by each further one."""

WRONG_CODES: Final = 20
WRONG_CODES_WINDOW: Final = 3600.0
WRONG_CODES_PACE: Final = 60.0
"""After 20 wrong codes in an hour (whoever sends them), one code a minute. In seconds."""

MAX_NETWORKS: Final = 4096
"""Networks kept, well under a megabyte. Finding the one to evict takes half a millisecond."""


class Tries:
    """The attempts of one network."""

    def __init__(self) -> None:
        self.failures = 0
        self.pending = 0
        self.next_at = 0.0
        self.verdicts = trio.lowlevel.ParkingLot()

    def succeeded(self) -> None:
        """Reset the count: the owner uses this network."""
        self.failures = 0

    def failed(self, now: float) -> None:
        """Count a failure, and set when the next attempt may come."""
        self.failures += 1
        # The power is an int: a float would overflow after a thousand failures.
        self.next_at = now + min(MAX_WAIT, 2 ** (self.failures - FREE_FAILURES))

    @property
    def is_slowed_by_next_failure(self) -> bool:
        """True if the next failure is followed by a wait."""
        return self.failures + 1 >= FREE_FAILURES

    def seconds_to_wait(self, now: float) -> float:
        """Return the seconds until the next attempt; zero or less if it may come now."""
        return self.next_at - now if self.failures >= FREE_FAILURES else 0.0

    @property
    def has_to_await_verdicts(self) -> bool:
        """True if the pending attempts decide whether another one may come."""
        return self.pending > 0 and self.failures + self.pending >= FREE_FAILURES


class Throttle:
    """Counts failures by network, and wrong codes over all.

    Args:
        clock: monotonic, in seconds.
        max_networks: networks that are kept.
        max_wrong_codes: wrong codes in an hour after which codes are slowed down.
    """

    def __init__(
        self,
        clock: Callable[[], float],
        *,
        max_networks: int = MAX_NETWORKS,
        max_wrong_codes: int = WRONG_CODES,
    ) -> None:
        self._clock = clock
        self._max_networks = max_networks
        self._by_network: dict[str, Tries] = {}  # least recently used first
        self._max_wrong_codes = max_wrong_codes
        self._wrong_codes: deque[float] = deque(maxlen=max_wrong_codes)

    @asynccontextmanager
    async def attempt(self, address: str, *, code: bool = False) -> AsyncIterator[Tries]:
        """Reserve one attempt, which the block makes. Wait while only pending ones block it.

        A block that raises `WrongCredential` is counted as a failure. A block that calls
        `succeeded` resets the count. Any other end changes nothing.

        Args:
            code: True for a one-time code.

        Raises:
            TooManyTries: it is too early for an attempt.
        """
        tries = self._tries(address)
        # Codes are checked one at a time, so they need not wait for verdicts on passwords.
        while tries.has_to_await_verdicts and not code:
            await tries.verdicts.park()
            tries = self._tries(address)
        now = self._clock()
        wait = max(tries.seconds_to_wait(now), self._wait_for_codes(now) if code else 0.0)
        if wait > 0:
            seconds = math.ceil(wait)
            raise TooManyTries(
                f"too many failed tries; try again in {seconds} s", retry_after=seconds
            )
        tries.pending += 1
        try:
            yield tries
        except WrongCredential:
            tries.failed(self._clock())
            if code:
                self._wrong_codes.append(self._clock())
            raise
        finally:
            tries.pending -= 1
            tries.verdicts.unpark_all()

    def _wait_for_codes(self, now: float) -> float:
        # Pending codes are not counted: the actor checks one at a time.
        if len(self._wrong_codes) < self._max_wrong_codes:
            return 0.0
        window_opens = self._wrong_codes[0] + WRONG_CODES_WINDOW
        return min(window_opens, self._wrong_codes[-1] + WRONG_CODES_PACE) - now

    def _tries(self, address: str) -> Tries:
        network = network_of(address)
        tries = self._by_network.pop(network, None)
        if tries is None:
            tries = Tries()
            if len(self._by_network) >= self._max_networks:
                tries.failures = self._replace_one()
        self._by_network[network] = tries
        return tries

    def _replace_one(self) -> int:
        """Evict the network with the fewest failures, and return their count. Never one in use."""
        network = min(self._by_network, key=self._cost)
        return self._by_network.pop(network).failures

    def _cost(self, network: str) -> tuple[bool, int]:
        tries = self._by_network[network]
        return tries.pending > 0, tries.failures


def network_of(address: str) -> str:
    """Return the network of an address: an IPv4 address, or the /64 that one IPv6 customer gets.

    All texts that are no address share one network.
    """
    try:
        ip = ip_address(address)
    except ValueError:
        return "no address"
    if not isinstance(ip, IPv6Address):
        return str(ip)
    if ip.ipv4_mapped is not None:
        return str(ip.ipv4_mapped)
    return str(IPv6Network((int(ip) >> 64 << 64, 64)))
