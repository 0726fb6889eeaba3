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
        """Replace the result for `key`. `ttl_s` is for this result alone."""
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


class _Call(Generic[V]):
    """One piece of work, and the number of tasks that wait for it."""

    def __init__(self) -> None:
        self.waiters = 0
        self.log_contexts = LogContextSet()
        self.scope = trio.CancelScope()
        self.done = trio.Event()
        self.value: V | None = None
        self.refusal: Refused | None = None


class SingleFlight(Generic[K, V]):
    """Runs the work for a key once for all tasks that want it at the same time.

    The work runs in the given nursery and not in the task that came first, so any task may leave.
    It is cancelled when the last one has left. Its log lines name the requests of all.
    """

    def __init__(self, nursery: trio.Nursery) -> None:
        self._nursery = nursery
        self._calls: dict[K, _Call[V]] = {}

    async def run(self, key: K, work: Callable[[], Awaitable[V]]) -> V:
        """Return the result of `work`, or of the same work that runs already.

        Raises the `Refused` that the work raised. Any other exception of the work is a bug, and
        ends the nursery.
        """
        call = self._calls.get(key)
        if call is None:
            call = self._calls[key] = _Call()
            self._nursery.start_soon(self._run, key, call, work)
        call.waiters += 1
        call.log_contexts.add_current()
        try:
            await call.done.wait()
        finally:
            call.waiters -= 1
            if call.waiters == 0 and not call.done.is_set():
                self._remove(key, call)  # or a newcomer would join the cancelled work
                call.scope.cancel()
        if call.refusal is not None:
            # One error for many: each raises it without the frames that another one added.
            raise call.refusal.with_traceback(None)
        return cast("V", call.value)

    async def _run(self, key: K, call: _Call[V], work: Callable[[], Awaitable[V]]) -> None:
        with call.scope, bind_log_contexts(call.log_contexts):
            try:
                call.value = await work()
            except Refused as refusal:
                call.refusal = refusal
        self._remove(key, call)
        call.done.set()

    def _remove(self, key: K, call: _Call[V]) -> None:
        if self._calls.get(key) is call:
            del self._calls[key]
