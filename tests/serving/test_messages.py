"""What a request's task is told, and when: its body, that the client has left, that it is late."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import pytest
import trio
from quart import Response, request
from trio.testing import MockClock, wait_all_tasks_blocked

from smartlinkd.serving import GuardedQuart
from smartlinkd.serving.app import RESPONSE_PACE, RESPONSE_SECONDS, Messages

if TYPE_CHECKING:
    from tests.serving.conftest import Serving

Said = list[dict[str, Any]]

LEFT: Any = {"type": "http.disconnect"}


def part(body: bytes, *, more: bool) -> Any:
    return {"type": "http.request", "body": body, "more_body": more}


@pytest.fixture
def done() -> list[str]:
    return []


@pytest.fixture
def app(done: list[str]) -> GuardedQuart:
    app = GuardedQuart()

    @app.post("/")
    async def echo() -> str | bytes:
        body = await request.get_data()
        await trio.lowlevel.checkpoint()
        done.append("echo")
        return body

    @app.get("/stream")
    async def stream() -> Response:
        answer = Response(b"x")
        answer.timeout = None
        return answer

    return app


@pytest.fixture
def ask(app: GuardedQuart) -> Callable[..., Any]:
    """Have the app answer; what it says goes to `send`."""

    async def run(messages: Messages, send: Any, method: str = "POST", path: str = "/") -> None:
        scope: Any = {
            "type": "http",
            "http_version": "1.1",
            "method": method,
            "scheme": "http",
            "path": path,
            "raw_path": path.encode(),
            "query_string": b"",
            "root_path": "",
            "headers": [(b"host", b"a")],
            "client": ("127.0.0.1", 1),
            "server": ("127.0.0.1", 2),
            "state": {},
            "extensions": {},
        }
        await app(scope, messages, send)

    return run


async def test_what_came_before_it_began_and_what_comes_then_is_one_body(
    ask: Callable[..., Any], nursery: trio.Nursery
) -> None:
    said: Said = []
    ended = trio.Event()

    async def send(message: dict[str, Any]) -> None:
        said.append(message)

    async def run() -> None:
        await ask(messages, send)
        ended.set()

    messages = Messages()
    await messages.put(part(b"a", more=True))
    await messages.put(part(b"b", more=True))
    nursery.start_soon(run)
    await wait_all_tasks_blocked()
    await messages.put(part(b"c", more=True))
    await wait_all_tasks_blocked()
    assert said == []
    await messages.put(part(b"", more=False))
    await ended.wait()
    await messages.put(LEFT)  # when it is answered nobody is cut short

    assert [message.get("body") for message in said] == [None, b"abc"]
    assert said[0]["status"] == 200


async def test_nothing_is_done_for_who_left_before_it_began(
    ask: Callable[..., Any], done: list[str]
) -> None:
    async def send(message: dict[str, Any]) -> None:
        raise AssertionError(message)

    messages = Messages()
    await messages.put(part(b"a", more=True))
    await messages.put(LEFT)

    await ask(messages, send)

    assert done == []


async def test_an_answer_that_is_not_taken_is_given_up_in_time(
    ask: Callable[..., Any], autojump_clock: MockClock
) -> None:
    async def send(_: dict[str, Any]) -> None:
        await trio.sleep_forever()

    messages = Messages()
    await messages.put(part(b"", more=False))
    began = trio.current_time()

    await ask(messages, send)

    assert trio.current_time() - began == RESPONSE_SECONDS


async def test_a_large_one_has_more_time(
    ask: Callable[..., Any], autojump_clock: MockClock
) -> None:
    async def send(_: dict[str, Any]) -> None:
        await trio.sleep_forever()

    messages = Messages()
    await messages.put(part(bytes(5 * RESPONSE_PACE), more=False))  # it is sent back
    began = trio.current_time()

    await ask(messages, send)

    assert trio.current_time() - began == RESPONSE_SECONDS + 5


async def test_one_without_an_end_is_not(
    ask: Callable[..., Any], autojump_clock: MockClock
) -> None:
    async def send(_: dict[str, Any]) -> None:
        await trio.sleep(100)

    messages = Messages()
    await messages.put(part(b"", more=False))
    began = trio.current_time()

    await ask(messages, send, "GET", "/stream")

    assert trio.current_time() - began == 200  # a head and a body


async def test_who_expects_a_channel_is_told_that_it_is_none() -> None:
    with pytest.raises(TypeError, match="somebody who takes them"):
        await Messages()()


@pytest.mark.usefixtures("no_collector")
async def test_what_is_answered_is_gone_with_its_body(app: GuardedQuart, serving: Serving) -> None:
    """At once, not when the collector comes by: it counts objects, and not what they weigh."""
    bodies: list[weakref.ref[object]] = []

    @app.post("/noted")
    async def noted() -> str:
        bodies.append(weakref.ref(request.body))
        return str(len(await request.get_data()))

    async with serving() as server:
        answers = [
            await server.ask(
                b"POST /noted HTTP/1.1\r\nHost: a\r\nConnection: close\r\n"
                b"Content-Length: 70000\r\n\r\n" + b"x" * 70_000
            )
            for _ in range(3)
        ]
        assert [answer.body for answer in answers] == [b"70000"] * 3
        with trio.fail_after(10):  # its connection may still be closing
            while any(body() is not None for body in bodies):
                await trio.lowlevel.checkpoint()


@pytest.fixture
def no_collector() -> Iterator[None]:
    gc.disable()
    yield
    gc.enable()


async def test_what_was_taken_is_not_kept_as_well() -> None:
    """A password would stay for as long as its connection."""

    class Message(dict[str, Any]):
        """One of which it can be told whether it is still there."""

    messages = Messages()
    message: Any = Message(part(b"a password", more=False))
    kept = weakref.ref(message)
    await messages.put(message)
    taken: list[Any] = []
    messages.give_to(taken.append)
    assert taken == [message]
    del message
    taken.clear()
    assert kept() is None
