"""Every status in `/openapi.json` is given by the daemon, operation by operation.

The other direction is checked for every answer of every test here (`conftest.Conformity`).
"""

from __future__ import annotations

from contextlib import AsyncExitStack
from datetime import UTC, datetime
from typing import TYPE_CHECKING, NoReturn

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from smartlinkd.admin.control_socket import call
from smartlinkd.api import auth_guards
from smartlinkd.auth.actor import Auth
from smartlinkd.conversion.schemas import SuccessEntry
from smartlinkd.errors import NotFound
from smartlinkd.history.actor import FILE
from smartlinkd.history.database import HistoryDatabase
from smartlinkd.history.model import HistoryLimits, Record, milliseconds
from smartlinkd.http_server import HttpLimits
from smartlinkd.http_server.app import BODY_SECONDS
from smartlinkd.http_server.places import Places
from smartlinkd.supervision.actor import Mailbox, Overloaded

if TYPE_CHECKING:
    from pathlib import Path

    from tests.api.conftest import Conformity, Daemon, Phone, Start

COOKIE = "SPC_U=4711; SPC_EC=.ec-of-4711"
RIGHT = {"password": "correct horse battery staple"}
WRONG = {"password": "wrong"}
FOREIGN = {"links": ["https://example.org/"]}
KEY = {"name": "a program", "scopes": ["cookie:write"]}

LOGIN = "POST /api/auth/login"
VERIFY = "POST /api/auth/verify-mfa"
LOGOUT = "POST /api/auth/logout"
REVOKE = "POST /api/auth/revoke"
SETUP = "GET /api/auth/2fa/setup"
ENABLE = "POST /api/auth/2fa/enable"
DISABLE = "POST /api/auth/2fa/disable"
SYNC = "POST /api/sync-cookie"
SYNC_LOCAL = "POST /api/sync-cookie-local"
STORED = "GET /api/sync-cookie"
CONVERT = "POST /api/convert"
EXTRACT = "POST /api/extract"
CONVERT_TEXT = "POST /api/convert-text"
ACCOUNT = "GET /api/account"
CLEAR = "POST /api/account/clear"
HISTORY = "GET /api/history"
HISTORY_CSV = "GET /api/history.csv"
HISTORY_DAYS = "GET /api/history-days"
DELETE_HISTORY = "DELETE /api/history"
DELETE_ENTRY = "DELETE /api/history/{id}"
LOG = "GET /api/log"
SERIES = "GET /api/series"
READY = "GET /readyz"
METRICS = "GET /metrics"
CREWS = "GET /api/crews"
CREW_TOKEN = "POST /api/crews/token"
MAKE_KEY = "POST /api/keys"
REVOKE_KEY = "DELETE /api/keys/{id}"
REVOKE_OWN_KEY = "DELETE /api/keys/self"
ROTATE = "POST /api/crews/token/rotate"


class Calls:
    """Makes calls, and in the end compares them with all that document the status.

    Crews' operations have a test of their own (`crews/test_documented_statuses.py`).
    """

    def __init__(self, daemon: Daemon, conformity: Conformity, status: int) -> None:
        self._daemon = daemon
        self._status = status
        self.missing = {
            f"{method} {path}"
            for method, path, operation in conformity.operations()
            if str(status) in operation["responses"] and not path.startswith("/crews/")
        }

    async def call(
        self,
        operation: str,
        body: object = None,
        *,
        token: str = "",
        query: str = "",
        key_id: str = "unknown",
        **headers: str,
    ) -> None:
        method, path = operation.replace("{id}", key_id).split()
        answer = await self._daemon.ask(method, path + query, body, token=token, **headers)
        assert answer.status_code == self._status, f"{operation}: {answer.text}"
        self.missing.discard(operation)

    async def call_the_rest(self, body: object = None, *, token: str = "") -> None:
        for operation in sorted(self.missing):
            await self.call(operation, body if operation.startswith("POST") else None, token=token)


def half_sent(operation: str, token: str) -> bytes:
    """A request whose body never ends."""
    return (
        f"{operation} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        f"Authorization: Bearer {token}\r\nConnection: close\r\nContent-Length: 100\r\n\r\n{{"
    ).encode()


def keep_link(state: Path) -> None:
    """Put an entry into the history of a daemon."""
    database = HistoryDatabase(state / FILE, HistoryLimits())
    made = SuccessEntry(
        short_link="https://s.shopee.vn/1",
        long_link="https://shopee.vn/product/1/2?a=b",
        product=None,
    )
    database.add(
        Record(milliseconds(datetime.now(UTC)), "owner", (), "https://shopee.vn/product/1/2", made)
    )
    database.close()


async def test_every_documented_200_is_given(
    start: Start, phone: Phone, conformity: Conformity
) -> None:
    crew = {"name": "echo", "runner": "command", "command": ["/bin/echo"]}
    daemon = await start(crews=[crew])
    token = await daemon.login()
    calls = Calls(daemon, conformity, 200)
    await calls.call(LOGIN, RIGHT)
    secret = await phone.enable(daemon, token)
    body = {"tempToken": await daemon.begin_login(), "code": phone.shows(secret)}
    await calls.call(VERIFY, body)
    await calls.call(DISABLE, {"code": phone.shows(secret, ahead=30)}, token=token)
    secret = (await daemon.get("/api/auth/2fa/setup", token=token)).json()["secret"]
    await calls.call(SETUP, token=token)
    secret = (await daemon.get("/api/auth/2fa/setup", token=token)).json()["secret"]
    await calls.call(ENABLE, {"secret": secret, "code": phone.shows(secret)}, token=token)
    await calls.call(SYNC, {"cookie": COOKIE})
    await calls.call(SYNC_LOCAL, {"cookie": COOKIE})
    await calls.call(CONVERT, FOREIGN, token=token)
    await calls.call(EXTRACT, {"text": "none"}, token=token)
    await calls.call(CONVERT_TEXT, {"text": "none"}, token=token)
    await calls.call(SERIES, query="?name=restarts", token=token)
    await calls.call(CREW_TOKEN, {"crew": "echo"}, token=token)
    await calls.call(ROTATE, {"crew": "echo"}, token=token)
    await call(daemon.state, "2fa off")
    made = (await daemon.post("/api/keys", KEY, token=token)).json()
    await calls.call(MAKE_KEY, KEY, token=token)
    await calls.call(REVOKE_KEY, token=token, key_id=made["id"])
    await calls.call(REVOKE_OWN_KEY, token=await daemon.make_key(token, "status"))
    keep_link(daemon.state)
    entries = (await daemon.get("/api/history", token=token)).json()["entries"]
    await calls.call(DELETE_ENTRY, token=token, key_id=entries[0]["id"])
    await calls.call(LOGOUT, token=await daemon.login())
    ending = await daemon.login()
    calls.missing.discard(REVOKE)
    await calls.call_the_rest(token=token)
    calls.missing.add(REVOKE)
    await calls.call(REVOKE, token=ending)
    assert not calls.missing


async def test_every_documented_400_is_given(
    daemon: Daemon, token: str, phone: Phone, conformity: Conformity
) -> None:
    await phone.enable(daemon, token)
    calls = Calls(daemon, conformity, 400)
    await calls.call(LOG, query="?level=loud", token=token)
    await calls.call(READY, query="?account=yes")
    for operation in (HISTORY, HISTORY_CSV, HISTORY_DAYS, DELETE_HISTORY):
        await calls.call(operation, query="?from=yesterday", token=token)
    await calls.call_the_rest(b"{", token=token)  # setup: because it is on
    assert not calls.missing


async def test_every_documented_401_is_given(
    daemon: Daemon, token: str, phone: Phone, conformity: Conformity
) -> None:
    calls = Calls(daemon, conformity, 401)
    await calls.call(LOGIN, WRONG)
    secret = (await daemon.get("/api/auth/2fa/setup", token=token)).json()["secret"]
    wrong = {"secret": secret, "code": phone.wrong(secret)}
    await calls.call(ENABLE, wrong, token=token)
    secret = await phone.enable(daemon, token)
    wrong = {"tempToken": await daemon.begin_login(), "code": phone.wrong(secret)}
    await calls.call(VERIFY, wrong)
    await calls.call(MAKE_KEY, KEY | {"code": phone.wrong(secret)}, token=token)
    await calls.call(DISABLE, wrong, token=token)
    assert not calls.missing


async def test_every_documented_403_is_given(start: Start, conformity: Conformity) -> None:
    calls = Calls(await start(cookie={"open_to": []}), conformity, 403)
    await calls.call(VERIFY, {"tempToken": "garbage", "code": "123456"})
    await calls.call(READY, query="?account=1")
    await calls.call_the_rest({})
    assert not calls.missing


async def test_every_documented_404_is_given(
    daemon: Daemon, token: str, conformity: Conformity, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = Calls(daemon, conformity, 404)
    await calls.call(REVOKE_KEY, token=token)
    key = await daemon.make_key(token, "status")

    async def revoked_meanwhile(*_: object) -> NoReturn:
        raise NotFound("there is none")

    with monkeypatch.context() as patch:
        patch.setattr(Auth, "revoke_key", revoked_meanwhile)
        await calls.call(REVOKE_OWN_KEY, token=key)
    await calls.call_the_rest({"crew": "nobody"}, token=token)
    assert not calls.missing


async def test_every_documented_408_is_given(
    mock_clock: MockClock, daemon: Daemon, token: str, conformity: Conformity
) -> None:
    missing = Calls(daemon, conformity, 408).missing
    assert missing
    async with AsyncExitStack() as opened:
        streams = {}
        for operation in missing:
            stream = await trio.open_tcp_stream("127.0.0.1", daemon.port)
            streams[operation] = await opened.enter_async_context(stream)
            await stream.send_all(half_sent(operation, token))
        await wait_all_tasks_blocked(0.1)
        mock_clock.jump(BODY_SECONDS)
        for operation, stream in streams.items():
            answer = b"".join([part async for part in stream])
            assert answer.startswith(b"HTTP/1.1 408 "), operation
            assert answer.endswith(b'"error":"the body did not arrive in time; send it faster"}')


async def test_every_documented_409_is_given(
    daemon: Daemon, token: str, conformity: Conformity
) -> None:
    calls = Calls(daemon, conformity, 409)
    await daemon.post("/api/sync-cookie", {"cookie": "SPC_U=4712; SPC_EC=.ec-of-4712"})
    key = await daemon.make_key(token, "cookie:write")
    await calls.call_the_rest({"cookie": COOKIE}, token=key)
    assert not calls.missing


async def test_every_documented_413_is_given(
    daemon: Daemon, token: str, conformity: Conformity
) -> None:
    calls = Calls(daemon, conformity, 413)
    await calls.call_the_rest(b" " * (1024 * 1024 + 1), token=token)
    assert not calls.missing


async def test_every_documented_429_is_given(
    mock_clock: MockClock, daemon: Daemon, token: str, phone: Phone, conformity: Conformity
) -> None:
    secret = await phone.enable(daemon, token)
    code = {"tempToken": await daemon.begin_login(), "code": phone.shows(secret)}
    for _ in range(10):
        await daemon.post("/api/auth/login", WRONG)
    calls = Calls(daemon, conformity, 429)
    await calls.call(LOGIN, RIGHT)
    await calls.call(VERIFY, code)
    await calls.call(DISABLE, code, token=token)
    await calls.call(MAKE_KEY, KEY | code, token=token)
    await call(daemon.state, "2fa off")
    secret = (await daemon.get("/api/auth/2fa/setup", token=token)).json()["secret"]
    await calls.call(ENABLE, {"secret": secret, "code": phone.shows(secret)}, token=token)
    async with AsyncExitStack() as opened:
        for _ in range(Places(HttpLimits().connections).most_of_one_token):
            stream = await trio.open_tcp_stream("127.0.0.1", daemon.port)
            await opened.enter_async_context(stream)
            await stream.send_all(half_sent(CONVERT, token))
        await wait_all_tasks_blocked()
        for operation in sorted(calls.missing):
            head, _, body = (await daemon.raw(half_sent(operation, token))).partition(b"\r\n\r\n")
            assert head.startswith(b"HTTP/1.1 429 "), operation
            assert b"\r\nretry-after: 5\r\n" in head
            assert body.startswith(b'{"ok":false,"error":"this token has 128 event streams')
            calls.missing.discard(operation)
    assert not calls.missing


async def test_every_documented_500_is_given(
    daemon: Daemon, conformity: Conformity, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fault(*_: object) -> NoReturn:
        raise ZeroDivisionError

    monkeypatch.setattr(auth_guards, "identify", fault)
    monkeypatch.setattr(auth_guards, "bearer", fault)
    calls = Calls(daemon, conformity, 500)
    await calls.call_the_rest({})
    assert not calls.missing


async def test_every_documented_502_is_given(
    daemon: Daemon, token: str, conformity: Conformity
) -> None:
    calls = Calls(daemon, conformity, 502)
    await calls.call(CONVERT, {"links": ["https://shopee.vn/product/1/2"]}, token=token)
    await calls.call(CONVERT_TEXT, {"text": "https://shopee.vn/product/1/2"}, token=token)
    assert not calls.missing


async def test_every_documented_503_is_given(
    start: Start, conformity: Conformity, monkeypatch: pytest.MonkeyPatch
) -> None:
    daemon = await start(links={"source": "browser"}, browser={"executable": "/nowhere/chromium"})
    calls = Calls(daemon, conformity, 503)
    await calls.call(READY)

    def full(*_: object) -> NoReturn:
        raise Overloaded("the queue is full", retry_after=1)

    monkeypatch.setattr(Mailbox, "ask", full)
    monkeypatch.setattr(Mailbox, "peek", full)  # as while an actor is restarted
    await calls.call(LOGIN, RIGHT)
    await calls.call(VERIFY, {"tempToken": "t", "code": "123456"})
    await calls.call(SYNC, {"cookie": COOKIE})
    await calls.call(SYNC_LOCAL, {"cookie": COOKIE})
    await calls.call(METRICS, Host="not-local.example")
    await calls.call(REVOKE_OWN_KEY, token="slk_any")
    await calls.call_the_rest(FOREIGN)
    assert not calls.missing


async def test_documented_statuses_are_the_tested_ones(
    daemon: Daemon, conformity: Conformity
) -> None:
    documented = {
        int(status)
        for _, path, operation in conformity.operations()
        for status in operation["responses"]
        if not path.startswith("/crews/")
    }
    assert documented == {200, 400, 401, 403, 404, 408, 409, 413, 429, 500, 502, 503}


async def test_documented_operations_are_the_known_ones(
    daemon: Daemon, conformity: Conformity
) -> None:
    found = {
        f"{method} {path}"
        for method, path, _ in conformity.operations()
        if not path.startswith("/crews/")
    }
    assert found == {
        LOGIN, VERIFY, LOGOUT, REVOKE, SETUP, ENABLE, DISABLE,
        SYNC, SYNC_LOCAL, STORED, CONVERT, READY,
        EXTRACT, CONVERT_TEXT, ACCOUNT, CLEAR, LOG, SERIES,
        "GET /api/health", "GET /livez", "GET /api/status", METRICS,
        HISTORY, HISTORY_CSV, HISTORY_DAYS, DELETE_HISTORY, DELETE_ENTRY,
        CREWS, CREW_TOKEN, ROTATE, MAKE_KEY, REVOKE_KEY, REVOKE_OWN_KEY, "GET /api/keys",
    }  # fmt: skip
