"""Row 6 measures nothing of a server that does not answer as it is meant to."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from bench.http import check_answers
from bench.load import LoadFailed
from bench.peers.answers import COOKIE, CREWS

TOKEN = {"Authorization": "Bearer good"}
AS_MEANT = {
    "/api/health": {"ok": True, "browserReady": True},
    "/api/crews": CREWS,
    "/api/sync-cookie": COOKIE,
}


class _Answers(BaseHTTPRequestHandler):
    def __init__(self, bodies: dict[str, Any], guarded: str, *connection: Any) -> None:
        self._bodies, self._guarded = bodies, guarded
        super().__init__(*connection)

    def do_GET(self) -> None:
        is_refused = self.path == self._guarded and "Authorization" not in self.headers
        body = json.dumps(self._bodies[self.path]).encode()
        self.send_response(403 if is_refused else 200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def server(guarded: str = "/api/crews", **other: Any) -> Iterator[str]:
    """`other` is what it answers otherwise, by the last word of a path."""
    bodies = {path: other.get(path[5:].replace("-", "_"), told) for path, told in AS_MEANT.items()}
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(_Answers, bodies, guarded)) as serving:
        thread = threading.Thread(target=serving.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield f"http://127.0.0.1:{serving.server_port}"
        finally:
            serving.shutdown()
            thread.join()


def test_who_answers_as_it_is_meant_to_is_measured() -> None:
    with server() as url:
        check_answers(url, TOKEN)


@pytest.mark.parametrize(
    ("other", "told"),
    [
        ({"guarded": "nothing"}, "200 without a token"),
        ({"health": {"ok": True, "browserReady": False}}, "health"),
        ({"crews": {"ok": True, "crews": []}}, "login-protected"),
        ({"sync_cookie": {"ok": True, "cookie": None}}, "cookie"),
    ],
    ids=["open to all", "no browser", "no crew", "no cookie"],
)
def test_who_does_not_is_not(other: dict[str, Any], told: str) -> None:
    with server(**other) as url, pytest.raises(LoadFailed, match=told):
        check_answers(url, TOKEN)
