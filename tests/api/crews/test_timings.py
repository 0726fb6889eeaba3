"""Metrics of requests that take long although the daemon is not slow."""

from __future__ import annotations

from typing import TYPE_CHECKING

import trio

from tests.fakes.scrape import counted, observed

if TYPE_CHECKING:
    from tests.api.crews.conftest import FakeExecutor, ServedCrews

SOON = 5.0
STATUS = "/status/<kickoff_id>"
STOP = "/stop/<kickoff_id>"
EVENTS = "/events/<kickoff_id>"


def statuses(served: ServedCrews, route: str) -> dict[str, float]:
    """Return the number of counted requests of a route by status."""
    found = {
        tuple(key.split(",")): count for key, count in counted(served.metrics.requests).items()
    }
    return {status: count for (at, status), count in found.items() if at == route}


def timed(served: ServedCrews, route: str) -> float:
    """Return the number of timed requests of a route."""
    return observed(served.metrics.request_seconds).get(route, (0, 0))[0]


async def wait_for_statuses(served: ServedCrews, route: str, *wanted: str) -> None:
    """Wait until requests with these statuses are counted, which clients cannot see."""
    with trio.fail_after(SOON):
        while statuses(served, route) != dict.fromkeys(wanted, 1):
            await trio.lowlevel.checkpoint()


def head(served: ServedCrews, method: str, path: str) -> bytes:
    return (
        f"{method} {path} HTTP/1.1\r\nHost: localhost\r\n"
        f"Authorization: Bearer {served.token}\r\nContent-Length: 0\r\n\r\n"
    ).encode()


async def test_requested_wait_is_counted_and_not_timed(
    served: ServedCrews, executor: FakeExecutor
) -> None:
    await served.own.get(f"/status/{executor.add().id}?wait=0.01", served.token)
    assert (statuses(served, STATUS), timed(served, STATUS)) == ({"200": 1}, 0)


async def test_request_whose_client_has_gone_is_counted_as_left(
    served: ServedCrews, executor: FakeExecutor
) -> None:
    """The request is timed, too: if all clients gave up, nothing else would show the delay."""
    known = executor.add()
    executor.takes_to_stop = 60.0
    async with await trio.open_tcp_stream("127.0.0.1", served.own.port) as stream:
        await stream.send_all(head(served, "POST", f"/stop/{known.id}"))
        await executor.stopping.wait()
    await wait_for_statuses(served, STOP, "left")
    assert timed(served, STOP) == 1


async def test_event_stream_is_timed_until_it_begins(
    served: ServedCrews, executor: FakeExecutor
) -> None:
    known = executor.add()
    async with await trio.open_tcp_stream("127.0.0.1", served.own.port) as stream:
        await stream.send_all(head(served, "GET", f"/events/{known.id}"))
        await wait_for_statuses(served, EVENTS, "200")
        assert timed(served, EVENTS) == 1
        await stream.receive_some()
    with trio.fail_after(SOON):
        await executor.left.wait()
    assert statuses(served, EVENTS) == {"200": 1}
