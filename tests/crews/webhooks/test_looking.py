"""When the dispatcher looks for due calls, and which of them find a slot."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from ipaddress import ip_network
from typing import Any

import pytest
import trio
import trio.testing
from pydantic import SecretStr

from smartlinkd.crews.webhooks.dispatcher import (
    JOURNAL_BACKOFF,
    WebhookDispatcher,
    WebhookLimits,
)
from smartlinkd.errors import Unavailable
from smartlinkd.store.model import Change, ExecutionUpdate, NewDelivery, WebhookTarget

OpenReceiver = Callable[..., Awaitable[Any]]
LIMITS = WebhookLimits()


@pytest.fixture
def looks(desk: Any, monkeypatch: pytest.MonkeyPatch) -> list[Callable[[], Awaitable[None]]]:
    """What happens at the end of each look from now on; an entry goes with its look."""
    happens: list[Callable[[], Awaitable[None]]] = []
    due_deliveries = desk.store.due_deliveries

    async def looked(*arguments: Any, **options: Any) -> Any:
        found = await due_deliveries(*arguments, **options)
        if happens:
            await happens.pop(0)()
        return found

    monkeypatch.setattr(desk.store, "due_deliveries", looked)
    return happens


async def test_what_is_queued_in_the_midst_of_a_look_does_not_wait_for_the_next_minute(
    desk: Any, receiver: Any, looks: list[Callable[[], Awaitable[None]]]
) -> None:
    async def queue() -> None:
        await desk.call(receiver.url(), b"{}")
        desk.nudge()

    await desk.begin()
    await trio.testing.wait_all_tasks_blocked(0.01)
    looks.append(queue)
    desk.nudge()
    with trio.fail_after(LIMITS.longest_sleep_s / 4):
        await receiver.until(1)


async def test_with_nothing_to_do_it_looks_once_a_minute(
    desk: Any, looks: list[Callable[[], Awaitable[None]]], mock_clock: trio.testing.MockClock
) -> None:
    await desk.begin()
    await trio.testing.wait_all_tasks_blocked(0.01)
    looks += [trio.lowlevel.checkpoint] * 10
    for _ in range(5):
        mock_clock.jump(1)
        await trio.testing.wait_all_tasks_blocked(0.01)
    assert len(looks) == 10


def dispatcher_of(desk: Any) -> WebhookDispatcher:
    allow = [ip_network("127.0.0.0/8")]
    return WebhookDispatcher(desk.store, allow=allow, key=None, wall=desk.wall)


async def hanging(desk: Any, open_receiver: OpenReceiver, behave: Any, hosts: int) -> list[Any]:
    """Open receivers that hang, and queue ten calls to each."""
    receivers = [await open_receiver() for _ in range(hosts)]
    for receiver in receivers:
        receiver.usual = behave.hang
        for _ in range(10):
            await desk.call(receiver.url(), b"{}")
    return receivers


async def test_host_that_hangs_leaves_slots_for_others(
    desk: Any, open_receiver: OpenReceiver, behave: Any
) -> None:
    (silent,) = await hanging(desk, open_receiver, behave, 1)
    other = await open_receiver()
    await desk.begin()
    await silent.until(LIMITS.at_once_to_a_host)
    for _ in range(3):
        await desk.call(other.url(), b"{}")
    desk.nudge()
    await other.until(3)
    assert silent.most_at_once == len(silent.received) == LIMITS.at_once_to_a_host


@pytest.mark.parametrize(("calls", "size"), [(150, 2), (8, 3 * 1024 * 1024)])
async def test_many_calls_to_a_host_that_hangs_hide_no_other(
    desk: Any, open_receiver: OpenReceiver, behave: Any, calls: int, size: int
) -> None:
    silent, other = await open_receiver(), await open_receiver("127.0.0.2")
    silent.usual = behave.hang
    for _ in range(calls):
        await desk.call(silent.url(), b"x" * size)
    await desk.begin()
    await silent.until(LIMITS.at_once_to_a_host)
    await desk.call(other.url(), b"{}")
    desk.nudge()
    with trio.fail_after(LIMITS.longest_sleep_s / 2):  # of the clock that only the test moves
        await other.until(1)


async def test_slots_are_limited_also_for_calls_that_come_later(
    desk: Any, open_receiver: OpenReceiver, behave: Any
) -> None:
    receivers = await hanging(desk, open_receiver, behave, 7)
    await desk.begin()
    for receiver in receivers:
        await receiver.until(LIMITS.at_once_to_a_host)
    receivers += await hanging(desk, open_receiver, behave, 3)
    desk.nudge()
    while sum(receiver.at_once for receiver in receivers) < LIMITS.at_once:
        await trio.testing.wait_all_tasks_blocked(0.01)
    await trio.testing.wait_all_tasks_blocked(0.01)
    assert sum(receiver.at_once for receiver in receivers) == LIMITS.at_once == 16


async def test_dispatcher_with_all_slots_in_use_touches_its_heartbeat(
    desk: Any,
    open_receiver: OpenReceiver,
    behave: Any,
    nursery: trio.Nursery,
    mock_clock: trio.testing.MockClock,
) -> None:
    receivers = await hanging(desk, open_receiver, behave, 8)
    await nursery.start((dispatcher := dispatcher_of(desk)).run)
    for receiver in receivers:
        await receiver.until(LIMITS.at_once_to_a_host)
    await trio.testing.wait_all_tasks_blocked(0.01)
    mock_clock.jump(20)
    dispatcher.heartbeat.probe()
    await trio.testing.wait_all_tasks_blocked(0.01)
    assert dispatcher.heartbeat.last == trio.current_time()
    assert dispatcher.heartbeat.allowance_s == 0


async def test_while_it_waits_for_the_journal_it_is_not_taken_for_hung(
    desk: Any, nursery: trio.Nursery, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The waits between its tries are longer than the service manager's patience."""

    async def unavailable(*_: object, **__: object) -> None:
        raise Unavailable("its disk is full", retry_after=5)

    monkeypatch.setattr(desk.store, "due_deliveries", unavailable)
    await nursery.start((dispatcher := dispatcher_of(desk)).run)
    await trio.testing.wait_all_tasks_blocked(0.01)
    assert dispatcher.heartbeat.allowance_s >= JOURNAL_BACKOFF.longest


async def test_a_call_with_a_new_credential_waits_for_those_with_the_old_one(
    desk: Any, receiver: Any, behave: Any
) -> None:
    receiver.usual = behave.hang
    old = WebhookTarget("task", receiver.url(), auth=SecretStr("Bearer old"))
    new = WebhookTarget("task", receiver.url(), auth=SecretStr("Bearer new"))
    execution_id = await desk.execution(old)
    await desk.queue(execution_id, old, b"first")
    change = Change(webhooks=(new,))
    call = NewDelivery(new, b"second", desk.wall())
    await desk.store.record(execution_id, ExecutionUpdate(change, deliveries=[call]))
    await desk.begin()
    await receiver.until(1)
    await trio.testing.wait_all_tasks_blocked(0.05)
    assert receiver.bodies == [b"first"]
