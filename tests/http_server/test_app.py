"""The time for sending an answer, and what is held until then."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest
import trio
from quart import Response, request
from quart.testing import make_test_scope
from trio.testing import MockClock
from werkzeug.datastructures import Headers

from smartlinkd.http_server.app import (
    RESPONSE_PACE,
    RESPONSE_SECONDS,
    GuardedQuart,
    Messages,
    hold_until_answered,
)

Send = Callable[[dict[str, Any]], Awaitable[None]]


@pytest.fixture
def app() -> GuardedQuart:
    app = GuardedQuart()

    @app.post("/")
    async def echo() -> str | bytes:
        return await request.get_data()

    @app.get("/stream")
    async def stream() -> Response:
        answer = Response(b"x")
        answer.timeout = None
        return answer

    @app.get("/wait")
    async def wait() -> str:
        hold_until_answered(app.places.follow("token"))
        return "done"

    return app


async def ask(app: GuardedQuart, send: Send, method: str, path: str, body: bytes = b"") -> float:
    """Have the app answer to `send`. Returns the seconds that it took."""
    began = trio.current_time()
    scope = make_test_scope(
        "http", path, method, Headers(), b"", "http", root_path="", http_version="1.1",
        scope_base=None,
    )  # fmt: skip
    messages = Messages()
    await messages.put({"type": "http.request", "body": body, "more_body": False})
    await app(scope, messages, send)  # type: ignore[arg-type]
    return trio.current_time() - began


async def send_never(_message: dict[str, Any]) -> None:
    await trio.sleep_forever()


async def send_slowly(_message: dict[str, Any]) -> None:
    await trio.sleep(2 * RESPONSE_SECONDS)


@pytest.mark.parametrize("more", [0, 5])
async def test_answer_that_is_not_taken_ends_after_the_time_for_its_length(
    app: GuardedQuart, autojump_clock: MockClock, more: int
) -> None:
    body = bytes(more * RESPONSE_PACE)
    assert await ask(app, send_never, "POST", "/", body) == RESPONSE_SECONDS + more


async def test_answer_with_its_own_timeout_has_no_other(
    app: GuardedQuart, autojump_clock: MockClock
) -> None:
    assert await ask(app, send_slowly, "GET", "/stream") > 2 * RESPONSE_SECONDS


async def test_place_of_a_waiting_client_is_held_until_its_answer_is_sent(
    app: GuardedQuart, autojump_clock: MockClock
) -> None:
    taken = []

    async def send(_message: dict[str, Any]) -> None:
        taken.append(app.places.taken)

    await ask(app, send, "GET", "/wait")
    assert set(taken) == {1}
    assert app.places.taken == 0
    await ask(app, send_never, "GET", "/wait")  # its client does not take the answer
    assert app.places.taken == 0
