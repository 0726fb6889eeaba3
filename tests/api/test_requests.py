"""What a request may look like at all: bodies, sizes, paths, methods, CORS.

| promised | test |
|---|---|
| seed 4 and 7, the failure body | the check of every answer (`conftest.Conformity`) |
| seed 7, 400: body invalid | `test_this_body_is_400[…]` |
| contract, naming the field | `test_a_field_that_is_missing_is_named[…]`, `…_of_another_type_…` |
| contract, wrong content type | `test_another_content_type_is_400[…]` |
| contract, unknown fields are ignored | `test_unknown_fields_are_ignored` |
| contract, 1 MiB limit → 413 | `test_a_body_over_the_limit_is_413[…]`, `…_just_under_…` |
| … and time for it to arrive | `test_a_body_may_take_longer_to_arrive_than_its_answer` |
| contract, the caller comes before the body | `test_without_a_token_nothing_is_said_of_the_body` |
| contract, unknown path → 404 | `test_an_unknown_path_is_404[…]` |
| contract, wrong method → 405 with `Allow` | `test_another_method_is_405[…]` |
| contract, OPTIONS too | `test_options_is_405[…]` |
| contract, but for the extension's preflight | `test_the_extension_may_ask_first[…]` |
| contract, no CORS but for its origin | `test_cors_is_for_the_extension_alone[…]` |
| contract, no CORS at all by default | `test_there_is_no_cors_by_default[…]` |
| HEAD (RFC 9110, 9.3.2) | `test_head_is_get_without_a_body[…]` |
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from smartlinkd.http_server.app import BODY_SECONDS

if TYPE_CHECKING:
    from tests.api.conftest import Daemon, Start

MIB = 1024 * 1024
EXTENSION = "chrome-extension://abcdefghijklmnopabcdefghijklmnop"
OTHER_EXTENSION = "chrome-extension://ponmlkjihgfedcbaponmlkjihgfedcba"
COOKIE = "SPC_U=4711; SPC_EC=.ec-of-4711"

BODIES: dict[str, dict[str, Any]] = {
    "/api/auth/login": {"password": "p"},
    "/api/auth/verify-mfa": {"tempToken": "t", "code": "123456"},
    "/api/auth/2fa/enable": {"secret": "s", "code": "123456"},
    "/api/auth/2fa/disable": {"code": "123456"},
    "/api/sync-cookie": {"cookie": COOKIE},
    "/api/sync-cookie-local": {"cookie": COOKIE},
    "/api/convert": {"links": ["x"]},
}
"""What each operation with a body needs."""

OPTIONAL: dict[str, dict[str, Any]] = {
    "/api/sync-cookie": {"accountName": "a"},
    "/api/sync-cookie-local": {"accountName": "a"},
    "/api/convert": {"subIds": ["a"], "cookie": COOKIE},
}


# Bodies


@pytest.mark.parametrize(
    ("body", "error"),
    [
        (b"", "the body is empty"),
        (b"   ", "the body is empty"),
        (b"{", "not valid JSON"),
        (b"password=x", "not valid JSON"),
        (b'{"password": "x"} {}', "not valid JSON"),
        (b"[]", "must be an object"),
        (b'"x"', "must be an object"),
        (b"null", "must be an object"),
        (b"1", "must be an object"),
        (b'{"password": "\xff\xfe"}', "not valid JSON"),
        ('{"password": "x"}'.encode("utf-16"), "the body is UTF-16"),
        (b'{"password": "\xed\xa0\x80"}', "not valid JSON"),
        (b'{"password": "\\ud800\xff"}', "not valid JSON"),
        (b"[" * 200_000, "not valid JSON"),
        (b'{"password":' * 80_000, "not valid JSON"),
        (b'{"password": {"a": ' + b"[" * 5_000 + b"]" * 5_000 + b"}}", ""),
    ],
    ids=[
        "empty",
        "blank",
        "cut short",
        "a form's",
        "two objects",
        "an array",
        "a string",
        "null",
        "a number",
        "not UTF-8",
        "UTF-16",
        "a surrogate in UTF-8",
        "an escaped surrogate and no UTF-8",
        "nested arrays",
        "nested objects",
        "nested in a field",
    ],
)
async def test_this_body_is_400(daemon: Daemon, body: bytes, error: str) -> None:
    answer = await daemon.post("/api/auth/login", body)
    assert answer.status_code == 400
    assert error in answer.json()["error"]


@pytest.mark.parametrize("path", BODIES)
async def test_a_field_that_is_missing_is_named(daemon: Daemon, token: str, path: str) -> None:
    for name in BODIES[path]:
        body = {key: value for key, value in BODIES[path].items() if key != name}
        answer = await daemon.post(path, body, token=token)
        assert answer.status_code == 400, name
        assert answer.json()["error"] == f"{name}: is missing"


@pytest.mark.parametrize("path", BODIES)
async def test_a_field_of_another_type_is_named(daemon: Daemon, token: str, path: str) -> None:
    whole = BODIES[path] | OPTIONAL.get(path, {})
    for name in whole:
        for wrong in (1, True, {"a": "b"}, [1]):
            answer = await daemon.post(path, whole | {name: wrong}, token=token)
            assert answer.status_code == 400, (name, wrong)
            assert answer.json()["error"].startswith((f"{name}: must be ", f"{name}.0: must be "))


@pytest.mark.parametrize("path", BODIES)
async def test_null_is_no_value_for_what_is_required(daemon: Daemon, token: str, path: str) -> None:
    for name in BODIES[path]:
        answer = await daemon.post(path, BODIES[path] | {name: None}, token=token)
        assert answer.status_code == 400, name
        assert answer.json()["error"].startswith(f"{name}: must be ")


async def test_all_faults_are_told_at_once(daemon: Daemon, token: str) -> None:
    body = {"links": "x", "subIds": ["a", 2]}
    answer = await daemon.post("/api/convert", body, token=token)
    assert answer.json()["error"] == "links: must be an array; subIds.1: must be a string"


async def test_unknown_fields_are_ignored(daemon: Daemon) -> None:
    body = {"password": "correct horse battery staple", "Password": 1, "remember": True, "": None}
    assert (await daemon.post("/api/auth/login", body)).status_code == 200


async def test_so_are_our_own_names_of_fields(daemon: Daemon, token: str) -> None:
    """Both spellings are promised for a crew's API, and nowhere else."""
    body = {"links": ["https://nowhere.example/x"], "sub_ids": 5}
    assert (await daemon.post("/api/convert", body, token=token)).status_code == 200
    body = {"temp_token": "x", "code": "123456"}
    answer = await daemon.post("/api/auth/verify-mfa", body)
    assert answer.status_code == 400
    assert answer.json()["error"] == "tempToken: is missing"


async def test_a_value_is_never_repeated(daemon: Daemon) -> None:
    for body in (b'{"password": ["hunter2"]}', b'{"password": "hunter2}', b'"hunter2"'):
        answer = await daemon.post("/api/auth/login", body)
        assert answer.status_code == 400
        assert "hunter2" not in answer.text


OTHER_TYPES = [
    "text/plain",
    "application/x-www-form-urlencoded",
    "multipart/form-data; boundary=x",
    "json",
]


@pytest.mark.parametrize("path", BODIES)
async def test_another_content_type_is_400(daemon: Daemon, token: str, path: str) -> None:
    body = json.dumps(BODIES[path]).encode()
    for content_type in OTHER_TYPES:
        answer = await daemon.post(path, body, token=token, Content_Type=content_type)
        assert answer.status_code == 400, content_type
        assert answer.json()["error"] == 'Content-Type: must be "application/json"'


async def test_no_content_type_is_400(daemon: Daemon) -> None:
    request = (
        b"POST /api/auth/login HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
        b'Content-Length: 17\r\n\r\n{"password": "x"}'
    )
    assert (await daemon.raw(request)).startswith(b"HTTP/1.1 400 ")


@pytest.mark.parametrize("content_type", ["application/json; charset=utf-8", "APPLICATION/JSON"])
async def test_json_is_spelt_in_several_ways(daemon: Daemon, content_type: str) -> None:
    body = b'{"password": "correct horse battery staple"}'
    answer = await daemon.post("/api/auth/login", body, Content_Type=content_type)
    assert answer.status_code == 200


@pytest.mark.parametrize("path", BODIES)
async def test_a_body_over_the_limit_is_413(daemon: Daemon, token: str, path: str) -> None:
    answer = await daemon.post(path, b" " * (MIB + 1), token=token)
    assert answer.status_code == 413
    assert f"the {MIB} bytes that server.max_body allows" in answer.json()["error"]


async def test_a_body_just_under_the_limit_is_read(daemon: Daemon) -> None:
    body = json.dumps({"password": "correct horse battery staple"}).encode().ljust(MIB)
    assert (await daemon.post("/api/auth/login", body)).status_code == 200


async def test_the_limit_holds_for_a_body_of_unknown_length(daemon: Daemon) -> None:
    chunk = b"10000\r\n" + b" " * 0x10000 + b"\r\n"
    request = (
        b"POST /api/auth/login HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        b"Transfer-Encoding: chunked\r\nConnection: close\r\n\r\n"
    )
    answer = await daemon.raw(request + chunk * 17 + b"0\r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 413 ")
    assert json.loads(answer.partition(b"\r\n\r\n")[2])["ok"] is False


async def test_the_limit_is_the_configured_one(start: Start) -> None:
    daemon = await start(server={"max_body": 2048})
    assert (await daemon.post("/api/auth/login", b" " * 2049)).status_code == 413
    assert (await daemon.post("/api/auth/login", b" " * 2048)).status_code == 400


async def test_without_a_token_nothing_is_said_of_the_body(daemon: Daemon) -> None:
    for body in (b"{", b'{"links": 1}', b" " * (MIB + 1)):
        assert (await daemon.post("/api/convert", body)).status_code == 403


# Paths and methods


@pytest.mark.parametrize(
    "path",
    ["/api", "/api/auth/login/", "/api//health", "/API/HEALTH", "/%ff",
     "/api/health%00", "/favicon.ico", "/static/x", "/api/auth/../health", "/api/health;x",
     "/%0d%0aX-Header:%20x", "/crews", "/inputs"],
)  # fmt: skip
async def test_an_unknown_path_is_404(daemon: Daemon, path: str) -> None:
    request = f"GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
    head, _, body = (await daemon.raw(request.encode())).partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 404 ")
    assert json.loads(body)["ok"] is False


async def test_an_unknown_path_is_404_by_any_method(daemon: Daemon) -> None:
    for method in ("POST", "PUT", "DELETE", "OPTIONS", "TRACE", "BREW"):
        assert (await daemon.ask(method, "/api/nothing")).status_code == 404


ALLOWED = {
    **dict.fromkeys(BODIES, "POST"),
    "/api/auth/2fa/setup": "GET",
    **dict.fromkeys(
        ("/api/health", "/livez", "/readyz", "/api/status", "/metrics",
         "/openapi.json", "/docs"),
        "GET, HEAD",
    ),
    "/api/sync-cookie": "GET, HEAD, POST",
}  # fmt: skip


@pytest.mark.parametrize(("path", "allowed"), ALLOWED.items(), ids=ALLOWED)
async def test_another_method_is_405(daemon: Daemon, path: str, allowed: str) -> None:
    for method in ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "TRACE", "BREW"):
        if method not in allowed:
            answer = await daemon.ask(method, path)
            assert answer.status_code == 405, method
            assert answer.headers["Allow"] == allowed


@pytest.mark.parametrize(("path", "allowed"), ALLOWED.items(), ids=ALLOWED)
async def test_options_is_405(daemon: Daemon, path: str, allowed: str) -> None:
    answer = await daemon.ask("OPTIONS", path)
    assert answer.status_code == 405
    assert answer.headers["Allow"] == allowed


@pytest.mark.parametrize("path", [path for path in ALLOWED if "HEAD" in ALLOWED[path]])
async def test_head_is_get_without_a_body(daemon: Daemon, token: str, path: str) -> None:
    head, get = [await daemon.ask(method, path, token=token) for method in ("HEAD", "GET")]
    assert head.status_code == get.status_code == 200
    assert head.content == b""
    assert head.headers["Content-Type"] == get.headers["Content-Type"]


async def test_head_wants_a_token_where_get_does(daemon: Daemon) -> None:
    assert (await daemon.ask("HEAD", "/api/status")).status_code == 403


# The extension


PREFLIGHT = {
    "Origin": EXTENSION,
    "Access_Control_Request_Method": "POST",
    "Access_Control_Request_Headers": "authorization,content-type",
}


@pytest.mark.parametrize(
    ("path", "methods"),
    [("/api/sync-cookie", "GET, HEAD, POST"), ("/api/sync-cookie-local", "POST")],
)
async def test_the_extension_may_ask_first(
    start: Start, path: str, methods: str, caplog: pytest.LogCaptureFixture
) -> None:
    daemon = await start(cookie={"extension_origins": [OTHER_EXTENSION, EXTENSION]})
    answer = await daemon.ask("OPTIONS", path, **PREFLIGHT)
    assert answer.status_code == 204
    assert answer.content == b""
    assert answer.headers["Access-Control-Allow-Origin"] == EXTENSION
    assert answer.headers["Access-Control-Allow-Methods"] == methods
    assert answer.headers["Access-Control-Allow-Headers"] == "Authorization, Content-Type"
    assert "Access-Control-Allow-Credentials" not in answer.headers
    assert "Content-Length" not in answer.headers  # RFC 9110, section 8.6
    assert "Origin" in answer.headers["Vary"]
    assert not [record for record in caplog.records if record.levelname == "ERROR"]


@pytest.mark.parametrize(
    ("path", "headers"),
    [
        ("/api/sync-cookie", PREFLIGHT | {"Origin": OTHER_EXTENSION}),
        ("/api/sync-cookie", PREFLIGHT | {"Origin": "https://evil.example"}),
        ("/api/sync-cookie", PREFLIGHT | {"Origin": "null"}),
        ("/api/sync-cookie", PREFLIGHT | {"Origin": EXTENSION + ".evil.example"}),
        ("/api/sync-cookie", {"Origin": EXTENSION}),
        ("/api/sync-cookie", {"Access_Control_Request_Method": "POST"}),
        ("/api/convert", PREFLIGHT),
        ("/api/auth/login", PREFLIGHT),
    ],
    ids=[
        "another extension",
        "a web page",
        "null",
        "a lookalike",
        "no preflight",
        "no origin",
        "convert",
        "login",
    ],
)
async def test_options_stays_405_for_the_rest(
    start: Start, path: str, headers: dict[str, str]
) -> None:
    daemon = await start(cookie={"extension_origins": [EXTENSION]})
    answer = await daemon.ask("OPTIONS", path, **headers)
    assert answer.status_code == 405
    assert answer.headers["Allow"] == ALLOWED[path]


SAFARI = "safari-web-extension://0B2A7AC6-6D4F-4A3E-9C0A-0123456789AB"


@pytest.mark.parametrize("named", [SAFARI, SAFARI.lower()])
@pytest.mark.parametrize("sent", [SAFARI, SAFARI.lower()])
async def test_safari_extension_that_is_named_in_any_letters_may_sync(
    start: Start, named: str, sent: str
) -> None:
    daemon = await start(cookie={"extension_origins": [named]})
    asked = await daemon.ask("OPTIONS", "/api/sync-cookie", **PREFLIGHT | {"Origin": sent})
    answer = await daemon.ask("POST", "/api/sync-cookie", {"cookie": COOKIE}, Origin=sent)
    assert (asked.status_code, answer.status_code) == (204, 200)
    for each in (asked, answer):
        assert each.headers["Access-Control-Allow-Origin"] == sent


async def test_a_preflight_is_no_method_that_a_path_takes(start: Start) -> None:
    daemon = await start(cookie={"extension_origins": [EXTENSION]})
    for path in ("/api/sync-cookie", "/api/sync-cookie-local"):
        assert (await daemon.ask("PUT", path)).headers["Allow"] == ALLOWED[path]


@pytest.mark.parametrize(
    ("method", "path", "body", "status"),
    [
        ("POST", "/api/sync-cookie", {"cookie": COOKIE}, 200),
        ("POST", "/api/sync-cookie", {"cookie": ""}, 400),
        ("POST", "/api/sync-cookie", {"cookie": "a" * 5000}, 413),
        ("GET", "/api/sync-cookie", None, 200),
        ("PUT", "/api/sync-cookie", None, 405),
    ],
)
async def test_the_extension_reads_the_answer(
    start: Start, method: str, path: str, body: object, status: int
) -> None:
    daemon = await start(cookie={"extension_origins": [EXTENSION]}, server={"max_body": 4096})
    answer = await daemon.ask(method, path, body, Origin=EXTENSION)
    assert answer.status_code == status
    assert answer.headers["Access-Control-Allow-Origin"] == EXTENSION
    assert answer.headers["Access-Control-Expose-Headers"] == "Retry-After, X-Request-Id"


async def test_the_extension_reads_that_it_needs_a_key(start: Start) -> None:
    daemon = await start(cookie={"extension_origins": [EXTENSION], "open_to": []})
    answer = await daemon.get("/api/sync-cookie", Origin=EXTENSION)
    assert answer.status_code == 403
    assert answer.headers["Access-Control-Allow-Origin"] == EXTENSION


@pytest.mark.parametrize(
    ("origin", "path"),
    [
        (OTHER_EXTENSION, "/api/sync-cookie"),
        ("https://evil.example", "/api/sync-cookie"),
        (EXTENSION, "/api/health"),
        (EXTENSION, "/api/status"),
        (EXTENSION, "/metrics"),
    ],
)
async def test_cors_is_for_the_extension_alone(start: Start, origin: str, path: str) -> None:
    daemon = await start(cookie={"extension_origins": [EXTENSION]})
    answer = await daemon.get(path, Origin=origin)
    assert not [name for name in answer.headers if name.startswith("access-control")]


@pytest.mark.parametrize("path", ["/api/sync-cookie", "/api/sync-cookie-local", "/api/health"])
async def test_there_is_no_cors_by_default(daemon: Daemon, path: str) -> None:
    for method in ("GET", "POST", "OPTIONS"):
        answer = await daemon.ask(method, path, **PREFLIGHT)
        assert not [name for name in answer.headers if name.startswith("access-control")]
        assert method != "OPTIONS" or answer.status_code == 405


async def test_a_body_may_take_longer_to_arrive_than_its_answer(
    daemon: Daemon, mock_clock: MockClock
) -> None:
    head = "POST /api/sync-cookie HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    body = json.dumps({"cookie": COOKIE}).encode()
    async with await trio.open_tcp_stream("127.0.0.1", daemon.port) as stream:
        await stream.send_all(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body[:5])
        await wait_all_tasks_blocked()
        mock_clock.jump(BODY_SECONDS - 1)
        await wait_all_tasks_blocked()
        await stream.send_all(body[5:])
        assert (await stream.receive_some()).startswith(b"HTTP/1.1 200 ")
