"""Hands for webhook calls: how many are made at once, in all, to one host, and to one target.

The problem: a receiver that hangs keeps a hand for half a minute with each call, and they come in
crowds when a host is down. One that takes seconds to answer keeps its hands without end, as long as
it is owed something. Calls to everybody else would wait for them.

The choice: a host has a few of all hands, and a single one from when it was silent, or slow, until
it answers in time again, be it with an error. The last few hands are for hosts that have none. So
there are hands left until as many hosts are silent or slow as there are hands.

Rejected: to ask the journal for hosts without a hand first, and only then for others. All that is
due for the one host that is busy would be passed over once more with each call.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Collection
from typing import Final

import trio

from smartlinkd.crews.webhooks.retry import BACKOFF
from smartlinkd.journal.model import Delivery
from smartlinkd.net.egress_rules import origin

AT_ONCE: Final = 16
"""Calls in hand; each may hold a body of 32 MiB, and usually one of a few KiB."""
AT_ONCE_TO_A_HOST: Final = 4
FOR_OTHERS: Final = 4
"""The last of all hands: a host that has one already gets none of them."""
SLOW_AFTER: Final = 2.0
"""Seconds to an answer; one that comes later is a slow host's."""
MAX_REMEMBERED: Final = 1000
"""Hosts remembered as silent, and as slow; one that is forgotten may take its few hands again."""
LONGEST_GAP: Final = 2 * BACKOFF.longest
"""Seconds from one silence to the next up to which they are one. No call is put off for that long:
when more has passed, nothing was sent, and that nothing was said tells nothing of the host."""

Target = tuple[str, str, bool]  # the execution, the URL, and whether a human is asked there


class Hands:
    """Which calls are in hand. Calls to one target are made one at a time."""

    def __init__(self) -> None:
        self._held: dict[int, Delivery] = {}
        self._silent: OrderedDict[str, tuple[float, float]] = OrderedDict()
        """Since when, on trio's clock, each of them has said nothing, and when it did so last."""
        self._slow: OrderedDict[str, None] = OrderedDict()
        """Those whose last answer came late."""

    @property
    def held(self) -> Collection[int]:
        """The calls in hand, by their ids."""
        return self._held.keys()

    @property
    def free(self) -> bool:
        """Whether there is one, be it for a host that may have another or not."""
        return len(self._held) < AT_ONCE

    def take(self, delivery: Delivery) -> bool:
        """Take it in hand, if it may be made now: else the end of another one is the time for it.

        Who has taken it gives it back with `release`.
        """
        targets = {target_of(each) for each in self._held.values()}
        may = (
            self.free
            and target_of(delivery) not in targets
            and origin(delivery.target.url) not in self.busy_hosts()
        )
        if may:
            self._held[delivery.id] = delivery
        return may

    def release(self, delivery: Delivery) -> None:
        """It has ended, in whatever way."""
        del self._held[delivery.id]

    def heard(self, delivery: Delivery, *, silent: bool, after: float) -> None:
        """Its receiver has said something, or nothing, `after` so many seconds."""
        host, now = origin(delivery.target.url), trio.current_time()
        since, last = self._silent.pop(host, (now, now))
        self._slow.pop(host, None)
        if silent:
            self._silent[host] = (since if now - last <= LONGEST_GAP else now, now)
            if len(self._silent) > MAX_REMEMBERED:
                self._silent.popitem(last=False)
        elif after > SLOW_AFTER:
            self._slow[host] = None
            if len(self._slow) > MAX_REMEMBERED:
                self._slow.popitem(last=False)

    def silent_for(self, delivery: Delivery) -> float:
        """Seconds from the first to the last time that its receiver's host said nothing; 0 when it
        has said something since."""
        since, last = self._silent.get(origin(delivery.target.url), (0.0, 0.0))
        return last - since

    def busy_hosts(self) -> list[str]:
        """The hosts that have as many hands as they may."""
        hosts = Counter(origin(each.target.url) for each in self._held.values())
        few_left = len(self._held) >= AT_ONCE - FOR_OTHERS
        return [host for host, hands in hosts.items() if few_left or hands >= self._most(host)]

    def _most(self, host: str) -> int:
        return 1 if host in self._silent or host in self._slow else AT_ONCE_TO_A_HOST


def target_of(delivery: Delivery) -> Target:
    """Whose calls are made in order."""
    target = delivery.target
    return (delivery.execution_id, target.url, target.kind == "human_input")
