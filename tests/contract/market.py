"""Links by the sandbox's Open API, and a small HTTP server that plays another host."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import TYPE_CHECKING, Any

import httpx

if TYPE_CHECKING:
    from tests.contract.conftest import Portal

APP_ID = "18000000001"
SECRET = "SANDBOXSANDBOXSANDBOXSANDBOXSAND"

Json = dict[str, Any]


def by_open_api(url: str) -> dict[str, Json]:
    """Return settings for links by the Open API at `url`: the daemon starts no browser."""
    return {
        "links": {"source": "open_api"},
        "products": {"source": "none"},
        "open_api": {"app_id": APP_ID, "secret": SECRET, "url": f"{url}/graphql"},
    }


def made_by_open_api(portal: Portal, item: int, *sub_ids: str) -> Json:
    """Return the entry of an item whose link the Open API made. It gives no long link."""
    entry = portal.entry(item, portal.owner(APP_ID), *sub_ids, product=False)
    return {**entry, "longLink": entry["shortLink"]}


async def upstream_calls(portal: Portal) -> dict[str, int]:
    """Return the sandbox's counters: how often each of its endpoints was called."""
    async with httpx.AsyncClient(trust_env=False) as client:
        answer = await client.get(f"{portal.origins.portal}/_sandbox/log")
    counters: dict[str, int] = answer.json()["counters"]
    return counters


@dataclass(frozen=True)
class Reply:
    """The answer of a `Host` to one request."""

    text: str = ""
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Call:
    """A received request. `host` is without its port."""

    host: str
    path: str
    cookie: str


@dataclass
class Host:
    """An HTTP server on loopback that plays another host of the internet."""

    url: str
    calls: list[Call]

    @property
    def asked(self) -> list[str]:
        """The paths of all requests so far."""
        return [call.path for call in self.calls]


@contextmanager
def host(answer: Callable[[str, str], Reply]) -> Iterator[Host]:
    """Run a `Host` that answers each request with `answer(path, body)`."""
    calls: list[Call] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            name = self.headers.get("Host", "").partition(":")[0]
            calls.append(Call(name, self.path, self.headers.get("Cookie", "")))
            body = self.rfile.read(int(self.headers.get("Content-Length", 0))).decode()
            reply = answer(self.path, body)
            content = reply.text.encode()
            self.send_response(reply.status)
            self.send_header("Content-Type", "text/html; charset=utf-8")
            for name, value in reply.headers.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        do_POST = do_GET  # noqa: N815 - the name that http.server calls

        def log_message(self, format: str, *args: object) -> None:
            """Write nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield Host(f"http://127.0.0.1:{server.server_port}", calls)
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
