"""The webhook dispatcher: it makes the calls that the store holds, each at least once.

A call waits for earlier ones of its execution to the same URL; a question to a person waits for
earlier questions alone, and no other event waits for it. One task asks the store for due calls, and
starts a task for each that finds a free slot. `retry.py` judges the attempt, and the store keeps
the time of the next one. See docs/decisions/071-webhook-dispatcher.md.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final, TypeVar

import trio
from pydantic import SecretBytes

from smartlinkd.crews.webhooks.retry import Verdict, judge
from smartlinkd.crews.webhooks.signing import signature_headers
from smartlinkd.errors import Unavailable
from smartlinkd.logs import LogContext, LogEvent, bind_log_contexts
from smartlinkd.metrics import LATE, histogram
from smartlinkd.net.addresses import Network
from smartlinkd.net.egress import Sender, Unanswered, open_sender
from smartlinkd.net.egress_rules import origin
from smartlinkd.nurseries import sole_error
from smartlinkd.store.actor import Store
from smartlinkd.store.model import Delivery
from smartlinkd.supervision.calls import retry_until_success
from smartlinkd.supervision.heartbeat import Heartbeat
from smartlinkd.supervision.policy import Backoff

logger = logging.getLogger(__name__)

STORE_BACKOFF: Final = Backoff(first=1.0, longest=30.0)
"""Between two tries when the store cannot be used."""
SHORTEST_SLEEP_S: Final = 0.05
"""The wall clock and trio's are compared, and need not agree to the microsecond."""

R = TypeVar("R")


@dataclass(frozen=True)
class WebhookLimits:
    """The dispatcher's bounds."""

    at_once: int = 16
    """Slots. Each holds a body, of a few MiB at the most and usually of a few KiB."""
    at_once_to_a_host: int = 2
    """Slots of one host and port, so that one that hangs leaves slots for others."""
    max_age_s: float = 25 * 3600.0
    """A call that has been due for longer is attempted once more at most."""
    longest_sleep_s: float = 60.0
    """The longest sleep when nothing is due, so that a wall clock which was set is noticed."""


class WebhookDispatcher:
    """The handle; `run` is one instance."""

    def __init__(
        self,
        store: Store,
        *,
        allow: Sequence[Network],
        key: SecretBytes | None,
        limits: WebhookLimits = WebhookLimits(),
        wall: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        """Make a handle of a dispatcher that is not running.

        Args:
            allow: Networks that may be called beside the public internet.
            key: Signs the calls; None leaves them unsigned.
        """
        self._store = store
        self._allow = tuple(allow)
        self._key = key
        self._limits = limits
        self._wall = wall
        self.heartbeat = Heartbeat(self.nudge)
        # The wait behind an earlier call to the same target counts as lateness.
        self._wait_seconds = histogram(
            "webhook_wait", "From when a webhook call is due to its attempt", buckets=LATE
        )
        self._attempt_seconds = histogram(
            "webhook_attempt", "An attempt at a webhook call", "outcome"
        )
        self.metrics = (self._wait_seconds, self._attempt_seconds)
        self._news = trio.Event()
        self._held: dict[int, Delivery] = {}
        """The calls in slots, by their ids."""

    def nudge(self) -> None:
        """Have it look for due calls. Cheap; also while it is not running."""
        self._news.set()

    async def run(self, task_status: trio.TaskStatus[None]) -> None:
        """Make calls until cancelled. The next instance repeats those that were being made."""
        async with (
            open_sender(self._allow, max_connections=self._limits.at_once) as sender,
            sole_error(),
            trio.open_nursery() as nursery,
        ):
            task_status.started()
            while True:
                self.heartbeat.touch()
                # Before the look, which may miss what is queued meanwhile.
                self._news = trio.Event()
                sleep_s = await self._start_due(sender, nursery)
                with trio.move_on_after(max(SHORTEST_SLEEP_S, sleep_s)):
                    await self._news.wait()

    async def _start_due(self, sender: Sender, nursery: trio.Nursery) -> float:
        """Start the due calls that find a slot. Return the seconds until the next look."""
        while len(self._held) < self._limits.at_once:
            found = await self._ask_store(self._next)
            now = self._wall()
            started = [each for each in found if each.next_at <= now and self._acquire(each)]
            for delivery in started:
                self._wait_seconds.observe((now - delivery.next_at).total_seconds())
                nursery.start_soon(self._deliver, sender, delivery)
            if not started:
                waits = ((each.next_at - now).total_seconds() for each in found)
                return next((wait for wait in waits if wait > 0), self._limits.longest_sleep_s)
        return self._limits.longest_sleep_s  # the end of a call wakes it

    async def _next(self) -> list[Delivery]:
        """Return calls that are due now or soon, but for hosts that have all their slots.

        However many wait for a host that hangs, they hide no other.
        """
        self.heartbeat.touch(STORE_BACKOFF.longest)  # also when it is tried for the tenth time
        return await self._store.due_deliveries(
            self._wall() + timedelta(seconds=self._limits.longest_sleep_s),
            self._limits.at_once,
            except_ids=tuple(self._held),
            except_origins=self._busy_hosts(),
        )

    def _busy_hosts(self) -> list[str]:
        slots = Counter(origin(each.target.url) for each in self._held.values())
        return [host for host, count in slots.items() if count >= self._limits.at_once_to_a_host]

    def _acquire(self, delivery: Delivery) -> bool:
        """Give the call a slot if there is one. The store gives only the first of each target."""
        is_free = (
            len(self._held) < self._limits.at_once
            and origin(delivery.target.url) not in self._busy_hosts()
        )
        if is_free:
            self._held[delivery.id] = delivery
        return is_free

    async def _deliver(self, sender: Sender, delivery: Delivery) -> None:
        try:
            with bind_log_contexts(
                (LogContext(crew=delivery.crew, kickoff_id=delivery.execution_id),)
            ):
                began = trio.current_time()
                verdict = await self._attempt(sender, delivery)
                seconds = trio.current_time() - began
                self._attempt_seconds.labels(verdict.outcome).observe(seconds)
                await self._record(delivery, verdict)
        finally:
            del self._held[delivery.id]
            self.nudge()

    async def _attempt(self, sender: Sender, delivery: Delivery) -> Verdict:
        target = delivery.target
        call_id = f"msg_{delivery.execution_id}_{delivery.id}"
        headers = signature_headers(self._key, call_id, self._wall(), delivery.body)
        if target.auth is not None:
            headers["Authorization"] = target.auth.get_secret_value()
        try:
            outcome = await sender.post(target.url, headers, delivery.body)
        except Exception as error:  # noqa: BLE001 - see below
            # A call that trips over a bug of ours would end this actor, again after each restart,
            # and with it the daemon. The type alone: a message may hold what must not be logged.
            name = type(error).__name__
            logger.error("a bug of ours (%s) in the %s", name, _described(delivery))  # noqa: TRY400
            outcome = Unanswered("a bug of the daemon's own")
        now = self._wall()
        age_s = (now - delivery.due_since).total_seconds()
        is_last = age_s > self._limits.max_age_s
        return judge(outcome, delivery.attempts + 1, is_last=is_last, now=now)

    async def _record(self, delivery: Delivery, verdict: Verdict) -> None:
        """Write the verdict to the store, however long it takes. A lost one repeats the call."""
        match verdict.outcome:
            case "done":
                await self._ask_store(lambda: self._store.remove_delivery(delivery.id))
                logger.debug("made the %s", _described(delivery))
            case "later":
                text = "the %s failed: %s; again in %.0f s"
                logger.info(text, _described(delivery), verdict.why, verdict.wait)
                next_at = self._wall() + timedelta(seconds=verdict.wait)
                await self._ask_store(lambda: self._store.reschedule(delivery.id, next_at))
            case "given up":
                # Logged before it is so: a stop in between would leave it unsaid.
                about = LogEvent.WEBHOOK_GIVEN_UP()
                text = "gave up the %s: %s"
                logger.warning(text, _described(delivery), verdict.why, extra=about)
                await self._ask_store(lambda: self._store.remove_delivery(delivery.id))

    async def _ask_store(self, ask: Callable[[], Awaitable[R]]) -> R:
        """Return the store's answer, retried as long as the store is unavailable."""

        async def wait(refusal: Unavailable, attempts: int) -> None:
            delay = STORE_BACKOFF.wait(attempts)
            logger.warning("webhooks try again in %.0f s: %s", delay, refusal)
            await trio.sleep(delay)

        return await retry_until_success(ask, wait)


def _described(delivery: Delivery) -> str:
    """Describe a call for the log, without the path of its address, which may be a secret."""
    return (
        f"{delivery.target.kind} webhook call {delivery.id} of execution {delivery.execution_id} "
        f"to {origin(delivery.target.url)}"
    )
