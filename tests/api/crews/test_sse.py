"""What happens in an execution, as it happens.

| promised | test |
|---|---|
| contract, an id and JSON data {type, timestamp, data} | `test_all_events_are_told_…[…]` |
| contract, without `Last-Event-ID` from the start | `test_all_events_are_told_from_the_start[…]` |
| contract, with it from the next one | `test_it_goes_on_after_the_last_event[…]` |
| contract, it closes when the execution has ended | `test_it_is_live` |
| events as they happen | `test_it_is_live` |
| a comment while nothing happens | `test_silence_is_broken_by_a_comment` |
| longer than any other answer may take | `test_it_outlives_the_time_for_answers` |
| a client that leaves, leaves nothing behind | `test_a_client_that_leaves_leaves_nothing[…]` |
| a client that stops reading | `test_a_client_that_stops_reading_is_cut_off` |
| it ends when the server stops | `test_it_ends_when_the_server_stops[…]` |
| a part behind it is restarted | `test_it_ends_early_when_a_part_restarts` |
| … the one that knows the tokens | `test_no_event_is_left_out_when_its_reader_is_admitted_late` |
| a refusal is told before anything else | `test_too_many_followers_is_503`, `…_is_404` |
| contract, a token's followers are bounded (429) | `test_follower_beyond_the_share_…[…]` |
| HEAD | `test_head_tells_no_events` |
"""

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

from smartlinkd.api.crews import sse
from smartlinkd.errors import Unavailable
from smartlinkd.http_server import HttpLimits
from smartlinkd.http_server import app as http_app
from smartlinkd.store.model import Status

if TYPE_CHECKING:
    from tests.api.crews.conftest import Address, House, StandIn

RESET_ON_CLOSE = struct.pack("ii", 1, 0)
SOON = 5.0  # seconds; far above what any of this takes


class Stream:
    """A client of an event stream, over a connection of its own."""

    def __init__(self, stream: trio.SocketStream) -> None:
        self.stream = stream
        self._received = b""

    async def until(self, text: bytes) -> bytes:
        """All that came up to `text`."""
        with trio.fail_after(SOON):
            while text not in self._received:
                data = await self.stream.receive_some()
                assert data, self._received
                self._received += data
        return self._received

    async def rest(self) -> bytes:
        """All of it, when it has ended."""
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
    """Id and data of each event; comments are left out.

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
async def test_all_events_are_told_from_the_start(
    house: House, executor: StandIn, where: str
) -> None:
    known = executor.add()
    happened: list[tuple[str, Any]] = [
        ("crew_kickoff_started", None),
        ("log", {"text": "a\nb\r\n\x85\u2028\u2029 số\x00\x0b\x1c", "level": "info"}),
        ("crew_kickoff_completed", [1, {"a": 2.5}]),
    ]
    for kind, data in happened:
        executor.happen(known.id, kind, data)
    executor.change(known.id, status=Status.COMPLETED)
    answer = await house.at(where).get(f"/events/{known.id}", house.token)
    assert answer.status_code == 200
    assert answer.headers["Content-Type"] == "text/event-stream"
    assert answer.headers["Cache-Control"] == "no-store"
    assert answer.headers["X-Accel-Buffering"] == "no"
    moment = "2026-03-01T12:00:00.00{}Z".format
    assert told(answer.text) == [
        (n + 1, {"type": kind, "timestamp": moment(n), "data": {} if data is None else data})
        for n, (kind, data) in enumerate(happened)
    ]


@pytest.mark.parametrize(("last", "expected"), [("0", [1, 2, 3]), ("2", [3]), ("3", []), ("9", [])])
async def test_it_goes_on_after_the_last_event(
    house: House, executor: StandIn, last: str, expected: list[int]
) -> None:
    known = executor.add()
    for _ in range(3):
        executor.happen(known.id, "log")
    executor.change(known.id, status=Status.ERROR)
    answer = await house.own.get(f"/events/{known.id}", house.token, Last_Event_ID=last)
    assert [number for number, _ in told(answer.text)] == expected


@pytest.mark.parametrize("last", ["x", "-1", "1.5", "", str(2**53), "9" * 5000])
async def test_a_last_event_that_is_none_is_400(house: House, executor: StandIn, last: str) -> None:
    known = executor.add()
    answer = await house.own.get(f"/events/{known.id}", house.token, Last_Event_ID=last)
    assert answer.status_code == 400
    assert answer.json()["message"].startswith("Last-Event-ID: must be ")


async def test_it_is_live(house: House, executor: StandIn) -> None:
    known = executor.add()
    async with follow(house.own, house.token, known.id) as stream:
        await stream.until(b"follow")  # it begins before anything has happened
        for number in (1, 2):
            executor.happen(known.id, "log")
            await stream.until(b"id: %d\n" % number)
        executor.change(known.id, status=Status.COMPLETED)
        await stream.until(b"\r\n0\r\n\r\n")
    assert executor.waiting == 0


async def test_an_old_client_gets_them_too(house: House, executor: StandIn) -> None:
    known = executor.add()
    executor.happen(known.id, "log")
    executor.change(known.id, status=Status.COMPLETED)
    async with follow(house.own, house.token, known.id, http="1.0") as stream:
        assert b"\n\nid: 1\ndata: {" in await stream.rest()


async def test_silence_is_broken_by_a_comment(
    house: House, executor: StandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sse, "KEEP_ALIVE", 0.02)
    known = executor.add()
    async with follow(house.own, house.token, known.id) as stream:
        received = await stream.until(b": nothing new\n\n")
        assert b"data" not in received
        executor.happen(known.id, "log")
        await stream.until(b"id: 1\n")
        assert b": nothing new\n\n" in await stream.stream.receive_some()  # it is told once


async def test_no_event_is_left_out_when_its_reader_is_admitted_late(
    house: House, executor: StandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As when the part that knows the tokens is being restarted."""
    monkeypatch.setattr(sse, "KEEP_ALIVE", 0.02)
    known = executor.add()
    is_there = [trio.Event()]
    is_there[0].set()
    caller = house.crew_tokens.caller

    async def late(*asked: Any) -> Any:
        await is_there[0].wait()
        return await caller(*asked)

    monkeypatch.setattr(house.crew_tokens, "caller", late)
    async with follow(house.own, house.token, known.id) as stream:
        await stream.until(b"follow")
        is_there[0] = trio.Event()
        executor.happen(known.id, "log")
        await stream.until(b": nothing new\n\n")
        executor.happen(known.id, "log")
        is_there[0].set()
        received = await stream.until(b"id: 2\n")
        assert received.index(b"id: 1\n") < received.index(b"id: 2\n")


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """An ordinary answer has to be sent in no time."""
    monkeypatch.setattr(http_app, "RESPONSE_SECONDS", 0.01)


async def test_it_outlives_the_time_for_answers(
    impatient: None, house: House, executor: StandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sse, "KEEP_ALIVE", 0.05)
    known = executor.add()
    async with follow(house.own, house.token, known.id) as stream:
        await stream.until(b": nothing new\n\n")
        executor.happen(known.id, "log")
        await stream.until(b"id: 1\n")


# Ends


@pytest.mark.parametrize("how", ["close", "half-close", "reset"])
async def test_a_client_that_leaves_leaves_nothing(
    house: House, executor: StandIn, how: str
) -> None:
    known = executor.add()
    before = trio.lowlevel.current_statistics().tasks_living
    async with follow(house.own, house.token, known.id) as stream:
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
async def test_a_client_that_stops_reading_is_cut_off(
    limits: HttpLimits, house: House, executor: StandIn
) -> None:
    known = executor.add()
    for _ in range(40):
        executor.happen(known.id, "log", "x" * 1_000_000)
    async with follow(house.own, house.token, known.id) as stream:
        await stream.until(b"id: 1\n")
        with trio.fail_after(SOON):
            await executor.left.wait()


@pytest.mark.parametrize("when", ["silent", "busy"])
async def test_it_ends_when_the_server_stops(house: House, executor: StandIn, when: str) -> None:
    known = executor.add()
    async with follow(house.own, house.token, known.id) as stream:
        if when == "busy":
            executor.happen(known.id, "log")
        await stream.until(b"\nid: 1" if when == "busy" else b"follow")
        house.stop.set()
        assert (await stream.rest()).endswith(b"\r\n0\r\n\r\n")
    assert executor.waiting == 0


async def test_it_ends_early_when_a_part_restarts(house: House, executor: StandIn) -> None:
    known = executor.add()
    executor.happen(known.id, "log")
    async with follow(house.own, house.token, known.id) as stream:
        await stream.until(b"id: 1\n")
        executor.refusal = Unavailable("the journal part restarted", retry_after=1)
        executor.happen(known.id, "log")
        assert b"\nid: 2" not in await stream.until(b"\r\n0\r\n\r\n")
    executor.refusal = None
    async with follow(house.own, house.token, known.id, more="Last-Event-ID: 1\r\n") as stream:
        assert b"id: 1\n" not in await stream.until(b"id: 2\n")


async def test_it_ends_at_once_when_a_part_has_restarted_before_its_first_event(
    house: House, executor: StandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    known = executor.add()
    executor.happen(known.id, "log")
    follow = executor.follow
    refusals = [None, Unavailable("the journal part restarted", retry_after=1)]

    @asynccontextmanager
    async def follow_once(*args: Any, **more: Any) -> AsyncIterator[Any]:
        if (refusal := refusals.pop(0)) is not None:
            raise refusal
        async with follow(*args, **more) as following:
            yield following

    monkeypatch.setattr(executor, "follow", follow_once)
    answer = await house.own.get(f"/events/{known.id}", house.token)
    assert (answer.status_code, answer.content) == (200, sse._BEGIN)


# Refusals


async def test_who_holds_a_rotated_token_is_told_nothing_more(
    house: House, executor: StandIn
) -> None:
    known = executor.add()
    executor.happen(known.id, "crew_kickoff_started", None)
    async with follow(house.own, house.token, known.id) as stream:
        await stream.until(b"crew_kickoff_started")
        await house.crew_tokens.rotate("alpha")
        executor.happen(known.id, "log", {"text": "for those who may know"})
        assert b"for those" not in await stream.until(b"\r\n0\r\n\r\n")


@pytest.mark.parametrize("how", ["rotated", "taken out"])
async def test_nor_does_it_hold_a_place_while_nothing_happens(
    house: House, executor: StandIn, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    monkeypatch.setattr(sse, "KEEP_ALIVE", 0.02)
    known = executor.add(owner="ann")
    async with follow(house.own, house.tokens["ann"], known.id) as stream:
        await stream.until(b": nothing new\n\n")
        if how == "rotated":
            await house.crew_tokens.rotate("alpha", "ann")
        else:
            await house.crew_tokens.set_users({"alpha": ()})
        await stream.until(b"\r\n0\r\n\r\n")
    assert executor.waiting == 0


async def test_too_many_followers_is_503(house: House, executor: StandIn) -> None:
    known = executor.add()
    executor.refusal = Unavailable("512 clients follow executions already", retry_after=5)
    answer = await house.own.get(f"/events/{known.id}", house.token)
    assert (answer.status_code, answer.headers["Retry-After"]) == (503, "5")
    assert answer.headers["Content-Type"] == "application/json"


@pytest.mark.parametrize("limits", [HttpLimits(connections=8)])
@pytest.mark.parametrize("how", ["close", "half-close"])
async def test_follower_beyond_the_share_of_its_token_is_429_until_another_leaves(
    house: House, executor: StandIn, limits: HttpLimits, how: str
) -> None:
    known = executor.add()
    path = f"/events/{known.id}"
    for _ in range(3):
        async with (
            follow(house.own, house.token, known.id) as one,
            follow(house.own, house.token, known.id) as two,
        ):
            await one.until(b"follow")
            await two.until(b"follow")
            answer = await house.own.get(path, house.token)
            assert (answer.status_code, answer.headers["Retry-After"]) == (429, "5")
            assert (await house.own.ask("HEAD", path, house.token)).status_code == 200
            async with follow(house.own, house.tokens["ann"], known.id) as another:
                await another.until(b"404 ")  # it may follow, but not this one
            if how == "half-close":
                await one.stream.send_eof()
                await two.stream.send_eof()
                await one.rest()
                await two.rest()
        with trio.fail_after(SOON):
            await executor.left.wait()


@pytest.mark.parametrize("limits", [HttpLimits(connections=8)])
async def test_refused_follower_holds_no_place(
    house: House, executor: StandIn, limits: HttpLimits
) -> None:
    for _ in range(4):
        answer = await house.own.get("/events/3f1e2d0c-6a5b-4c8d-9e7f-0a1b2c3d4e5f", house.token)
        assert answer.status_code == 404


async def test_large_event_is_told_whole_however_long_its_second_part_takes(
    house: House, executor: StandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A comment between the parts would be in the middle of a line."""
    monkeypatch.setattr(sse, "KEEP_ALIVE", 0.02)
    known = executor.add()
    data: JsonValue = {"text": "a\u2028b\x85c"}
    executor.happen(known.id, "log", data)
    (whole,) = executor.events[known.id]
    cut = whole.json.index(b"b")
    executor.events[known.id] = [replace(whole, json=whole.json[:cut])]
    async with follow(house.own, house.token, known.id, http="1.0") as stream:
        await stream.until(b"id: 1\n")
        await trio.sleep(0.1)
        executor.events[known.id].append(replace(whole, json=whole.json[cut:], offset=cut))
        executor.change(known.id, status=Status.COMPLETED)
        _, _, body = (await stream.rest()).partition(b"\r\n\r\n")
    ((number, event),) = told(body.decode())
    assert (number, event["type"], event["data"]) == (1, "log", data)
    assert b"nothing new" not in body


async def test_an_unknown_execution_is_404(house: House) -> None:
    path = "/events/3f1e2d0c-6a5b-4c8d-9e7f-0a1b2c3d4e5f"
    answer = await house.own.get(path, house.token)
    assert (answer.status_code, answer.json()["error"]) == (404, "Not Found")


async def test_head_tells_no_events(
    house: House, executor: StandIn, caplog: pytest.LogCaptureFixture
) -> None:
    known = executor.add()  # never ends
    with trio.fail_after(SOON):
        answer = await house.own.ask("HEAD", f"/events/{known.id}", house.token)
    assert (answer.status_code, answer.content) == (200, b"")
    assert answer.headers["Content-Type"] == "text/event-stream"
    assert executor.waiting == 0
    assert [record for record in caplog.records if record.levelname == "ERROR"] == []
