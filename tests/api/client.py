"""A client of one base address, for the tests of the whole daemon and of the crews' API."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass

import httpx
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

PATIENCE = 15.0  # seconds; a longer wait is a hang


@dataclass
class Client:
    url: str
    http: httpx.AsyncClient

    @property
    def port(self) -> int:
        return httpx.URL(self.url).port or 0

    async def send(
        self, method: str, path: str, token: str, body: object, headers: Mapping[str, str]
    ) -> httpx.Response:
        """Send a request. A dict or list is sent as JSON, bytes as they are, None without a body.
        Names of headers are written with underscores."""
        given = {name.replace("_", "-"): value for name, value in headers.items()}
        if token:
            given["Authorization"] = f"Bearer {token}"
        url = self.url + path
        if isinstance(body, bytes):
            given.setdefault("Content-Type", "application/json")
            return await self.http.request(method, url, content=body, headers=given)
        return await self.http.request(method, url, json=body, headers=given)

    async def raw(self, request: bytes) -> bytes:
        """Send bytes and read until the connection ends."""
        with trio.fail_after(PATIENCE):
            async with await trio.open_tcp_stream("127.0.0.1", self.port) as stream:
                await stream.send_all(request)
                received = b""
                while part := await stream.receive_some():
                    received += part
                return received

    async def ask_raw(self, method: str, path: str, authorization: str = "") -> bytes:
        """Send a request as it is written here, and return the whole answer.

        A client library would change odd paths and header values, or refuse them.
        """
        head = f"{method} {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
        if authorization:
            head += f"Authorization: {authorization}\r\n"
        return await self.raw(f"{head}Content-Length: 0\r\n\r\n".encode("latin1"))

    async def post_late(
        self, path: str, token: str, body: object, meanwhile: Callable[[], Awaitable[object]]
    ) -> bytes:
        """POST a body, and send its last byte only after `meanwhile`; return the whole answer.

        The server has to run in this process, so that all its tasks have done what they can by
        then.
        """
        content = json.dumps(body).encode()
        head = (
            f"POST {httpx.URL(self.url + path).path} HTTP/1.1\r\nHost: localhost\r\n"
            f"Content-Type: application/json\r\nAuthorization: Bearer {token}\r\n"
            f"Connection: close\r\nContent-Length: {len(content)}\r\n\r\n"
        )
        with trio.fail_after(PATIENCE):
            async with await trio.open_tcp_stream("127.0.0.1", self.port) as stream:
                await stream.send_all(head.encode() + content[:-1])
                await wait_all_tasks_blocked()
                await meanwhile()
                await stream.send_all(content[-1:])
                return b"".join([part async for part in stream])


async def answer_in_time(
    clock: MockClock, ask: Callable[[], Awaitable[httpx.Response]]
) -> httpx.Response:
    """Advance the clock in steps of one second until there is an answer, and return it."""
    answers: list[httpx.Response] = []

    async def run() -> None:
        answers.append(await ask())

    async with trio.open_nursery() as nursery:
        nursery.start_soon(run)
        await wait_all_tasks_blocked(0.01)
        while not answers:
            clock.jump(1)
            await wait_all_tasks_blocked(0.01)
    return answers[0]
