"""The protocol client against a browser that is played by hand, on a clock that is not real."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
import trio
from trio.testing import MockClock, memory_stream_pair, wait_all_tasks_blocked

from smartlinkd.browser.cdp import WRITE_QUEUE, CdpConnection, CdpSession, connect_over
from smartlinkd.browser.errors import (
    BrowserFailed,
    CallTimedOut,
    Disconnected,
    ProtocolError,
    SessionGone,
)

if TYPE_CHECKING:
    from tests.browser.conftest import Wire


class Asker:
    """A task that makes one call, and what came of it."""

    def __init__(self) -> None:
        self.result: object = None
        self.done = trio.Event()
        self.when = math.nan

    async def run(self, call: Callable[[], Awaitable[object]]) -> None:
        try:
            self.result = await call()
        except BrowserFailed as failure:
            self.result = failure
        self.when = trio.current_time()
        self.done.set()


async def ask(nursery: trio.Nursery, call: Callable[[], Awaitable[object]]) -> Asker:
    """Start a call and return when it waits for its answer."""
    asker = Asker()
    nursery.start_soon(asker.run, call)
    await wait_all_tasks_blocked()
    return asker


async def attached(conversation: CdpConnection, peer: Any, nursery: trio.Nursery) -> CdpSession:
    """A session named S with a target named T."""
    asker = await ask(nursery, partial(conversation.attach, "T"))
    command = await peer.take()
    assert command["params"] == {"targetId": "T", "flatten": True}
    told = {"sessionId": "S", "targetInfo": {"targetId": "T"}}
    await peer.say({"method": "Target.attachedToTarget", "params": told})
    await peer.say({"id": command["id"], "result": {"sessionId": "S"}})
    await asker.done.wait()
    assert isinstance(asker.result, CdpSession)
    return asker.result


async def test_answers_in_any_order_find_their_callers(
    conversation: CdpConnection, peer: Any, nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    session = await attached(conversation, peer, nursery)
    first = await ask(nursery, partial(conversation.browser.call, "First", {"c": 1}))
    second = await ask(nursery, partial(session.call, "Second"))
    commands = [await peer.take(), await peer.take()]
    assert [command.get("sessionId") for command in commands] == [None, "S"]
    assert [command["params"] for command in commands] == [{"c": 1}, {}]
    for command in reversed(commands):
        await peer.say({"id": command["id"], "result": {"to": command["method"]}})
    await first.done.wait()
    await second.done.wait()
    assert (first.result, second.result) == ({"to": "First"}, {"to": "Second"})


@pytest.mark.parametrize(
    ("code", "raised"),
    [
        (-32000, ProtocolError("A.b", -32000, "No.")),
        (-32001, SessionGone("the tab was closed")),
    ],
)
async def test_error_answer_raises_its_error(
    code: int,
    raised: Exception,
    conversation: CdpConnection,
    peer: Any,
    nursery: trio.Nursery,
) -> None:
    session = await attached(conversation, peer, nursery)
    asker = await ask(nursery, partial(session.call, "A.b"))
    command = await peer.take()
    await peer.say({"id": command["id"], "error": {"code": code, "message": "No.\nStack"}})
    await asker.done.wait()
    assert type(asker.result) is type(raised)
    assert str(asker.result) == str(raised)


async def test_half_a_character_in_an_answer_is_replaced(
    conversation: CdpConnection, peer: Any, nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    asker = await ask(nursery, partial(conversation.browser.call, "A.b"))
    await peer.answer({"hint": "Sai \U0001f600\ud83d"})
    await asker.done.wait()
    assert asker.result == {"hint": "Sai \U0001f600\ufffd"}


async def test_call_without_answer_times_out_and_a_late_answer_is_ignored(
    conversation: CdpConnection, peer: Any, nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    began = trio.current_time()
    with pytest.raises(CallTimedOut, match=r"did not answer A\.b within 3 s"):
        await conversation.browser.call("A.b", deadline=3)
    assert trio.current_time() - began == 3
    await peer.answer({"late": True})
    asker = await ask(nursery, partial(conversation.browser.call, "C.d"))
    await peer.answer({"in time": True})
    await asker.done.wait()
    assert asker.result == {"in time": True}


@pytest.mark.parametrize(
    "message",
    [
        {"id": 999, "result": {}},
        {"id": None},
        {"method": "Never.heardOf", "params": {"x": 1}},
        {"method": "Never.heardOf"},
        {"method": "A.b", "sessionId": "unknown", "params": {}},
        {"method": "Target.detachedFromTarget", "params": {"sessionId": "unknown"}},
        {"method": "Inspector.targetCrashed", "params": {}},
        {"error": {"code": -32700, "message": "Message must be a valid JSON"}},
        {},
    ],
    ids=str,
)
async def test_unexpected_message_is_ignored(
    message: object,
    conversation: CdpConnection,
    peer: Any,
    nursery: trio.Nursery,
    autojump_clock: MockClock,
) -> None:
    await peer.say(message)
    asker = await ask(nursery, partial(conversation.browser.call, "A.b"))
    await peer.answer({"still": "here"})
    await asker.done.wait()
    assert asker.result == {"still": "here"}


@pytest.mark.parametrize(
    "garbage",
    ["", "{", "[1]", "1", "null", "[" * 100_000, b"\xff\xfe", '{"id": ' + "9" * 5000 + "}"],
    ids=lambda garbage: str(garbage[:8]),
)
async def test_frame_that_is_no_json_object_ends_the_connection(
    garbage: str | bytes,
    conversation: CdpConnection,
    peer: Any,
    nursery: trio.Nursery,
    autojump_clock: MockClock,
) -> None:
    asker = await ask(nursery, partial(conversation.browser.call, "A.b"))
    await peer.say(garbage)
    await asker.done.wait()
    assert isinstance(asker.result, Disconnected)
    assert "a frame that is no JSON" in await conversation.wait_closed()


async def test_end_of_the_connection_fails_all_calls_at_once(
    conversation: CdpConnection, peer: Any, nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    session = await attached(conversation, peer, nursery)
    began = trio.current_time()
    askers = [
        await ask(nursery, partial(one.call, "A.b")) for one in (session, conversation.browser)
    ]
    await peer.stream.aclose()
    for asker in askers:
        await asker.done.wait()
        assert isinstance(asker.result, Disconnected)
        assert asker.when == began
    with pytest.raises(Disconnected):
        await session.call("A.b")
    with pytest.raises(Disconnected):
        await conversation.browser.call("A.b")


DETACHED = {"method": "Target.detachedFromTarget", "params": {"sessionId": "S"}}
CRASHED = {"method": "Inspector.targetCrashed", "params": {}, "sessionId": "S"}


@pytest.mark.parametrize(
    "end",
    [
        (DETACHED, "the tab was closed"),
        (CRASHED, "the tab crashed: its renderer process ended"),
    ],
    ids=["detached", "crashed"],
)
async def test_end_of_a_session_fails_its_own_calls_at_once(
    end: tuple[object, str],
    conversation: CdpConnection,
    peer: Any,
    nursery: trio.Nursery,
    autojump_clock: MockClock,
) -> None:
    event, said = end
    session = await attached(conversation, peer, nursery)
    began = trio.current_time()
    other = await ask(nursery, partial(conversation.browser.call, "Other"))
    asker = await ask(nursery, partial(session.call, "A.b"))
    await peer.say(event)
    await asker.done.wait()
    assert isinstance(asker.result, SessionGone)
    assert str(asker.result) == said
    assert asker.when == began
    with pytest.raises(SessionGone, match=said):
        await session.call("A.b")
    await peer.answer({"still": "here"})
    await other.done.wait()
    assert other.result == {"still": "here"}


async def test_slow_subscriber_loses_events_and_delays_nobody(
    conversation: CdpConnection, peer: Any, nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    with conversation.browser.events({"A.x": lambda params: [params["number"]]}, size=2) as events:
        for number in range(5):
            await peer.say({"method": "A.x", "params": {"number": number}})
        asker = await ask(nursery, partial(conversation.browser.call, "A.b"))
        await peer.answer({})
        await asker.done.wait()
        assert [await events.receive() for _ in range(2)] == [0, 1]


async def test_handler_may_post_and_is_called_until_it_is_off(
    conversation: CdpConnection, peer: Any, autojump_clock: MockClock
) -> None:
    def close(params: dict[str, object]) -> None:
        conversation.browser.post("A.close", {"id": params["id"]})

    conversation.browser.on("A.opened", close)
    await peer.say({"method": "A.opened", "params": {"id": "x"}})
    command = await peer.answer({})
    assert (command["method"], command["params"]) == ("A.close", {"id": "x"})
    conversation.browser.off("A.opened", close)
    await peer.say({"method": "A.opened", "params": {"id": "y"}})
    await wait_all_tasks_blocked()
    conversation.browser.post("A.next", {})
    assert (await peer.take())["method"] == "A.next"


async def test_handler_that_fails_does_not_end_the_reader(
    conversation: CdpConnection,
    peer: Any,
    nursery: trio.Nursery,
    caplog: pytest.LogCaptureFixture,
    autojump_clock: MockClock,
) -> None:
    conversation.browser.on("A.x", lambda params: params["missing"])
    await peer.say({"method": "A.x", "params": {}})
    asker = await ask(nursery, partial(conversation.browser.call, "A.b"))
    await peer.answer({"still": "here"})
    await asker.done.wait()
    assert asker.result == {"still": "here"}
    assert "the handler of A.x failed" in caplog.text


async def test_browser_that_does_not_read_costs_each_call_its_deadline(
    conversation: CdpConnection, wire: Wire, nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    wire.send_stream.send_all_hook = trio.sleep_forever
    call = partial(conversation.browser.call, "A.b", deadline=5)
    askers = [await ask(nursery, call) for _ in range(WRITE_QUEUE + 10)]  # more than it holds
    conversation.browser.post("A.c", {})  # finds no room, and does not wait for it
    for asker in askers:
        await asker.done.wait()
    assert all(isinstance(asker.result, CallTimedOut) for asker in askers)
    assert {asker.when for asker in askers} == {trio.current_time()}


@pytest.mark.parametrize(
    ("answer", "why"),
    [(b"HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n", "403"), (b"", "TooSlowError")],
    ids=["no websocket", "silent"],
)
async def test_peer_without_handshake_raises_disconnected_in_time(
    answer: bytes, why: str, autojump_clock: MockClock
) -> None:
    ours, theirs = memory_stream_pair()
    await theirs.send_all(answer)
    with pytest.raises(Disconnected, match=why):
        async with connect_over(ours, "browser.test", "/devtools"):
            raise AssertionError("it was connected")
