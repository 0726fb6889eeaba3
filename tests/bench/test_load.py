"""The load: it counts whole answers, and does not take another answer for the expected one."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from bench.load import LoadFailed, Request, load


class _Answers(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        body = b"x" * 100_000
        self.send_response(200 if self.path == "/" else 404)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


class _Server(ThreadingHTTPServer):
    def handle_error(self, *_: object) -> None:
        """The load cuts its connections when it is over."""


@contextmanager
def _server() -> Iterator[str]:
    with _Server(("127.0.0.1", 0), _Answers) as server:
        serving = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        serving.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            serving.join()


def test_answers_in_many_pieces_are_counted_whole() -> None:
    with _server() as url:
        answered = load([Request(f"{url}/")], connections=2, seconds=0.2)
    assert answered.rate > 1
    assert 0 < answered.p50 <= answered.p99 < 0.2


def test_another_status_is_a_failure() -> None:
    with _server() as url, pytest.raises(LoadFailed, match="404"):
        load([Request(f"{url}/"), Request(f"{url}/elsewhere")], connections=2, seconds=0.2)
