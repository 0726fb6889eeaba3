"""One call over real sockets: where it may go, how long it may take, what it may read."""

from __future__ import annotations

import socket
import struct
from collections.abc import Awaitable, Callable, Sequence
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing

from smartlinkd import __version__
from smartlinkd.net import egress
from smartlinkd.net.dns import install_resolver
from smartlinkd.net.egress import (
    Answered,
    CannotConnect,
    Unanswered,
    is_local,
    open_sender,
    resolve_name,
)
from tests.fakes.certificate import certificate_for, serve_https
from tests.fakes.internet import Behaviour
from tests.shortage import Shortage

LOOPBACK = (ip_network("127.0.0.0/8"),)
SECRET_PATH = "/swordfish?token=swordfish"

Address = IPv4Address | IPv6Address
OpenReceiver = Callable[..., Awaitable[Any]]


def leads_to(*answers: str) -> Callable[[str], Awaitable[Sequence[Address]]]:
    """A resolver of one name: each look-up finds the addresses of the next answer."""
    left = list(answers)

    async def resolve(host: str) -> Sequence[Address]:
        assert host == "hooks.example"
        return [ip_address(each) for each in left.pop(0).split()]

    return resolve


async def post(
    url: str, headers: dict[str, str] | None = None, body: bytes = b"{}", **options: Any
) -> Answered | Unanswered:
    given: dict[str, Any] = {"allow": LOOPBACK, "max_connections": 4} | options
    async with open_sender(**given) as sender:
        return await sender.post(url, headers or {}, body)


async def test_post_without_a_thread_for_its_look_up_is_unanswered(no_thread: Shortage) -> None:
    install_resolver()
    with no_thread():
        outcome = await post("http://hooks.example/")

    assert outcome == Unanswered(
        "the daemon cannot start a thread: as many tasks run as the system lets it have; "
        "try again shortly"
    )


async def test_post_sends_its_body_and_headers_only(receiver: Any) -> None:
    body = '{"result": "càng"}'.encode()
    outcome = await post(receiver.url("/a%20b?c=d"), {"Authorization": "Basic abc"}, body)

    assert outcome == Answered(200)
    (request,) = receiver.calls
    assert (request.method, request.path, request.content) == ("POST", "/a%20b?c=d", body)
    assert request.headers == {
        "host": f"127.0.0.1:{receiver.port}",
        "user-agent": f"smartlinkd/{__version__}",
        "accept": "*/*",
        "accept-encoding": "identity",
        "content-type": "application/json",
        "authorization": "Basic abc",
        "content-length": str(len(body)),
    }


async def test_proxies_of_the_environment_are_not_used(
    receiver: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("http_proxy", "HTTP_PROXY", "ALL_PROXY", "https_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    assert await post(receiver.url()) == Answered(200)


# Receivers that do not behave


async def never_begin(stream: trio.SocketStream) -> bool:
    """Send a head without an end."""
    await stream.send_all(b"HTTP/1.1 200 OK\r\n")
    while True:
        await stream.send_all(b"X-More: " + b"x" * 1024 + b"\r\n")


async def never_end(stream: trio.SocketStream) -> bool:
    """Answer 200 with a body without an end."""
    await stream.send_all(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
    while True:
        await stream.send_all(b"400\r\n" + b"x" * 1024 + b"\r\n")


async def break_off(stream: trio.SocketStream) -> bool:
    """Reset the connection within a body."""
    await stream.send_all(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nx")
    stream.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    stream.socket.close()
    return False


async def test_endless_head_is_unanswered(receiver: Any) -> None:
    receiver.next.append(never_begin)
    assert await post(receiver.url()) == Unanswered("the connection failed (RemoteProtocolError)")


async def test_dripping_body_is_left_and_the_status_counts(
    receiver: Any, mock_clock: trio.testing.MockClock, nursery: trio.Nursery
) -> None:
    outcomes: list[Answered | Unanswered] = []
    dripping = trio.Event()

    async def drip(stream: trio.SocketStream) -> None:
        await stream.send_all(b"HTTP/1.1 204 OK\r\nContent-Length: 9\r\n\r\nx")
        dripping.set()
        await trio.sleep_forever()

    async def call() -> None:
        outcomes.append(await post(receiver.url()))

    receiver.next.append(drip)
    nursery.start_soon(call)
    await dripping.wait()
    await trio.testing.wait_all_tasks_blocked(0.01)
    mock_clock.jump(egress.ANSWER_DEADLINE)
    await trio.testing.wait_all_tasks_blocked(0.01)
    assert outcomes == [Answered(204)]


@pytest.mark.parametrize("behaviour", [never_end, break_off])
async def test_body_without_a_good_end_is_left_and_the_status_counts(
    receiver: Any, behaviour: Behaviour
) -> None:
    receiver.next.append(behaviour)
    async with open_sender(LOOPBACK, max_connections=1) as sender:
        assert await sender.post(receiver.url(), {}, b"{}") == Answered(200)
        # The one connection that there may be is free again.
        assert await sender.post(receiver.url(), {}, b"{}") == Answered(200)


@pytest.mark.parametrize(
    ("url", "headers"),
    [
        ("http://127.0.0.1:1/", {"Authorization": "Bearer swordfish\r\nX-Other: 1"}),
        ("ftp://127.0.0.1:1/", {}),
        ("http://127.0.0.1:1/swordfish\n", {}),
    ],
)
async def test_request_that_cannot_be_written_is_final(
    receiver: Any, url: str, headers: dict[str, str]
) -> None:
    outcome = await post(url.replace(":1/", f":{receiver.port}/"), headers)
    assert outcome == Unanswered("it cannot be written as an HTTP request", is_final=True)
    assert receiver.calls == []


# Where it may go


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "2130706433", "127.1"])
async def test_address_that_is_not_allowed_gets_no_connection(receiver: Any, host: str) -> None:
    outcome = await post(f"http://{host}:{receiver.port}{SECRET_PATH}", allow=())
    assert isinstance(outcome, Unanswered)
    assert "which webhooks may not call" in outcome.why
    assert "webhooks.allow" in outcome.why
    assert "swordfish" not in outcome.why
    assert receiver.calls == []


async def test_name_that_is_rebound_gets_no_connection(open_receiver: OpenReceiver) -> None:
    victim = await open_receiver("127.0.0.1")  # where ports are in use, so it has the choice
    allowed = await open_receiver("127.0.0.2", victim.port)
    url = f"http://hooks.example:{allowed.port}/"
    network = (ip_network("127.0.0.2"),)
    resolve = leads_to("127.0.0.2", "127.0.0.1")
    async with open_sender(network, max_connections=1, resolve=resolve) as sender:
        # One look-up for the call, and the address that was judged is the one that is called.
        assert await sender.post(url, {}, b"{}") == Answered(200)
        allowed.next.append(lambda stream: stream.aclose())
        await sender.post(url, {}, b"{}")
        outcome = await sender.post(url, {}, b"{}")
    assert outcome == Unanswered(
        "it leads to 127.0.0.1, which webhooks may not call (an operator who wants that names the "
        "network in webhooks.allow)"
    )
    assert len(allowed.calls) == 2
    assert allowed.calls[0].headers["host"] == f"hooks.example:{allowed.port}"
    assert victim.calls == []


async def test_allowed_addresses_of_a_name_are_the_only_ones_tried(
    open_receiver: OpenReceiver,
) -> None:
    victim = await open_receiver("127.0.0.1")  # where ports are in use, so it has the choice
    allowed = await open_receiver("127.0.0.2", victim.port)
    outcome = await post(
        f"http://hooks.example:{allowed.port}/",
        allow=(ip_network("127.0.0.2"),),
        resolve=leads_to("127.0.0.1 ::1 127.0.0.2"),
    )
    assert outcome == Answered(200)
    assert (len(allowed.calls), victim.calls) == (1, [])


async def test_own_public_address_is_refused_unless_it_is_named() -> None:
    """A firewall lets it pass, though its address is one of the public internet."""
    outcome = await post(
        "http://hooks.example/",
        allow=(),
        resolve=leads_to("51.15.20.30"),
        is_local=lambda _: True,
    )
    assert isinstance(outcome, Unanswered)
    assert outcome.why.startswith("it leads to 51.15.20.30, which webhooks may not call")


# To 127.0.0.5 the kernel sends from 127.0.0.1, as to each second address of an interface.
OWN = ["127.0.0.1", "127.0.0.5", "::1", "::ffff:127.0.0.1"]
FOREIGN = ["192.0.2.7", "::ffff:192.0.2.7", "2001:db8::7"]


@pytest.mark.parametrize("address", OWN + FOREIGN)
def test_own_address_alone_is_local(address: str) -> None:
    assert is_local(ip_address(address)) is (address in OWN)


def test_is_local_without_descriptor_raises_cannot_connect(shortage: Shortage) -> None:
    with shortage(), pytest.raises(CannotConnect, match="Too many open files"):
        is_local(ip_address("51.15.20.30"))


async def test_dead_address_is_skipped_for_the_next(open_receiver: OpenReceiver) -> None:
    receiver = await open_receiver("127.0.0.2")
    url = f"http://hooks.example:{receiver.port}/"
    assert await post(url, resolve=leads_to("127.0.0.3 127.0.0.2")) == Answered(200)


async def test_name_without_address_is_unanswered() -> None:
    outcome = await post("http://hooks.example/", resolve=leads_to(""))
    assert outcome == Unanswered("its name has no address")


async def test_unknown_name_raises_cannot_connect() -> None:
    with pytest.raises(CannotConnect, match="could not be resolved"):
        await resolve_name("no-such-name.invalid")
    with pytest.raises(CannotConnect, match="could not be resolved"):
        await resolve_name("x" * 64 + ".example")


async def test_literal_address_resolves_to_itself() -> None:
    assert await resolve_name("127.0.0.1") == [IPv4Address("127.0.0.1")]
    assert await resolve_name("::1") == [IPv6Address("::1")]


# TLS


async def test_tls_is_for_the_name_and_its_certificate_must_be_trusted(
    tmp_path: Path, nursery: trio.Nursery, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str | None] = []

    def note(_: object, name: str | None, __: object) -> None:
        asked.append(name)

    context, public = certificate_for("hooks.example", tmp_path)
    context.sni_callback = note
    port = await serve_https(context, nursery)
    url = f"https://hooks.example:{port}/"
    outcome = await post(url, resolve=leads_to("127.0.0.1"))
    assert outcome == Unanswered("its certificate is not trusted: self-signed certificate")
    monkeypatch.setenv("SSL_CERT_FILE", str(public))
    assert await post(url, resolve=leads_to("127.0.0.1")) == Answered(200)
    assert asked == ["hooks.example", "hooks.example"]
    outcome = await post(f"https://127.0.0.1:{port}{SECRET_PATH}")
    assert isinstance(outcome, Unanswered)
    assert outcome.why.startswith("its certificate is not trusted: IP address mismatch")
    assert "swordfish" not in outcome.why
