"""The webhooks actor: makes the calls that the journal holds, until each is taken or given up.

The problem: a call must not be lost when the daemon dies between making it and noting that it was
made, so it is noted afterwards, and a call can be made twice but not never. Calls of one execution
to one target go in order and one at a time, or a receiver would hear of the end before the last
task: a target is one address of an execution, whatever it is told there but for questions to a
human, which have an order of their own. And receivers hang, by the dozen when their host is down.

The choice: the journal is the queue, and nothing of it is kept here. One task asks it for what is
due and has a hand free, of each execution and target the first call, and starts a task for each. A
call that is done makes room for the next behind it. One that failed is put off in the journal, and
what waits behind it waits on. Hands are limited for all calls and for one host (`hands.py`): one
that hangs leaves hands for the others.

A target that has worn out all attempts of one call, about a day, gets one attempt for each further
call until it takes one: what has piled up behind does not take another day each.

Attempts take longer than a day where a call waits for a hand, and what is known of a host's silence
ends with the daemon, or with its answer to another call. So a call has an age, too: one that has
been due for a day gets one attempt more (`clock.py`: when the clock is believed about that). That
wears out nothing: the next call may be a new one. With one hand a silent host may never come to
what it has been owed for as long: once its silence has lasted, that is given up.

Rejected: a queue in memory beside the one on disk, which has to be filled after a start and agree
with it ever after; a task for each target, for there may be thousands that wait for an hour.
"""

from __future__ import annotations

import logging
import random
from collections import Counter, OrderedDict
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, suppress
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final, TypeVar

import trio
from prometheus_client import Histogram
from pydantic import SecretBytes

from smartlinkd.crews.webhooks.clock import SteadyClock
from smartlinkd.crews.webhooks.hands import AT_ONCE, Hands, Target, target_of
from smartlinkd.crews.webhooks.retry import (
    LOST_AFTER,
    MAX_ATTEMPTS,
    SILENT_AFTER,
    Delivered,
    GivenUp,
    Later,
    Verdict,
    judge,
)
from smartlinkd.crews.webhooks.signing import signature_headers
from smartlinkd.errors import Unavailable
from smartlinkd.journal.actor import Journal
from smartlinkd.journal.model import Delivery
from smartlinkd.late_imports import needed
from smartlinkd.logs import LogContext, LogEvent, bind_log_contexts
from smartlinkd.net.addresses import Network
from smartlinkd.net.egress_rules import origin
from smartlinkd.net.outcomes import Unanswered
from smartlinkd.nurseries import sole_error
from smartlinkd.supervision.heartbeat import Heartbeat
from smartlinkd.supervision.policy import Backoff
from smartlinkd.timing import DONE, LATE, histogram

if TYPE_CHECKING:
    from smartlinkd.net.egress import Resolve, Sender

logger = logging.getLogger(__name__)

LONGEST_SLEEP: Final = 60.0
"""Seconds between two looks when nothing is known to come. Whatever queues a call says so, and this
is for a clock that was set."""
SHORTEST_SLEEP: Final = 0.05
"""Seconds; two clocks are compared here, and need not agree to the microsecond."""
JOURNAL_WAITS: Final = Backoff(first=1.0, longest=30.0)
"""Between two tries when the journal cannot be used."""
TO_GIVE_UP: Final = 2.0
"""Seconds for the journal to give up some calls at once."""
MAX_WORN_OUT: Final = 1000
"""Targets remembered as such; one that is forgotten gets a day again."""

_OUTCOMES: Final = {Delivered: DONE, Later: "later", GivenUp: "given up"}

R = TypeVar("R")


class Timings:
    """How long after it was due a call is attempted, the wait behind earlier ones included, and how
    long an attempt takes; for `/metrics`. A call that is given up untried counts as an attempt that
    took no time."""

    def __init__(self) -> None:
        self.wait = histogram(
            "webhook_wait", "From when a webhook call is due to its attempt", buckets=LATE
        )
        self.attempt = histogram("webhook_attempt", "An attempt at a webhook call", "outcome")

    def __iter__(self) -> Iterator[Histogram]:
        return iter((self.wait, self.attempt))


class Webhooks:
    """The handle; `run` is one instance. Without a `key`, calls are not signed."""

    def __init__(
        self,
        journal: Journal,
        *,
        allow: Sequence[Network],
        key: SecretBytes | None,
        wall: Callable[[], datetime] = lambda: datetime.now(UTC),
        resolve: Resolve | None = None,
        chance: random.Random | None = None,
    ) -> None:
        self._journal = journal
        self._allow = tuple(allow)
        self._key = key
        self._wall = wall
        self._resolve = resolve
        self._chance = chance or random.Random()  # noqa: S311 - spreads waits, guards nothing
        self.heartbeat = Heartbeat(self.nudge)
        self.timings = Timings()
        self._news = trio.Event()
        self._hands = Hands()
        self._worn_out: OrderedDict[Target, None] = OrderedDict()
        self._clock = SteadyClock(wall)

    def nudge(self) -> None:
        """Something was queued. Cheap; also while it is not running."""
        self._news.set()

    async def run(self, task_status: trio.TaskStatus[None]) -> None:
        """Make calls until cancelled; the next instance makes again what was in hand."""
        task_status.started()
        await self._until_called_for()
        async with (
            await self._insist(self._sender) as sender,
            sole_error(),
            trio.open_nursery() as nursery,
        ):
            while True:
                self.heartbeat.touch()
                # Before the look: what is queued meanwhile may be missed by it.
                self._news = trio.Event()
                sleep = await self._look(sender, nursery)
                with trio.move_on_after(max(SHORTEST_SLEEP, sleep)):
                    await self._news.wait()

    async def _until_called_for(self) -> None:
        """Wait for the first call that is due, or soon will be: many a daemon never makes one."""
        while True:
            self.heartbeat.touch()
            self._news = trio.Event()
            if await self._insist(self._next):
                return
            with trio.move_on_after(LONGEST_SLEEP):
                await self._news.wait()

    async def _sender(self) -> AbstractAsyncContextManager[Sender]:
        with needed():
            from smartlinkd.net.egress import open_sender  # noqa: PLC0415 - see smartlinkd/late_imports.py
        return open_sender(self._allow, max_connections=AT_ONCE, resolve=self._resolve)

    async def _look(self, sender: Sender, nursery: trio.Nursery) -> float:
        """Start what is due and has a hand free; returns in how many seconds to look again."""
        while self._hands.free:
            found = await self._insist(self._next)
            now = self._wall()
            started = [each for each in found if each.next_at <= now and self._hands.take(each)]
            for delivery in started:
                self.timings.wait.observe((now - delivery.next_at).total_seconds())
                nursery.start_soon(self._deliver, sender, delivery)
            if not started:
                waits = ((each.next_at - now).total_seconds() for each in found)
                return next((wait for wait in waits if wait > 0), LONGEST_SLEEP)
        return LONGEST_SLEEP  # the end of a call is the time to look again

    async def _next(self) -> list[Delivery]:
        """What is due, or will be soon, and not for a host that has no hand free: however much
        waits for one that hangs, it hides no other."""
        self.heartbeat.touch(JOURNAL_WAITS.longest)  # the loop is here, be it for the tenth time
        return await self._journal.due_deliveries(
            self._wall() + timedelta(seconds=LONGEST_SLEEP),
            AT_ONCE,
            except_ids=tuple(self._hands.held),
            except_origins=self._hands.busy_hosts(),
        )

    async def _deliver(self, sender: Sender, delivery: Delivery) -> None:
        try:
            with bind_log_contexts(
                (LogContext(crew=delivery.crew, kickoff_id=delivery.execution_id),)
            ):
                began = trio.current_time()
                verdict = await self._attempt(sender, delivery)
                seconds = trio.current_time() - began
                self.timings.attempt.labels(_OUTCOMES[type(verdict)]).observe(seconds)
                await self._note(delivery, verdict)
        finally:
            self._hands.release(delivery)
            self.nudge()

    async def _attempt(self, sender: Sender, delivery: Delivery) -> Verdict:
        target = delivery.target
        call_id = f"msg_{delivery.execution_id}_{delivery.id}"
        headers = signature_headers(self._key, call_id, self._wall(), delivery.body)
        if target.auth is not None:
            headers["Authorization"] = target.auth.get_secret_value()
        began = trio.current_time()
        try:
            outcome = await sender.post(target.url, headers, delivery.body)
        except Exception as error:  # noqa: BLE001 - see below
            # A call that trips over a bug of ours would end this actor, again after each restart,
            # and with it the daemon. The type alone: a message may hold what must not be logged.
            name = type(error).__name__
            logger.error("a bug of ours (%s) in the %s", name, _told(delivery))  # noqa: TRY400
            outcome = Unanswered("a bug of the daemon's own")
        after = trio.current_time() - began
        self._hands.heard(delivery, silent=isinstance(outcome, Unanswered), after=after)
        return judge(
            outcome,
            delivery.attempts + 1,
            most=1 if self._is_worn_out(delivery) else MAX_ATTEMPTS,
            too_old=self._is_too_old(delivery),
            now=self._wall(),
            chance=self._chance,
        )

    def _is_worn_out(self, delivery: Delivery) -> bool:
        is_lost = self._hands.silent_for(delivery) > LOST_AFTER
        return is_lost or target_of(delivery) in self._worn_out

    def _is_too_old(self, delivery: Delivery) -> bool:
        age = (self._wall() - delivery.due_since).total_seconds()
        return self._clock.is_steady() and age > LOST_AFTER

    async def _note(self, delivery: Delivery, verdict: Verdict) -> None:
        """Put it into the journal, however long that cannot be used: it would be made again. Where
        its host is silent, what that was owed for too long goes as well."""
        match verdict:
            case Delivered():
                self._worn_out.pop(target_of(delivery), None)
                await self._insist(lambda: self._journal.done(delivery.id))
                logger.debug("made the %s", _told(delivery))
            case Later(why, wait):
                logger.info("the %s failed: %s; again in %.0f s", _told(delivery), why, wait)
                next_at = self._wall() + timedelta(seconds=wait)
                await self._insist(lambda: self._journal.put_off(delivery.id, next_at))
            case GivenUp(why, worn_out):
                if worn_out:
                    self._worn_out[target_of(delivery)] = None
                    while len(self._worn_out) > MAX_WORN_OUT:
                        self._worn_out.popitem(last=False)
                # Told before it is so: a stop in between would leave it untold.
                about = LogEvent.WEBHOOK_GIVEN_UP()
                logger.warning("gave up the %s: %s", _told(delivery), why, extra=about)
                await self._insist(lambda: self._journal.done(delivery.id))
        is_silent = self._hands.silent_for(delivery) > SILENT_AFTER
        if is_silent and self._clock.is_steady():
            await self._give_up(origin(delivery.target.url))

    async def _give_up(self, host: str) -> None:
        """All that this one has been owed for a day."""
        before = self._wall() - timedelta(seconds=LOST_AFTER)
        while given_up := await self._some_given_up(host, before):
            # Told at once: the next some may not be come to.
            for (execution_id, crew), count in given_up.items():
                with bind_log_contexts((LogContext(crew=crew, kickoff_id=execution_id),)):
                    text = "gave up %d webhook calls that %s was owed for a day: it says nothing"
                    logger.warning(text, count, host, extra=LogEvent.WEBHOOK_GIVEN_UP())
                for _ in range(count):
                    self.timings.attempt.labels(_OUTCOMES[GivenUp]).observe(0.0)

    async def _some_given_up(self, host: str, before: datetime) -> Counter[tuple[str, str]]:
        """How many, by execution and crew; none when the journal cannot be used now: that is for
        the next call that finds the host silent."""
        # The journal does it also when this is being stopped, and then it has to be told.
        with trio.move_on_after(TO_GIVE_UP, shield=True), suppress(Unavailable):
            return await self._journal.give_up_deliveries(
                host, before, except_ids=tuple(self._hands.held)
            )
        return Counter()

    async def _insist(self, ask: Callable[[], Awaitable[R]]) -> R:
        """Ask until it can be had, of the journal above all."""
        failures = 0
        while True:
            try:
                return await ask()
            except Unavailable as error:
                failures += 1
                wait = JOURNAL_WAITS.wait(failures, self._chance)
                logger.warning("webhooks try again in %.0f s: %s", wait, error)
            await trio.sleep(wait)


def _told(delivery: Delivery) -> str:
    """A call in a log: without the path of its address, which may be a secret."""
    return (
        f"{delivery.target.kind} webhook call {delivery.id} of execution {delivery.execution_id} "
        f"to {origin(delivery.target.url)}"
    )
