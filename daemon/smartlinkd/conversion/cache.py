"""The same work at the same time is done once, and its result is remembered for a while.

The problem: several requests want the same link converted, or the same product read, and each of
them may be cancelled at any moment. Whoever came first must not be the owner of the work, or its
leaving would take the result from the others.

The choice: the work runs in the desk's nursery and belongs to all that wait for it. It is cancelled
when the last of them has gone, and its log lines name the requests of all. Results are remembered
by age and number, errors never are.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar, cast

import trio

from smartlinkd.errors import Refused
from smartlinkd.logs import LogContextSet, bind_log_contexts
from smartlinkd.vault.cookie import Cookie

K = TypeVar("K")
V = TypeVar("V")


def whose(cookie: Cookie | None) -> str:
    """What results of a cookie are remembered by: nothing of one is another one's."""
    return cookie.digest if cookie else ""


class Remembered(Generic[K, V]):
    """Results by key, each for `seconds`, at most `limit` of them: the least recently used go."""

    def __init__(self, *, seconds: float, limit: int) -> None:
        self._seconds = seconds
        self._limit = limit
        self._results: OrderedDict[K, tuple[float, V]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._results)

    def get(self, key: K) -> V | None:
        """The result for `key`, or None when there is none that is fresh."""
        found = self._results.get(key)
        if found is None:
            return None
        expires, value = found
        if trio.current_time() >= expires:
            del self._results[key]
            return None
        self._results.move_to_end(key)
        return value

    def put(self, key: K, value: V) -> None:
        """Remember `value`, in the place of an older one."""
        if self._seconds <= 0:
            return
        self._results[key] = (trio.current_time() + self._seconds, value)
        self._results.move_to_end(key)
        while len(self._results) > self._limit:
            self._results.popitem(last=False)


class _Flight(Generic[V]):
    """One piece of work under way and the number of those who wait for it."""

    def __init__(self) -> None:
        self.waiters = 0
        self.log_contexts = LogContextSet()
        self.scope = trio.CancelScope()
        self.landed = trio.Event()
        self.value: V | None = None
        self.refusal: Refused | None = None


class Shared(Generic[K, V]):
    """Does the work for a key once for all who want it at the same time. Remembers nothing."""

    def __init__(self, nursery: trio.Nursery) -> None:
        self._nursery = nursery
        self._flights: dict[K, _Flight[V]] = {}

    async def get(self, key: K, work: Callable[[], Awaitable[V]]) -> V:
        """The result of `work`, or of the same work that is under way already.

        Raises the `Refused` that the work raised; any other exception of the work is a bug, and
        ends the nursery.
        """
        flight = self._flights.get(key)
        if flight is None:
            flight = self._flights[key] = _Flight()
            self._nursery.start_soon(self._fly, key, flight, work)
        flight.waiters += 1
        flight.log_contexts.add_current()
        try:
            await flight.landed.wait()
        finally:
            flight.waiters -= 1
            if flight.waiters == 0 and not flight.landed.is_set():
                # Nobody wants it any more. A newcomer must not join a cancelled flight.
                self._forget(key, flight)
                flight.scope.cancel()
        if flight.refusal is not None:
            # One error for many: each raises it without the frames that another one added.
            raise flight.refusal.with_traceback(None)
        return cast("V", flight.value)

    async def _fly(self, key: K, flight: _Flight[V], work: Callable[[], Awaitable[V]]) -> None:
        with flight.scope, bind_log_contexts(flight.log_contexts):
            try:
                flight.value = await work()
            except Refused as refusal:
                flight.refusal = refusal
        self._forget(key, flight)
        flight.landed.set()

    def _forget(self, key: K, flight: _Flight[V]) -> None:
        if self._flights.get(key) is flight:
            del self._flights[key]
