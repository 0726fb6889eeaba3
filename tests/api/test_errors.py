"""Bugs, and actors that are down: the client's error, and a log without secrets."""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
import trio
from trio.testing import MockClock

from smartlinkd.api.routes import convert as convert_route
from smartlinkd.auth.actor import Auth
from smartlinkd.conversion.service import ConversionService
from smartlinkd.errors import Invalid, Unavailable
from smartlinkd.logs import JsonFormatter
from smartlinkd.vault.actor import Vault
from tests.api.client import answer_in_time
from tests.api.conftest import crash

if TYPE_CHECKING:
    from tests.api.conftest import Daemon, Start

PASSWORD = "correct horse battery staple"
COOKIE = "SPC_U=4711; SPC_EC=.secret-ec; SPC_ST=.secret-st; csrftoken=secret-csrf"
SYNC_KEY = "key-for-the-extension-0123456789"
OWN = ("smartlinkd", "quart", "hypercorn")


def raising(error: BaseException) -> Callable[..., Any]:
    """Return a method that raises `error`."""

    async def broken(*_: object) -> None:
        raise error

    return broken


# Bugs


async def nested(*_: object) -> None:
    """Raise from tasks in nested nurseries."""
    async with trio.open_nursery() as outer, trio.open_nursery() as inner:
        inner.start_soon(raising(ZeroDivisionError("x")))
        outer.start_soon(raising(OSError("x")))


@pytest.mark.parametrize(
    "broken",
    [
        raising(ZeroDivisionError("x")),
        raising(trio.TooSlowError()),
        nested,
    ],
    ids=["a bug", "a deadline", "tasks"],
)
async def test_bug_is_500_and_logged_with_its_traceback(
    daemon: Daemon,
    token: str,
    broken: Callable[..., Any],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(ConversionService, "convert", broken)
    answer = await daemon.convert(token, "https://example.org/")
    assert answer.status_code == 500
    assert answer.json() == {"ok": False, "error": "internal error; the daemon's log has it"}
    (record,) = [record for record in caplog.records if record.levelno >= logging.ERROR]
    assert record.getMessage() == "POST /api/convert failed"
    assert "in broken" in JsonFormatter().format(record)
    assert (await daemon.get("/api/health")).status_code == 200


@pytest.mark.parametrize(
    ("refusals", "status"),
    [
        ([Invalid("no")], 400),
        ([Unavailable("no", retry_after=3)], 503),
        ([ExceptionGroup("y", [Invalid("no")])], 400),
    ],
)
async def test_refusal_in_an_exception_group_is_a_refusal(
    daemon: Daemon,
    token: str,
    monkeypatch: pytest.MonkeyPatch,
    refusals: list[Exception],
    status: int,
) -> None:
    monkeypatch.setattr(ConversionService, "convert", raising(ExceptionGroup("x", refusals)))
    answer = await daemon.convert(token, "https://example.org/")
    assert (answer.status_code, answer.json()["error"]) == (status, "no")


async def test_bug_shows_no_secret_to_client_or_log(
    start: Start, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    daemon = await start(links={"source": "browser"}, browser={"executable": "/nowhere/x"})
    token = await daemon.login()
    monkeypatch.setattr(convert_route, "parse_cookie", lambda _: 1 // 0)
    answer = await daemon.convert(token, "https://example.org/", cookie=COOKIE)
    assert answer.status_code == 500
    ours = [record for record in caplog.records if record.name.startswith(OWN)]
    seen = "\n".join([answer.text, *map(JsonFormatter().format, ours)])
    assert "ZeroDivisionError" in seen
    assert "secret-" not in seen
    assert token not in seen


# Actors


@pytest.mark.parametrize(
    ("part", "method", "call"),
    [
        ("auth", (Auth, "check_session"), ("GET", "/api/status", None)),
        ("vault", (Vault, "current"), ("GET", "/api/sync-cookie", None)),
        (
            "conversion",
            (ConversionService, "convert"),
            ("POST", "/api/convert", {"links": ["x"]}),
        ),
    ],
    ids=["auth", "vault", "conversion"],
)
async def test_part_that_fails_is_503_and_comes_back(
    start: Start,
    caplog: pytest.LogCaptureFixture,
    part: str,
    method: tuple[type, str],
    call: tuple[str, str, object],
) -> None:
    daemon = await start()
    token = await daemon.login()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(*method, crash("x"))
        answer = await daemon.ask(*call, token=token)
    assert answer.status_code == 503
    assert answer.json()["error"].startswith(f"the {part} part of the daemon restarted while")
    assert int(answer.headers["Retry-After"]) >= 1
    # The next call waits for the next instance. The session is still valid.
    assert (await daemon.ask(*call, token=token)).status_code == 200
    errors = [record for record in caplog.records if record.levelno >= logging.ERROR]
    assert [record.getMessage() for record in errors] == [f"{part} failed"]


@pytest.mark.usefixtures("slow_restarts")
@pytest.mark.parametrize(
    ("part", "call"),
    [
        ("auth", ("GET", "/api/status", None)),
        ("auth", ("POST", "/api/auth/login", {"password": PASSWORD})),
        ("vault", ("POST", "/api/sync-cookie", {"cookie": COOKIE})),
        ("vault", ("POST", "/api/convert", {"links": ["x"]})),
    ],
    ids=["admitted", "asked", "told", "asked at the beginning"],
)
async def test_part_that_does_not_come_back_is_503_in_time(
    start: Start,
    mock_clock: MockClock,
    monkeypatch: pytest.MonkeyPatch,
    part: str,
    call: tuple[str, str, object],
) -> None:
    daemon = await start(cookie={"open_to": [], "sync_key": SYNC_KEY})
    token = await daemon.login()
    looks = {"auth": (Auth, "check_session"), "vault": (Vault, "current")}
    with monkeypatch.context() as broken:
        broken.setattr(*looks[part], crash("x"))
        assert (await daemon.get("/api/sync-cookie", token=token)).status_code == 503
    answer = await answer_in_time(mock_clock, partial(daemon.ask, *call, token=token))
    assert answer.status_code == 503
    assert answer.json()["error"].startswith("a part of the daemon is being restarted")
    assert int(answer.headers["Retry-After"]) >= 1


async def test_other_parts_go_on_while_auth_is_down(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    daemon = await start(cookie={"sync_key": SYNC_KEY})
    monkeypatch.setattr(Auth, "check_session", crash("x"))
    await daemon.get("/api/status", token="x")
    assert (await daemon.get("/api/health")).status_code == 200
    assert (await daemon.get("/livez")).status_code == 200
    assert (await daemon.post("/api/sync-cookie", {"cookie": COOKIE})).status_code == 200
    answer = await daemon.get("/api/sync-cookie", token=SYNC_KEY, Host="evil.example")
    assert answer.json()["cookie"] == COOKIE
