"""The addresses of crews, and the errors at paths without an operation."""

from __future__ import annotations

import json
import logging
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from tests.api.crews.conftest import FakeExecutor, ServedCrews

ID = "3f1e2d0c-6a5b-4c8d-9e7f-0a1b2c3d4e5f"

ALLOWED = {
    "/": "GET, HEAD",
    "/inputs": "GET, HEAD",
    "/kickoff": "POST",
    f"/status/{ID}": "GET, HEAD",
    f"/{ID}/status": "GET, HEAD",
    "/executions": "GET, HEAD",
    f"/stop/{ID}": "POST",
    f"/events/{ID}": "GET, HEAD",
    "/resume": "POST",
}
WHERE = ["under", "root", "own"]


def body_of(raw: bytes) -> tuple[int, Any]:
    """Return the status and the JSON of an answer."""
    head, _, body = raw.partition(b"\r\n\r\n")
    assert b"content-type: application/json" in head.lower()
    return int(head.split()[1]), json.loads(body)


# Paths that answer


@pytest.mark.parametrize("where", ["root", "own"])
async def test_path_with_a_double_slash_is_served(served: ServedCrews, where: str) -> None:
    """`GET /api/crews` shows the address `/`, so a client may request `//inputs`."""
    for token, status in ((served.token, 200), ("", 401)):
        answer = await served.at(where).ask_raw("GET", "//inputs", f"Bearer {token}")
        told, body = body_of(answer)
        assert told == status
        assert set(body) == ({"inputs"} if token else {"error", "message"})


# Paths that do not answer


async def test_unknown_path_is_404_in_the_crews_shape(served: ServedCrews) -> None:
    for path in [
        "/nothing",
        "/inputs/",
        "/Inputs",
        "/status",
        "/status/",
        f"/status/{ID}/",
        f"/{ID}",
        "/stop",
        "/events/a/b",
        "/docs",
        "/openapi.json",
        "/api/health",
        "/%ff",
        "/inputs;x",
        "/a/../inputs",
    ]:
        for where in ["under", "own"]:
            at = served.at(where)
            base = at.url.partition(str(at.port))[2]
            for method in ("GET", "POST", "OPTIONS", "BREW"):
                answer = await at.ask_raw(method, f"{base}{path}", f"Bearer {served.token}")
                status, body = body_of(answer)
                assert status == 404, (where, path)
                assert body["error"] == "Not Found", (where, path)
                assert set(body) == {"error", "message"}, (where, path)


async def test_wrong_method_is_405_with_allow(served: ServedCrews) -> None:
    for path, allowed in ALLOWED.items():
        for where in WHERE:
            for method in ("GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "BREW"):
                if method in allowed:
                    continue
                for token in ("", served.token):
                    answer = await served.at(where).ask(method, path, token)
                    assert answer.status_code == 405, (method, where, path)
                    assert answer.headers["Allow"] == allowed, (where, path, allowed)
                    assert answer.json()["error"] == "Method Not Allowed", (where, path, allowed)


async def test_head_answers_as_get_without_a_body(
    served: ServedCrews, executor: FakeExecutor
) -> None:
    kickoff_id = executor.add().id
    of_one = (f"/status/{kickoff_id}", f"/{kickoff_id}/status")
    for path in ("", "/", "/inputs", "/executions", *of_one):
        for where in WHERE:
            head, get = [
                await served.at(where).ask(method, path, served.token) for method in ("HEAD", "GET")
            ]
            assert head.status_code == get.status_code == 200, (where, path)
            assert head.content == b"", (where, path)
            assert head.headers["Content-Type"] == get.headers["Content-Type"], (where, path)
            # Without a token the root is the owner's page.
            if where != "root" or len(path) > 1:
                assert (await served.at(where).ask("HEAD", path)).status_code == 401, (where, path)


async def test_paths_of_the_affiliate_service_keep_their_error_shape(served: ServedCrews) -> None:
    for method, path, status in [
        ("GET", "/nothing", 404),
        ("GET", "/crews", 404),
        ("GET", f"/status/{ID}/x", 404),
        ("GET", "/kickoff/", 404),
        ("POST", "/api/health", 405),
        ("POST", "/api/status", 405),
        ("GET", "/api/convert", 405),
        ("GET", "/api/nothing", 404),
        ("POST", "/docs", 405),
    ]:
        answer = await served.main.ask(method, path)
        assert answer.status_code == status, path
        assert set(answer.json()) == {"ok", "error"}, path


# Failures of the connection


async def test_refusal_of_an_unreadable_request_has_both_error_shapes(served: ServedCrews) -> None:
    for rest, expected in [
        (f"Host: a\r\nA: {'x' * 20_000}\r\n\r\n", 431),
        (f"Host: a\r\nA: {'x' * 90_000}", 431),
        ("Host: a\r\nContent-Length: abc\r\n\r\n", 400),
        ("A: b\r\n\r\n", 400),
        ("Host: a\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n", 400),
    ]:
        for path in ("/crews/alpha/inputs?a=b", "/executions", "/api/status", "/nothing"):
            request = f"POST {path} HTTP/1.1\r\n{rest}".encode()
            status, body = body_of(await served.main.raw(request))
            assert (status, set(body)) == (expected, {"ok", "error", "message"}), (path, rest)
            assert body["ok"] is False


@pytest.mark.parametrize("where", WHERE)
async def test_bug_is_500_with_one_log_record(
    served: ServedCrews, executor: FakeExecutor, caplog: pytest.LogCaptureFixture, where: str
) -> None:
    executor.refusal = ZeroDivisionError("secret")
    answer = await served.at(where).get("/executions", served.token)
    assert answer.status_code == 500
    assert answer.json() == {
        "error": "Internal Server Error",
        "message": "internal error; the daemon's log has it",
    }
    (record,) = [each for each in caplog.records if each.levelno >= logging.ERROR]
    assert record.getMessage().endswith("/executions failed")
