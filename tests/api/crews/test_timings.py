"""What `/metrics` tells of requests that take long for another reason than a slow daemon."""

from __future__ import annotations

from typing import TYPE_CHECKING

import trio

from smartlinkd.api.timings import measure
from smartlinkd.http_server import GuardedQuart
from tests.fakes.scrape import counted, observed

if TYPE_CHECKING:
    from tests.api.crews.conftest import House, StandIn

SOON = 5.0
STATUS = "/status/<kickoff_id>"
STOP = "/stop/<kickoff_id>"
EVENTS = "/events/<kickoff_id>"


def statuses(house: House, route: str) -> dict[str, float]:
    """How many of its requests were counted, by their status."""
    found = {tuple(key.split(",")): count for key, count in counted(house.metrics.requests).items()}
    return {status: count for (at, status), count in found.items() if at == route}


def timed(house: House, route: str) -> float:
    """How many of its requests were timed."""
    return observed(house.metrics.request_seconds).get(route, (0, 0))[0]


async def comes_to(house: House, route: str, *wanted: str) -> None:
    """Wait until requests with these statuses are counted: their clients may not know when."""
    with trio.fail_after(SOON):
        while statuses(house, route) != dict.fromkeys(wanted, 1):
            await trio.lowlevel.checkpoint()


def head(house: House, method: str, path: str) -> bytes:
    return (
        f"{method} {path} HTTP/1.1\r\nHost: localhost\r\n"
        f"Authorization: Bearer {house.token}\r\nContent-Length: 0\r\n\r\n"
    ).encode()


async def test_a_wait_that_the_client_asks_for_is_counted_and_not_timed(
    house: House, executor: StandIn
) -> None:
    await house.own.get(f"/status/{executor.add().id}?wait=0.01", house.token)
    assert (statuses(house, STATUS), timed(house, STATUS)) == ({"200": 1}, 0)


async def test_a_status_that_waits_for_nothing_is_timed(house: House, executor: StandIn) -> None:
    await house.own.get(f"/status/{executor.add().id}", house.token)
    assert (statuses(house, STATUS), timed(house, STATUS)) == ({"200": 1}, 1)


async def test_a_request_whose_client_has_gone_is_told_as_left(
    house: House, executor: StandIn
) -> None:
    """And timed: where all clients give up, nothing else would show that they had to wait."""
    known = executor.add()
    executor.takes_to_stop = 60.0
    async with await trio.open_tcp_stream("127.0.0.1", house.own.port) as stream:
        await stream.send_all(head(house, "POST", f"/stop/{known.id}"))
        await executor.stopping.wait()
    await comes_to(house, STOP, "left")
    assert timed(house, STOP) == 1


async def test_a_wait_whose_client_has_gone_is_not_timed_either(
    house: House, executor: StandIn
) -> None:
    known = executor.add()
    async with await trio.open_tcp_stream("127.0.0.1", house.own.port) as stream:
        await stream.send_all(head(house, "GET", f"/status/{known.id}?wait=50"))
        await executor.heard.wait()
    await comes_to(house, STATUS, "left")
    assert timed(house, STATUS) == 0


async def test_a_stream_is_timed_until_it_begins_and_is_not_left(
    house: House, executor: StandIn
) -> None:
    known = executor.add()
    async with await trio.open_tcp_stream("127.0.0.1", house.own.port) as stream:
        await stream.send_all(head(house, "GET", f"/events/{known.id}"))
        await comes_to(house, EVENTS, "200")
        assert timed(house, EVENTS) == 1
        await stream.receive_some()
    with trio.fail_after(SOON):
        await executor.left.wait()
    assert statuses(house, EVENTS) == {"200": 1}


async def test_a_request_that_ends_before_it_was_begun_with_is_not_counted(house: House) -> None:
    """As when its client has gone by then: it was no request yet, and is no fault."""
    app = GuardedQuart()
    measure(app, house.metrics)
    before = counted(house.metrics.requests)
    async with app.test_request_context("/") as begun:
        await app.do_teardown_request(trio.TooSlowError(), begun)
    assert counted(house.metrics.requests) == before
