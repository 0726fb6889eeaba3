"""What a connection keeps for months: nothing of calls that are over, nothing of who listened."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from smartlinkd.browser.cdp import CdpConnection
from smartlinkd.browser.errors import CallTimedOut, Disconnected, SessionGone
from tests.browser.test_cdp import ask, attached, crowd

if TYPE_CHECKING:
    from tests.browser.conftest import Wire

LISTENED = 100


async def test_of_those_who_listened_nothing_is_left(
    conversation: CdpConnection, peer: Any, nursery: trio.Nursery
) -> None:
    session = await attached(conversation, peer, nursery)
    for _ in range(LISTENED):
        with session.events("A.happened"):
            pass
    assert session._subscriptions == set()
    assert session._handlers == {"A.happened": []}


async def test_an_error_is_each_askers_own(
    conversation: CdpConnection, peer: Any, nursery: trio.Nursery
) -> None:
    session = await attached(conversation, peer, nursery)
    await peer.say({"method": "Target.detachedFromTarget", "params": {"sessionId": "S"}})
    await wait_all_tasks_blocked()
    errors = []
    for _ in range(2):
        with pytest.raises(SessionGone) as gone:
            await session.call("A.b")
        errors.append(gone.value)
    assert errors[0] is not errors[1]


async def give_up(connection: CdpConnection, **options: Any) -> None:
    with pytest.raises(CallTimedOut):
        await connection.browser.call("A.create", deadline=1, undo=lambda _: None, **options)


async def test_a_call_that_was_given_up_before_it_was_sent_is_not_kept(
    conversation: CdpConnection, wire: Wire, nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    wire.send_stream.send_all_hook = trio.sleep_forever
    in_the_socket = await ask(nursery, partial(conversation.browser.call, "A.b", deadline=100))
    await give_up(conversation)
    assert [call.method for call in conversation._calls.values()] == ["A.b"]
    assert not in_the_socket.done.is_set()


async def test_the_end_of_the_connection_fails_those_at_once_who_wait_for_room(
    conversation: CdpConnection,
    wire: Wire,
    nursery: trio.Nursery,
    peer: Any,
    autojump_clock: MockClock,
) -> None:
    wire.send_stream.send_all_hook = trio.sleep_forever
    began = trio.current_time()
    askers = await crowd(conversation, nursery, deadline=100)
    await peer.stream.aclose()
    for asker in askers:
        await asker.done.wait()
    assert {type(asker.result) for asker in askers} == {Disconnected}
    assert trio.current_time() == began
