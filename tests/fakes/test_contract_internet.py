"""Contract of the fake receivers and of receivers on a real socket: the outcome of a webhook call.

Both answer with the same code. The tests compare connecting, refusing, closing and resetting.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from functools import partial
from ipaddress import ip_network

import pytest
import trio

from smartlinkd.net.egress import Answered, Sender, Unanswered, open_sender
from tests.fakes.internet import (
    NETWORK,
    Behaviour,
    Internet,
    Receiver,
    answer,
    hang,
    late,
    refused,
    reset,
)

PATIENCE = 0.3  # seconds
LONG = 3.0  # seconds
BODY = b'{"a": 1}'


class Subject:
    """A receiver, and the sender that calls it."""

    def __init__(self, receiver: Receiver, url: str, sender: Sender) -> None:
        self.receiver = receiver
        self.url = url
        self.sender = sender

    async def post(self) -> Answered | Unanswered:
        with trio.fail_after(LONG):
            return await self.sender.post(self.url, {"webhook-id": "x"}, BODY)


@pytest.fixture(params=["fake", "real"])
async def subject(
    request: pytest.FixtureRequest, nursery: trio.Nursery, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Subject]:
    if request.param == "fake":
        internet = Internet(nursery=nursery)
        internet.install(monkeypatch)
        receiver = internet.receiver()
        url = receiver.url()
    else:
        receiver = Receiver("127.0.0.1")
        listeners = await nursery.start(
            partial(trio.serve_tcp, receiver.serve, 0, host="127.0.0.1")
        )
        url = f"http://127.0.0.1:{listeners[0].socket.getsockname()[1]}/hook"
    allow = [ip_network(NETWORK), ip_network("127.0.0.0/8")]
    async with open_sender(allow, max_connections=4, deadline_s=PATIENCE) as sender:
        yield Subject(receiver, url, sender)
    nursery.cancel_scope.cancel()


@pytest.mark.parametrize(
    ("behaviour", "outcome"),
    [
        (answer(200), Answered(200)),
        (answer(200, Connection="close"), Answered(200)),
        (answer(429, Retry_After="7"), Answered(429, "7")),
        (answer(307, Location="http://127.0.0.1/"), Answered(307)),
        (hang, Unanswered(f"no answer within {PATIENCE} seconds")),
        (late(2 * PATIENCE), Unanswered(f"no answer within {PATIENCE} seconds")),
        (reset, Unanswered("the connection failed (RemoteProtocolError)")),
    ],
    ids=["taken", "taken-and-closed", "busy", "redirect", "hang", "late", "reset"],
)
async def test_behaviour_leads_to_outcome(
    subject: Subject, behaviour: Behaviour, outcome: Answered | Unanswered
) -> None:
    subject.receiver.next.append(behaviour)
    assert await subject.post() == outcome
    assert [call.body for call in subject.receiver.calls] == [{"a": 1}]
    # The next call succeeds.
    assert await subject.post() == Answered(200)
    assert subject.receiver.calls[-1].id == "x"


async def test_connection_is_reused(subject: Subject) -> None:
    assert await subject.post() == Answered(200)
    assert await subject.post() == Answered(200)
    assert subject.receiver.connections == 1


async def test_closed_connection_is_not_reused(subject: Subject) -> None:
    assert await subject.post() == Answered(200)
    subject.receiver.close_connections()
    await trio.testing.wait_all_tasks_blocked(0.01)
    assert await subject.post() == Answered(200)
    assert subject.receiver.connections == 2


async def test_closed_port_is_reported_alike(
    nursery: trio.Nursery, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A closed port and the fake's fault lead to the same message."""
    (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
    port = listener.socket.getsockname()[1]
    await listener.aclose()
    async with open_sender([ip_network("127.0.0.0/8")], max_connections=1) as sender:
        real = await sender.post(f"http://127.0.0.1:{port}/", {}, BODY)
    internet = Internet(nursery=nursery)
    internet.install(monkeypatch)
    internet.receiver().take_down(refused())
    async with open_sender([ip_network(NETWORK)], max_connections=1) as sender:
        fake = await sender.post(internet.receiver().url(), {}, BODY)
    assert real == Unanswered("127.0.0.1 cannot be connected to")
    assert fake == Unanswered("192.0.2.7 cannot be connected to")
