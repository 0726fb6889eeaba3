"""Commands that make a key or a token, at a server that may lose the connection of each request."""

from __future__ import annotations

import io
import json
import os
import signal
import sys
from collections.abc import Iterator, Sequence
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread

import pytest

from smartlinkd.cli import main

LOGIN = "POST /api/auth/login"
LOGOUT = "POST /api/auth/logout"
KEYS = "POST /api/keys"
END_KEY = "DELETE /api/keys/self"
ROTATE = "POST /api/crews/token/rotate"
KEY = {
    "ok": True,
    "id": "1",
    "key": "slk_new",
    "name": "a bot",
    "scopes": ["convert"],
    "createdAt": "2026-11-01T00:00:00Z",
    "expiresAt": None,
}


class Server(HTTPServer):
    """A server with an answer for each route. A request for another route loses its connection."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server_port}"
        self.received: list[str] = []
        self.interrupted_by = ""
        """The route whose request Ctrl-C comes with."""
        self.answers: dict[str, tuple[int, object]] = {
            LOGIN: (200, {"ok": True, "token": "a-session", "mfaRequired": False}),
            KEYS: (200, KEY),
            ROTATE: (200, {"ok": True, "token": "slc_new"}),
        }


class Handler(BaseHTTPRequestHandler):
    server: Server

    def answer(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        route = f"{self.command} {self.path}"
        self.server.received.append(route)
        if route == self.server.interrupted_by:
            os.kill(os.getpid(), signal.SIGINT)
        if route in self.server.answers:
            status, body = self.server.answers[route]
            content = json.dumps(body).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

    do_POST = do_DELETE = answer  # noqa: N815 - the names that BaseHTTPRequestHandler calls

    def log_message(self, format: str, *args: object) -> None:
        """Write nothing."""


def running() -> Iterator[Server]:
    with Server() as server:
        thread = Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield server
        server.shutdown()
        thread.join()


server = pytest.fixture(running, name="server")
other = pytest.fixture(running, name="other")


@pytest.fixture(autouse=True)
def kept(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """The file of the login that is kept. The password is on standard input."""
    for name in ("SMARTLINKD_URL", "SMARTLINKD_KEY", "SMARTLINKD_KEY_FILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.setattr(sys, "stdin", io.StringIO("correct horse\n"))
    return tmp_path / "smartlinkd" / "login.json"


@pytest.mark.parametrize("interrupted_by", ["", LOGOUT])
@pytest.mark.parametrize(
    ("words", "printed"),
    [
        (("keys", "create", "a bot", "--scope=convert"), "slk_new"),
        (("crew", "token", "post", "--rotate"), "slc_new"),
    ],
)
def test_failed_or_interrupted_logout_does_not_hide_what_was_made(
    server: Server,
    capsys: pytest.CaptureFixture[str],
    words: Sequence[str],
    printed: str,
    interrupted_by: str,
) -> None:
    server.interrupted_by = interrupted_by
    code = main([*words, f"--server={server.url}"])
    out, err = capsys.readouterr()
    assert (code, printed in out) == (0, True), err
    assert server.received[-1] == LOGOUT


def test_failed_logout_does_not_hide_why_no_key_was_made(
    server: Server, capsys: pytest.CaptureFixture[str]
) -> None:
    server.answers[KEYS] = (409, {"ok": False, "error": "there are 100 keys already"})
    assert main(["login", f"--server={server.url}"]) == 1
    assert capsys.readouterr().err == "smartlinkd: there are 100 keys already\n"


def test_login_at_a_second_server_ends_the_key_of_the_first(
    server: Server, other: Server, kept: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.answers[END_KEY] = (200, {"ok": True})
    assert main(["login", f"--server={server.url}"]) == 0
    monkeypatch.setattr(sys, "stdin", io.StringIO("correct horse\n"))
    assert main(["login", f"--server={other.url}"]) == 0
    assert json.loads(kept.read_text())["url"] == other.url
    assert server.received[-1] == END_KEY
    assert END_KEY not in other.received


def test_key_of_the_first_server_that_cannot_be_ended_is_named(
    server: Server,
    other: Server,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["login", f"--server={server.url}"]) == 0
    monkeypatch.setattr(sys, "stdin", io.StringIO("correct horse\n"))
    capsys.readouterr()
    assert main(["login", f"--server={other.url}"]) == 0
    assert f"the key 'a bot' at {server.url} goes on" in capsys.readouterr().err
