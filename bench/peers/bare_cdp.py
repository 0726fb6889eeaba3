"""The floor of a submit by a page: one CDP message over the websocket of an open page.

A real program could not do this. It enables no CDP domain, so it sees neither a redirect to the
login nor a crashed page; it blocks while it waits; and it takes the form's answer by replacing the
page's `fetch`. The websocket frames are written here, so that no library's cost is measured. Its
Chromium has the daemon's flags, as a slower one would be no floor.
"""

from __future__ import annotations

import base64
import http.client
import json
import os
import socket
import struct
from collections.abc import Mapping, Sequence
from typing import Any, Final

from bench.peers.playwright_kept import CHUNK, FETCH, QUERY, Method, Row, rows_of

TEXT: Final = 0x81
"""First byte of a frame that is a whole text message (RFC 6455 section 5.2)."""
MASKED: Final = 0x80
TWO_BYTES, EIGHT_BYTES = 126, 127
PATIENCE: Final = 30.0

SHOWN: Final = """\
new Promise((resolve) => {
  const look = () => document.querySelector("textarea") ? resolve() : setTimeout(look, 20);
  look();
})"""

FORM: Final = """\
async ({ links, subIds }) => {
  const set = (selector, value) => {
    const field = document.querySelector(selector);
    const { set } = Object.getOwnPropertyDescriptor(Object.getPrototypeOf(field), "value");
    set.call(field, value);
    field.dispatchEvent(new Event("input", { bubbles: true }));
  };
  const { fetch } = window;
  const answer = new Promise((resolve) => {
    window.fetch = async (...call) => {
      const response = await fetch(...call);
      resolve(response.clone().json());
      return response;
    };
  });
  set("textarea", links.join("\\n"));
  Object.values(subIds).forEach((value, n) => set(`#customLink_sub_id${n + 1}`, value));
  await new Promise((resolve) => setTimeout(resolve));  // for the page to take them over
  document.querySelector("form button").click();
  try {
    return await answer;
  } finally {
    window.fetch = fetch;
  }
}"""


class CdpPage:
    """One account's open page."""

    def __init__(self, method: Method, line: socket.socket) -> None:
        self._function = FORM if method == "form" else FETCH
        self._line = line
        self._received = line.makefile("rb")
        self._number = 0
        self._world = ""

    @classmethod
    def open(cls, portal: str, cookies: Mapping[str, str], method: Method, port: int) -> CdpPage:
        """Open a page in the Chromium whose DevTools listen at `port`."""
        target = _ask(port, "PUT", "/json/new?about:blank")["id"]
        bare = cls(method, socket.create_connection(("127.0.0.1", port), timeout=PATIENCE))
        bare._open_websocket(f"/devtools/page/{target}", port)
        each = [{"name": name, "value": value, "url": portal} for name, value in cookies.items()]
        bare._call("Network.setCookies", {"cookies": each})
        bare._call("Page.navigate", {"url": f"{portal}/offer/custom_link"})
        bare._evaluate(SHOWN)
        bare._world = bare._evaluate("globalThis")["objectId"]
        return bare

    async def convert(self, links: Sequence[str], sub_ids: Sequence[str]) -> list[Row]:
        """Return the portal's rows for the links, in their order."""
        named = {f"subId{n}": value for n, value in enumerate(sub_ids, start=1)}
        rows: list[Row] = []
        for start in range(0, len(links), CHUNK):
            given = {"query": QUERY, "links": links[start : start + CHUNK], "subIds": named}
            found = self._call(
                "Runtime.callFunctionOn",
                {
                    "functionDeclaration": self._function,
                    "objectId": self._world,
                    "arguments": [{"value": given}],
                    "awaitPromise": True,
                    "returnByValue": True,
                },
            )
            rows += rows_of(found["result"]["value"])
        return rows

    async def settle(self) -> None:
        """Do nothing: the results do not cover the form for a script that uses CDP alone."""

    async def close(self) -> None:
        self._received.close()
        self._line.close()

    def _open_websocket(self, path: str, port: int) -> None:
        key = base64.b64encode(os.urandom(16)).decode()
        self._line.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._line.sendall(
            f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n"
            "Upgrade: websocket\r\nConnection: Upgrade\r\n"
            f"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: {key}\r\n\r\n".encode()
        )
        while self._received.readline().strip():
            pass

    def _evaluate(self, expression: str) -> dict[str, Any]:
        """Evaluate an expression, await its promise, and return the remote object."""
        asked = {"expression": expression, "awaitPromise": True}
        found: dict[str, Any] = self._call("Runtime.evaluate", asked)["result"]
        return found

    def _call(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        """Send a CDP command and return its result."""
        self._number += 1
        text = json.dumps({"id": self._number, "method": method, "params": params}).encode()
        if len(text) < TWO_BYTES:
            size = bytes([MASKED | len(text)])
        else:
            size = bytes([MASKED | TWO_BYTES]) + struct.pack(">H", len(text))
        self._line.sendall(bytes([TEXT]) + size + bytes(4) + text)  # the mask is zero
        while True:
            answer = json.loads(self._message())
            if answer.get("id") == self._number:
                result: dict[str, Any] = answer["result"]
                return result

    def _message(self) -> bytes:
        _, size = self._received.read(2)
        if size == TWO_BYTES:
            (size,) = struct.unpack(">H", self._received.read(2))
        elif size == EIGHT_BYTES:
            (size,) = struct.unpack(">Q", self._received.read(8))
        return self._received.read(size)


def _ask(port: int, method: str, path: str) -> Any:
    """Return the JSON of DevTools' answer."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE)
    connection.request(method, path)
    told = json.loads(connection.getresponse().read())
    connection.close()
    return told
