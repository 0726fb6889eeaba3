"""Conversions beside a measurement: they are there when it begins, and none of them fails."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from bench.converting import NotConverted, converting
from smartlinkd.sandbox.batch import Origins

PORTAL = Origins("http://portal.example", "http://shop.example", "http://s.example")


class _Converts(BaseHTTPRequestHandler):
    """As the daemon does; `seen` are the links, and after `most` of them it has `failed`."""

    protocol_version = "HTTP/1.1"

    def __init__(
        self, seen: list[str], most: int, failed: threading.Event, *connection: Any
    ) -> None:
        self._seen, self._most, self._failed = seen, most, failed
        super().__init__(*connection)

    def do_POST(self) -> None:
        (link,) = json.loads(self.rfile.read(int(self.headers["Content-Length"])))["links"]
        made = {"failCode": 0, "shortLink": f"http://s.example/{len(self._seen)}"}
        mapping = {link: made}
        if len(self._seen) >= self._most:
            mapping = {}
            self._failed.set()
        self._seen.append(link)
        body = json.dumps({"ok": True, "mapping": mapping}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def server(seen: list[str], most: int, failed: threading.Event) -> Iterator[str]:
    answers = partial(_Converts, seen, most, failed)
    with ThreadingHTTPServer(("127.0.0.1", 0), answers) as serving:
        thread = threading.Thread(target=serving.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield f"http://127.0.0.1:{serving.server_port}"
        finally:
            serving.shutdown()
            thread.join()


def test_the_first_link_is_converted_before_the_block_begins(tmp_path: Path) -> None:
    seen: list[str] = []
    with (
        server(seen, 10**6, threading.Event()) as url,
        converting(url, "a token", PORTAL, 7000, tmp_path / "log"),
    ):
        assert seen[0].startswith("http://shop.example/")
        assert seen[0].endswith("/7000")
    assert len(set(seen)) == len(seen)


@pytest.mark.parametrize("most", [0, 1], ids=["the first", "a later one"])
def test_one_that_is_not_converted_is_told(tmp_path: Path, most: int) -> None:
    failed = threading.Event()
    with server([], most, failed) as url, pytest.raises(NotConverted, match=r"became \{}"):
        convert_until(failed, url, tmp_path / "log")


def convert_until(over: threading.Event, url: str, log: Path) -> None:
    with converting(url, "a token", PORTAL, 7000, log):
        over.wait()
