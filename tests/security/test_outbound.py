"""The daemon calls no address inside the owner's network.

The tests try short links, webhooks, redirects and names that lead there. `tests/marketplace` and
`tests/net` test the rules. Here short links and clients of the whole daemon name the addresses.
"""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import httpx
import pytest
import trio

from smartlinkd.marketplace.links import Product, Short
from smartlinkd.marketplace.markets import market
from smartlinkd.marketplace.shortlinks import ShortLinks, Unresolved
from smartlinkd.net.client import HttpClient
from tests.fakes.certificate import certificate_for

if TYPE_CHECKING:
    from tests.security.conftest import Daemon, Start

VN = market("vn")
SHORT = Short("https://s.shopee.vn/abc")

INSIDE = [
    "http://127.0.0.1/product/1/2",
    "http://127.0.0.1:8787/api/sync-cookie",
    "http://127.1/",
    "http://2130706433/",
    "http://0x7f000001/",
    "http://0177.0.0.1/",
    "http://0.0.0.0/",
    "http://localhost/",
    "http://anything.localhost/",
    "http://[::1]/",
    "http://[::]/",
    "http://[::ffff:127.0.0.1]/",
    "http://[::ffff:7f00:1]/",
    "http://[64:ff9b::7f00:1]/",
    "http://10.0.0.1/",
    "http://172.16.0.1/",
    "http://192.168.1.1/",
    "http://100.64.0.1/",
    "http://169.254.169.254/latest/meta-data/",
    "http://[fd00:ec2::254]/latest/meta-data/",
    "http://[fe80::1]/",
    "http://127。0。0。1/",
    "http://①②⑦.⓪.⓪.①/",
]
NO_ADDRESS = [
    "file:///etc/passwd",
    "file://127.0.0.1/etc/passwd",
    "javascript:alert(1)",
    "data:text/html,<script>alert(1)</script>",
    "ftp://127.0.0.1/x",
    "gopher://127.0.0.1:6379/_x",
    "unix:///run/docker.sock",
    "//127.0.0.1/x",
    "http:\\\\127.0.0.1\\x",
    "http://shopee.vn@127.0.0.1/product/1/2",
    "http://127.0.0.1#@shopee.vn/product/1/2",
    "http://127.0.0.1\\@shopee.vn/product/1/2",
]
LOOK_ALIKES = [
    "https://evil-shopee.vn/product/1/2",
    "https://shopee.vn.evil.example/product/1/2",
    "https://shopee.vn./product/1/2",
    "https://xn--shpee-jsd.vn/product/1/2",
    "https://shopee.vn:8443/product/1/2",
    "https://owner@shopee.vn/product/1/2",
]


# Short links


WAYS: dict[str, Callable[[str], httpx.Response]] = {
    "redirect": lambda url: httpx.Response(302, headers={"Location": url}),
    "permanent redirect": lambda url: httpx.Response(308, headers={"Location": url}),
    "page": lambda url: httpx.Response(
        200, html=f'<meta http-equiv="refresh" content="0;url={url}">'
    ),
    "refresh": lambda url: httpx.Response(200, headers={"Refresh": f"0;url={url}"}),
    "canonical": lambda url: httpx.Response(200, html=f'<link rel="canonical" href="{url}">'),
    "script": lambda url: httpx.Response(200, html=f"<script>location.href = '{url}'</script>"),
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("url", [*INSIDE, *NO_ADDRESS, *LOOK_ALIKES])
async def test_short_link_never_leads_out_of_the_market(url: str, way: str) -> None:
    asked = []

    def answer(request: httpx.Request) -> httpx.Response:
        asked.append(str(request.url))
        try:
            return WAYS[way](url)
        except UnicodeEncodeError:  # no header can hold the address
            return WAYS["page"](url)

    async with HttpClient(httpx.MockTransport(answer)) as client:
        found = await ShortLinks(client, VN).resolve(SHORT)
    assert not isinstance(found, Product)
    assert asked == [SHORT.url]


@dataclass
class Victim:
    """A program in the owner's network, and all that it received."""

    port: int = 0
    connections: int = 0
    told: list[bytes] = field(default_factory=list)


class RebindingResolver(trio.abc.HostnameResolver):
    """A stranger's name server: each name has the victim's address."""

    def __init__(self, port: int) -> None:
        self._port = port
        self.asked: list[bytes | None] = []

    async def getaddrinfo(self, host: bytes | None, *_: Any, **__: Any) -> Any:
        self.asked.append(host)
        tcp = trio.socket.SOCK_STREAM
        return [(trio.socket.AF_INET, tcp, 6, "", ("127.0.0.1", self._port))]

    async def getnameinfo(self, *_: Any) -> tuple[str, str]:
        raise NotImplementedError


@pytest.fixture
def certificate(tmp_path: Path) -> ssl.SSLContext:
    """A certificate for the market's name that no authority has signed."""
    context, _ = certificate_for("s.shopee.vn", tmp_path)
    return context


@pytest.mark.parametrize("tls", [False, True], ids=["without TLS", "with TLS"])
async def test_market_name_that_leads_to_loopback_gets_no_request(
    nursery: trio.Nursery, certificate: ssl.SSLContext, tls: bool
) -> None:
    """DNS rebinding: the attacker controls the name but has no certificate for it."""
    victim = Victim()

    async def record_request(stream: trio.SocketStream) -> None:
        victim.connections += 1
        try:
            over = trio.SSLStream(stream, certificate, server_side=True) if tls else stream
            victim.told.append(bytes(await over.receive_some(4096)))
            answer = b"HTTP/1.1 302 Found\r\nLocation: https://shopee.vn/product/1/2\r\n\r\n"
            await over.send_all(answer)
        except (trio.BrokenResourceError, ssl.SSLError):
            return  # the client refused the certificate

    listeners = await trio.open_tcp_listeners(0, host="127.0.0.1")
    victim.port = listeners[0].socket.getsockname()[1]
    nursery.start_soon(partial(trio.serve_listeners, record_request, listeners))
    names = RebindingResolver(victim.port)
    trio.socket.set_custom_hostname_resolver(names)
    async with HttpClient() as client:
        with trio.fail_after(10):
            assert isinstance(await ShortLinks(client, VN).resolve(SHORT), Unresolved)
    nursery.cancel_scope.cancel()
    assert names.asked == [b"s.shopee.vn"]
    assert victim.connections > 0
    # A TLS handshake record (RFC 8446 section 5.1) and no request.
    assert all(told[:1] in (b"", b"\x16") for told in victim.told)


# The whole daemon


@pytest.fixture(scope="module")
def daemon(start: Start) -> Iterator[Daemon]:
    with start() as daemon:
        yield daemon


@pytest.fixture
async def victim(nursery: trio.Nursery) -> AsyncIterator[Victim]:
    """A program on the daemon's own machine."""
    made = Victim()

    async def note(stream: trio.SocketStream) -> None:
        made.connections += 1
        await stream.aclose()

    listeners = await trio.open_tcp_listeners(0, host="127.0.0.1")
    made.port = listeners[0].socket.getsockname()[1]
    nursery.start_soon(partial(trio.serve_listeners, note, listeners))
    yield made
    nursery.cancel_scope.cancel()


async def test_link_makes_the_daemon_call_no_inner_address(daemon: Daemon, victim: Victim) -> None:
    urls = [url.replace("127.0.0.1/", f"127.0.0.1:{victim.port}/") for url in INSIDE]
    urls += NO_ADDRESS + LOOK_ALIKES
    token = await daemon.login()
    for start in range(0, len(urls), 15):
        links = urls[start : start + 15]
        answer = await daemon.ask("POST", "/api/convert", {"links": links}, token=token)
        assert answer.status_code == 200, answer.text
        assert answer.json()["mapping"] == {url: {"error": True, "failCode": 10} for url in links}
    assert victim.connections == 0


FIELDS: dict[str, Callable[[str], object]] = {
    "taskWebhookUrl": lambda url: url,
    "stepWebhookUrl": lambda url: url,
    "crewWebhookUrl": lambda url: url,
    "webhooks": lambda url: {"url": url, "events": []},
    "humanInputWebhook": lambda url: {"url": url},
}


@pytest.mark.parametrize("field", FIELDS)
async def test_webhook_makes_the_daemon_call_no_inner_address(
    daemon: Daemon, victim: Victim, field: str
) -> None:
    token = await daemon.crew_token("beta", "ann")
    # A valid id: any other id is a 404 before addresses are checked.
    one = str(uuid4())
    feedback = {"execution_id": one, "task_id": "x", "human_feedback": "x", "is_approve": True}
    own = [f"http://{name}:{daemon.port}/" for name in ("127.0.0.1", "localhost", "[::1]")]
    for url in (*INSIDE, *NO_ADDRESS, *own, f"http://127.0.0.1:{victim.port}/"):
        for path, body in (("kickoff", {"inputs": {}}), ("resume", feedback)):
            asked = {**body, field: FIELDS[field](url)}
            answer = await daemon.ask("POST", f"/crews/beta/{path}", asked, token=token)
            assert answer.status_code == 400, (path, answer.text)
            assert url not in answer.text
    found = (await daemon.ask("GET", "/crews/beta/executions", token=token)).json()
    assert found["executions"] == []
    assert victim.connections == 0
