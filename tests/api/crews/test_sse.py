"""An execution's events as server-sent events."""

from __future__ import annotations

import json
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from socket import SO_LINGER, SOL_SOCKET
from typing import TYPE_CHECKING, Any

import pytest
import trio
from pydantic import JsonValue
from trio.testing import MockClock, wait_all_tasks_blocked

from smartlinkd.api.crews import sse
from smartlinkd.errors import Unavailable
from smartlinkd.http_server import HttpLimits
from smartlinkd.http_server.app import RESPONSE_SECONDS
from smartlinkd.store.model import Status

if TYPE_CHECKING:
    from tests.api.crews.conftest import Address, FakeExecutor, ServedCrews

RESET_ON_CLOSE = struct.pack("ii", 1, 0)
SOON = 5.0  # seconds; far more than any step takes


class Stream:
    """A client of an event stream on its own connection."""

    def __init__(self, stream: trio.SocketStream) -> None:
        self.stream = stream
        self._received = b""

    async def until(self, text: bytes) -> bytes:
        """Read until `text` was received; return all that was received."""
        with trio.fail_after(SOON):
            while text not in self._received:
                data = await self.stream.receive_some()
                assert data, self._received
                self._received += data
        return self._received

    async def rest(self) -> bytes:
        """Read to the end; return all that was received."""
        with trio.fail_after(SOON):
            while data := await self.stream.receive_some():
                self._received += data
        return self._received


@asynccontextmanager
async def follow(
    at: Address, token: str, kickoff_id: str, *, more: str = "", http: str = "1.1"
) -> AsyncIterator[Stream]:
    async with await trio.open_tcp_stream("127.0.0.1", at.port) as stream:
        path = at.url.partition(str(at.port))[2]
        head = (
            f"GET {path}/events/{kickoff_id} HTTP/{http}\r\nHost: localhost\r\n"
            f"Authorization: Bearer {token}\r\n{more}\r\n"
        )
        await stream.send_all(head.encode())
        yield Stream(stream)


def told(text: str) -> list[tuple[int, Any]]:
    """Return the id and data of each event, without comments.

    Lines are split by Python's rules, as careless clients do, and not by the HTML standard's.
    """
    found = []
    for block in text.split("\n\n"):
        lines = [line for line in block.splitlines() if not line.startswith(":")]
        fields = dict(line.split(": ", 1) for line in lines)
        if fields:
            assert set(fields) == {"id", "data"}
            found.append((int(fields["id"]), json.loads(fields["data"])))
    return found


@pytest.mark.parametrize("where", ["under", "root", "own"])
async def test_events_are_sent_from_the_start(
    served: ServedCrews, executor: FakeExecutor, where: str
) -> None:
    known = executor.add()
    happened: list[tuple[str, Any]] = [
        ("crew_kickoff_started", None),
        ("log", {"text": "a\nb\r\n\x85\u2028\u2029 số\x00\x0b\x1c", "level": "info"}),
        ("crew_kickoff_completed", [1, {"a": 2.5}]),
    ]
    for kind, data in happened:
        executor.add_event(known.id, kind, data)
    executor.change(known.id, status=Status.COMPLETED)
    answer = await served.at(where).get(f"/events/{known.id}", served.token)
    assert answer.status_code == 200
    assert answer.headers["Content-Type"] == "text/event-stream"
    assert answer.headers["Cache-Control"] == "no-store"
    assert answer.headers["X-Accel-Buffering"] == "no"
    moment = "2026-03-01T12:00:00.00{}Z".format
    assert told(answer.text) == [
        (n + 1, {"type": kind, "timestamp": moment(n), "data": {} if data is None else data})
        for n, (kind, data) in enumerate(happened)
    ]


async def advance_to_keep_alive(clock: MockClock) -> None:
    """Advance the clock by the time after which a comment is sent."""
    await wait_all_tasks_blocked(0.01)
    clock.jump(sse.KEEP_ALIVE)


async def test_stream_in_silence_has_a_comment_and_outlives_the_time_for_answers(
    served: ServedCrews, executor: FakeExecutor, mock_clock: MockClock
) -> None:
    known = executor.add()
    async with follow(served.own, served.token, known.id, http="1.0") as stream:
        await stream.until(b"follow")
        for count in range(1, 10):
            await advance_to_keep_alive(mock_clock)
            received = await stream.until(b": nothing new\n\n" * count)
            assert b"data" not in received
        assert mock_clock.current_time() > 2 * RESPONSE_SECONDS
        executor.add_event(known.id, "log")
        await stream.until(b"id: 1\n")


# Ends


@pytest.mark.parametrize("how", ["close", "half-close", "reset"])
async def test_event_stream_whose_client_leaves_leaves_nothing(
    served: ServedCrews, executor: FakeExecutor, how: str
) -> None:
    known = executor.add()
    before = trio.lowlevel.current_statistics().tasks_living
    async with follow(served.own, served.token, known.id) as stream:
        await stream.until(b"follow")
        assert executor.waiting == 1
        if how == "half-close":
            await stream.stream.send_eof()
            await stream.rest()
        elif how == "reset":
            stream.stream.setsockopt(SOL_SOCKET, SO_LINGER, RESET_ON_CLOSE)
    with trio.fail_after(SOON):
        await executor.left.wait()
        while trio.lowlevel.current_statistics().tasks_living > before:
            await trio.lowlevel.checkpoint()
    assert executor.waiting == 0


@pytest.mark.parametrize("limits", [HttpLimits(send_seconds=0.2)])
async def test_event_stream_whose_client_stops_reading_is_cut_off(
    limits: HttpLimits, served: ServedCrews, executor: FakeExecutor
) -> None:
    known = executor.add()
    for _ in range(40):
        executor.add_event(known.id, "log", "x" * 1_000_000)
    async with follow(served.own, served.token, known.id) as stream:
        await stream.until(b"id: 1\n")
        with trio.fail_after(SOON):
            await executor.left.wait()


@pytest.mark.parametrize("when", ["silent", "busy"])
async def test_event_stream_ends_when_the_server_stops(
    served: ServedCrews, executor: FakeExecutor, when: str
) -> None:
    known = executor.add()
    async with follow(served.own, served.token, known.id) as stream:
        if when == "busy":
            executor.add_event(known.id, "log")
        await stream.until(b"\nid: 1" if when == "busy" else b"follow")
        served.stop.set()
        assert (await stream.rest()).endswith(b"\r\n0\r\n\r\n")
    assert executor.waiting == 0


async def test_event_stream_ends_when_the_store_restarts_and_can_be_resumed(
    served: ServedCrews, executor: FakeExecutor
) -> None:
    known = executor.add()
    executor.add_event(known.id, "log")
    async with follow(served.own, served.token, known.id) as stream:
        await stream.until(b"id: 1\n")
        executor.refusal = Unavailable("the journal part restarted", retry_after=1)
        executor.add_event(known.id, "log")
        assert b"\nid: 2" not in await stream.until(b"\r\n0\r\n\r\n")
    executor.refusal = None
    async with follow(served.own, served.token, known.id, more="Last-Event-ID: 1\r\n") as stream:
        assert b"id: 1\n" not in await stream.until(b"id: 2\n")


# Refusals


async def test_event_stream_of_a_rotated_token_sends_nothing_more(
    served: ServedCrews, executor: FakeExecutor
) -> None:
    known = executor.add()
    executor.add_event(known.id, "crew_kickoff_started", None)
    async with follow(served.own, served.token, known.id) as stream:
        await stream.until(b"crew_kickoff_started")
        await served.crew_tokens.rotate("alpha")
        executor.add_event(known.id, "log", {"text": "for those who may know"})
        assert b"for those" not in await stream.until(b"\r\n0\r\n\r\n")


async def test_stream_of_a_rotated_token_ends_in_its_silence(
    served: ServedCrews, executor: FakeExecutor, mock_clock: MockClock
) -> None:
    known = executor.add(owner="ann")
    async with follow(served.own, served.tokens["ann"], known.id) as stream:
        await stream.until(b"follow")
        await served.crew_tokens.rotate("alpha", "ann")
        await advance_to_keep_alive(mock_clock)
        await stream.until(b"\r\n0\r\n\r\n")
    assert executor.waiting == 0


async def test_event_in_two_parts_has_no_comment_between_them(
    served: ServedCrews, executor: FakeExecutor, mock_clock: MockClock
) -> None:
    """A comment between the parts would break a line."""
    known = executor.add()
    data: JsonValue = {"text": "a\u2028b\x85c"}
    executor.add_event(known.id, "log", data)
    (whole,) = executor.events[known.id]
    cut = whole.json.index(b"b")
    executor.events[known.id] = [replace(whole, json=whole.json[:cut])]
    async with follow(served.own, served.token, known.id, http="1.0") as stream:
        await stream.until(b"id: 1\n")
        await advance_to_keep_alive(mock_clock)
        executor.events[known.id].append(replace(whole, json=whole.json[cut:], offset=cut))
        executor.change(known.id, status=Status.COMPLETED)
        _, _, body = (await stream.rest()).partition(b"\r\n\r\n")
    ((number, event),) = told(body.decode())
    assert (number, event["type"], event["data"]) == (1, "log", data)
    assert b"nothing new" not in body


async def test_head_of_events_has_no_events(
    served: ServedCrews, executor: FakeExecutor, caplog: pytest.LogCaptureFixture
) -> None:
    known = executor.add()  # the execution never ends
    with trio.fail_after(SOON):
        answer = await served.own.ask("HEAD", f"/events/{known.id}", served.token)
    assert (answer.status_code, answer.content) == (200, b"")
    assert answer.headers["Content-Type"] == "text/event-stream"
    assert executor.waiting == 0
    assert [record for record in caplog.records if record.levelname == "ERROR"] == []
