"""A client of the daemon's and of the portal's that costs next to nothing.

What a client costs is added to whatever is measured through it. httpx takes about a millisecond of
processor time for a request, as much as the daemon takes for a small one; the standard library's
takes a fifth of that. One connection, kept open, and one request at a time.
"""

from __future__ import annotations

import json
import socket
from collections.abc import Mapping
from contextlib import AbstractContextManager, suppress
from http.client import HTTPConnection
from types import TracebackType
from typing import Any, Final
from urllib.parse import urlsplit

PATIENCE: Final = 90.0


class Asking(AbstractContextManager["Asking"]):
    """Asks one server. `headers` go with every request."""

    def __init__(self, origin: str, headers: Mapping[str, str]) -> None:
        place = urlsplit(origin)
        self._connection = HTTPConnection(place.hostname or "", place.port, timeout=PATIENCE)
        self._headers = {"Content-Type": "application/json", **headers}

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        self._connection.close()

    def leave(self) -> None:
        """End what another thread is asking: it fails there."""
        connected = self._connection.sock
        if connected is not None:
            with suppress(OSError):  # the other side may have been quicker
                connected.shutdown(socket.SHUT_RDWR)

    def post(self, path: str, body: object) -> Any:
        """The answer's JSON. Raises `ValueError` with the answer when its status is not 200."""
        return self._ask("POST", path, json.dumps(body))

    def get(self, path: str) -> Any:
        """The same."""
        return self._ask("GET", path, None)

    def _ask(self, method: str, path: str, body: str | None) -> Any:
        self._connection.request(method, path, body, self._headers)
        answer = self._connection.getresponse()
        text = answer.read()
        if answer.status != 200:
            raise ValueError(f"{path}: {answer.status} {text[:500]!r}")
        return json.loads(text)
