"""A cache whose results expire, and work that is done once for all that ask at the same time."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar, cast

import trio

from smartlinkd.errors import Refused
from smartlinkd.logs import LogContextSet, bind_log_contexts

K = TypeVar("K")
V = TypeVar("V")


class TTLCache(Generic[K, V]):
    """Results by key. A full cache evicts the least recently used one."""

    def __init__(self, *, ttl_s: float, max_size: int) -> None:
        self._ttl_s = ttl_s
        self._max_size = max_size
        self._results: OrderedDict[K, tuple[float, V]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._results)

    def get(self, key: K) -> V | None:
        """Return the result for `key`, or None if there is none or it has expired."""
        expires, value = self._results.get(key, (0.0, None))
        if value is None:
            return None
        if trio.current_time() >= expires:
            del self._results[key]
            return None
        self._results.move_to_end(key)
        return value

    def put(self, key: K, value: V, *, ttl_s: float | None = None) -> None:
        """Cache the result for `key`. `ttl_s` is for it alone; with 0 nothing is cached."""
        seconds = self._ttl_s if ttl_s is None else ttl_s
        if seconds <= 0:
            return
        self._results[key] = (trio.current_time() + seconds, value)
        self._results.move_to_end(key)
        while len(self._results) > self._max_size:
            self._results.popitem(last=False)

    def clear(self) -> None:
        """Evict all results."""
        self._results.clear()


class SharedResult(Generic[V]):
    """A result, or a refusal, that several tasks wait for. The work for it runs elsewhere."""

    def __init__(self) -> None:
        self.log_contexts = LogContextSet()
        """The requests of all tasks that have waited."""
        self._waiters = 0
        self._done = trio.Event()
        self._value: V | None = None
        self._refusal: Refused | None = None

    def join(self) -> None:
        """Count the running task as a waiter. It has to call `wait` next."""
        self._waiters += 1
        self.log_contexts.add_current()

    async def wait(self, abandon: Callable[[], None]) -> V:
        """Wait for the result. Raises the refusal.

        The last waiter that leaves before the end calls `abandon`.
        """
        try:
            await self._done.wait()
        finally:
            self._waiters -= 1
            if self._waiters == 0 and not self._done.is_set():
                abandon()
        if self._refusal is not None:
            # One error for many: each raises it without the frames that another one added.
            raise self._refusal.with_traceback(None)
        return cast("V", self._value)

    def succeed(self, value: V) -> None:
        """Give the waiters the result."""
        self._value = value
        self._done.set()

    def refuse(self, refusal: Refused) -> None:
        """Raise the refusal in the waiters."""
        self._refusal = refusal
        self._done.set()


class SingleFlight(Generic[K, V]):
    """Runs the work for a key once for all tasks that want it at the same time.

    The work runs in the given nursery and not in the task that came first, so any task may leave.
    It is cancelled when the last one has left. Its log lines name the requests of all.
    """

    def __init__(self, nursery: trio.Nursery) -> None:
        self._nursery = nursery
        self._running: dict[K, tuple[SharedResult[V], trio.CancelScope]] = {}

    async def run(self, key: K, work: Callable[[], Awaitable[V]]) -> V:
        """Return the result of `work`, or of the same work that runs already.

        Raises the `Refused` that the work raised. Any other exception of the work is a bug, and
        ends the nursery.
        """
        if key not in self._running:
            self._running[key] = SharedResult[V](), trio.CancelScope()
            self._nursery.start_soon(self._run, key, *self._running[key], work)
        result, scope = self._running[key]

        def abandon() -> None:
            self._remove(key, result)  # or a newcomer would join the cancelled work
            scope.cancel()

        result.join()
        return await result.wait(abandon)

    async def _run(
        self,
        key: K,
        result: SharedResult[V],
        scope: trio.CancelScope,
        work: Callable[[], Awaitable[V]],
    ) -> None:
        with scope, bind_log_contexts(result.log_contexts):
            try:
                value = await work()
            except Refused as refusal:
                result.refuse(refusal)
            else:
                result.succeed(value)
        self._remove(key, result)

    def _remove(self, key: K, result: SharedResult[V]) -> None:
        # Newer work may be in the place of work that all have left.
        if key in self._running and self._running[key][0] is result:
            del self._running[key]
