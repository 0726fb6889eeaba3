"""When the actor looks for what is due, and what it takes in hand of that."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from ipaddress import ip_network
from typing import Any

import pytest
import trio
import trio.testing
from pydantic import SecretStr

from smartlinkd.crews.webhooks import dispatcher as webhooks
from smartlinkd.crews.webhooks.dispatcher import Webhooks
from smartlinkd.crews.webhooks.hands import AT_ONCE, AT_ONCE_TO_A_HOST, FOR_OTHERS
from smartlinkd.errors import Unavailable
from smartlinkd.journal.model import Change, Entry, NewDelivery, WebhookTarget

OpenReceiver = Callable[..., Awaitable[Any]]


@pytest.fixture
def looks(desk: Any, monkeypatch: pytest.MonkeyPatch) -> list[Callable[[], Awaitable[None]]]:
    """What happens at the end of each look from now on; an entry goes with its look."""
    happens: list[Callable[[], Awaitable[None]]] = []
    due_deliveries = desk.journal.due_deliveries

    async def looked(*arguments: Any, **options: Any) -> Any:
        found = await due_deliveries(*arguments, **options)
        if happens:
            await happens.pop(0)()
        return found

    monkeypatch.setattr(desk.journal, "due_deliveries", looked)
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
    with trio.fail_after(webhooks.LONGEST_SLEEP / 4):
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


async def hold(desk: Any, open_receiver: OpenReceiver, behave: Any, hosts: int) -> list[Any]:
    """Calls for so many hosts that hang, as many as each may have at once."""
    receivers = [await open_receiver() for _ in range(hosts)]
    for receiver in receivers:
        receiver.usual = behave.hang
        for _ in range(AT_ONCE_TO_A_HOST):
            await desk.call(receiver.url(), b"{}")
    return receivers


def a_part(desk: Any) -> Webhooks:
    return Webhooks(desk.journal, allow=[ip_network("127.0.0.0/8")], key=None, wall=desk.wall)


async def test_hands_are_limited_also_for_what_comes_later(
    desk: Any, open_receiver: OpenReceiver, behave: Any, nursery: trio.Nursery
) -> None:
    """What is in hand is in memory, also while it waits for a connection."""
    receivers = await hold(desk, open_receiver, behave, 3)
    await nursery.start((part := a_part(desk)).run)
    for receiver in receivers:
        await receiver.until(AT_ONCE_TO_A_HOST)
    receivers += await hold(desk, open_receiver, behave, FOR_OTHERS + 1)
    part.nudge()
    while sum(receiver.at_once for receiver in receivers) < AT_ONCE:
        await trio.testing.wait_all_tasks_blocked(0.01)
    assert len(part._hands.held) == AT_ONCE


async def test_with_all_hands_full_it_shows_signs_of_life(
    desk: Any,
    open_receiver: OpenReceiver,
    behave: Any,
    nursery: trio.Nursery,
    mock_clock: trio.testing.MockClock,
) -> None:
    """Else hosts that hang would have the service manager restart the daemon."""
    receivers = await hold(desk, open_receiver, behave, 3 + FOR_OTHERS)
    await nursery.start((part := a_part(desk)).run)
    for receiver in receivers:
        await receiver.until(1)
    await trio.testing.wait_all_tasks_blocked(0.01)
    mock_clock.jump(20)
    part.heartbeat.probe()
    await trio.testing.wait_all_tasks_blocked(0.01)
    assert part.heartbeat.last == trio.current_time()
    assert part.heartbeat.allowance_s == 0


async def test_while_it_waits_for_the_journal_it_is_not_taken_for_hung(
    desk: Any, nursery: trio.Nursery, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The waits between its tries are longer than the service manager's patience."""

    async def unavailable(*_: object, **__: object) -> None:
        raise Unavailable("its disk is full", retry_after=5)

    monkeypatch.setattr(desk.journal, "due_deliveries", unavailable)
    await nursery.start((part := a_part(desk)).run)
    await trio.testing.wait_all_tasks_blocked(0.01)
    assert part.heartbeat.allowance_s >= webhooks.JOURNAL_WAITS.longest


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
    await desk.journal.record(execution_id, Entry(change, deliveries=[call]))
    await desk.begin()
    await receiver.until(1)
    await trio.testing.wait_all_tasks_blocked(0.05)
    assert receiver.bodies == [b"first"]
