"""A client of one base address, which both the whole daemon's tests and the crews' speak by."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import httpx
import trio

PATIENCE = 15.0  # seconds; whatever takes longer hangs


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
        """A dict or list goes as JSON, bytes as they are, and None is no body. Header names are
        written with underscores.
        """
        given = {name.replace("_", "-"): value for name, value in headers.items()}
        if token:
            given["Authorization"] = f"Bearer {token}"
        url = self.url + path
        if isinstance(body, bytes):
            given.setdefault("Content-Type", "application/json")
            return await self.http.request(method, url, content=body, headers=given)
        return await self.http.request(method, url, json=body, headers=given)

    async def raw(self, request: bytes) -> bytes:
        """Send bytes and read to the end of file."""
        with trio.fail_after(PATIENCE):
            async with await trio.open_tcp_stream("127.0.0.1", self.port) as stream:
                await stream.send_all(request)
                received = b""
                while part := await stream.receive_some():
                    received += part
                return received
