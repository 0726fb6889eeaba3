"""The stop of a server: running requests have their grace, idle clients end at once."""

from __future__ import annotations

from functools import partial

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from smartlinkd.http_server import GuardedQuart, ServedApp, bind, serve
from tests.http_server.conftest import (
    GET,
    SOON,
    WAIT,
    Running,
    Seen,
    Serving,
    client_of,
    read_answer,
)


async def test_idle_clients_do_not_delay_the_stop(serving: Serving) -> None:
    async with (
        serving(idle_seconds=60) as server,
        await server.connect() as stream,
        await server.connect() as begins,
        await server.connect(),
    ):
        await begins.send_all(GET[:-2])
        await stream.send_all(GET)
        await read_answer(stream)
        server.stop.set()
        with trio.fail_after(SOON):
            await server.ended.wait()


async def begin_to_stop(server: Running) -> None:
    """Stop, and let it close what it closes at once."""
    server.stop.set()
    await trio.testing.wait_all_tasks_blocked(0.05)


@pytest.mark.parametrize("is_new", [True, False], ids=["new", "used before"])
async def test_request_on_its_way_is_answered_and_closes_its_connection(
    *, serving: Serving, is_new: bool
) -> None:
    """Its client was let in: nobody else would answer it."""
    async with (
        serving(idle_seconds=60, last_call_seconds=60) as server,
        await server.connect() as stream,
    ):
        if not is_new:
            await stream.send_all(GET)
            await read_answer(stream)
        await begin_to_stop(server)
        await stream.send_all(GET)
        answer = await read_answer(stream)
        assert (answer.status, answer.headers["connection"]) == (200, "close")
        with trio.fail_after(SOON):
            assert await stream.receive_some() == b""
            await server.ended.wait()


async def test_running_request_is_answered_and_its_connection_closed(
    serving: Serving, seen: Seen
) -> None:
    """Its grace goes on when the last call is over."""
    async with serving(last_call_seconds=0) as server, await server.connect() as stream:
        await stream.send_all(WAIT)
        await seen.started.wait()
        await begin_to_stop(server)
        seen.finish.set()
        answer = await read_answer(stream)
        assert (answer.body, answer.headers["connection"]) == (b"waited", "close")


async def test_draining_server_lets_no_client_in(serving: Serving, seen: Seen) -> None:
    async with serving() as server, await server.connect() as stream:
        await stream.send_all(WAIT)
        await seen.started.wait()
        server.stop.set()
        await wait_all_tasks_blocked()
        with pytest.raises(trio.TooSlowError), trio.fail_after(0.1):
            await server.is_answered()
        seen.finish.set()


async def test_request_longer_than_the_grace_is_cancelled(serving: Serving, seen: Seen) -> None:
    async with serving(grace=0.1) as server, await server.connect() as stream:
        await stream.send_all(WAIT)
        await seen.started.wait()
        server.stop.set()
        with trio.fail_after(SOON):
            await server.ended.wait()
        assert seen.cancelled.is_set()


async def test_request_behind_another_does_not_delay_the_stop(serving: Serving, seen: Seen) -> None:
    async with serving() as server, await server.connect() as stream:
        await stream.send_all(WAIT + GET)
        await seen.started.wait()
        server.stop.set()
        await trio.testing.wait_all_tasks_blocked()
        seen.finish.set()
        await read_answer(stream)
        await stream.aclose()
        with trio.fail_after(SOON):
            await server.ended.wait()


async def test_cancelled_server_ends_at_once_and_leaves_no_task(
    app: GuardedQuart, seen: Seen
) -> None:
    [listening] = bind("127.0.0.1", 0)
    tasks = trio.lowlevel.current_statistics().tasks_living
    with listening:
        async with await client_of(listening).connect() as stream:
            async with trio.open_nursery() as nursery:
                await nursery.start(
                    partial(serve, ServedApp(app), [listening], grace=60, stop=trio.Event())
                )
                await stream.send_all(WAIT)
                await seen.started.wait()
                nursery.cancel_scope.cancel()
            assert seen.cancelled.is_set()
        assert trio.lowlevel.current_statistics().tasks_living == tasks


async def test_next_request_of_a_connection_is_answered_by_the_app_that_replaced_the_first(
    app: GuardedQuart, nursery: trio.Nursery
) -> None:
    another, served = GuardedQuart(), ServedApp(app)
    another.add_url_rule("/small", "small", lambda: "another")
    [listening] = bind("127.0.0.1", 0)
    with listening:
        await nursery.start(partial(serve, served, [listening], grace=0, stop=trio.Event()))
        async with await client_of(listening).connect() as stream:
            bodies = []
            for _ in range(2):
                await stream.send_all(GET)
                bodies.append((await read_answer(stream)).body)
                served.replace(another)
        assert bodies == [b"ok", b"another"]
        assert (another.stopping, another.places) == (app.stopping, app.places)
        nursery.cancel_scope.cancel()
