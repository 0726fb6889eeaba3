"""What a client sees of a bug or of a part that is down, and what the log sees.

| promised | test |
|---|---|
| seed 7, 500; contract: bug, in the failure body | `test_a_bug_is_500[…]` |
| one record with the traceback | `test_a_bug_is_500[…]` |
| nothing secret in it | `test_a_bug_tells_no_secret`, `test_no_secret_is_ever_logged` |
| seed 7 and contract, 503: a part is restarting | `test_a_part_that_fails_is_503[…]` |
| design: queued ones wait | `test_a_part_that_fails_is_503[…]` |
| design: none hang | `test_a_part_that_does_not_come_back_is_503[…]` |
| design: logins, cookies and health go on | `test_the_other_parts_go_on` |
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest
import trio

from smartlinkd.api.routes import convert as convert_route
from smartlinkd.auth.state import AuthState
from smartlinkd.conversion.service import ConversionService, _ConversionService
from smartlinkd.errors import Invalid, Unavailable
from smartlinkd.logs import JsonFormatter
from smartlinkd.patience import PATIENCE, patience
from smartlinkd.vault.actor import _Vault

if TYPE_CHECKING:
    from tests.api.conftest import Daemon, Phone, Start

PASSWORD = "correct horse battery staple"
COOKIE = "SPC_U=4711; SPC_EC=.secret-ec; SPC_ST=.secret-st; csrftoken=secret-csrf"
SYNC_KEY = "key-for-the-extension-0123456789"
OWN = ("smartlinkd", "quart", "hypercorn")


def fault(error: BaseException) -> Callable[..., Any]:
    """A method that raises."""

    async def broken(*_: object) -> None:
        raise error

    return broken


def fault_at_once(error: BaseException) -> Callable[..., Any]:
    """The same of a method that waits for nothing."""

    def broken(*_: object) -> None:
        raise error

    return broken


def text_of(caplog: pytest.LogCaptureFixture) -> str:
    """All that our loggers said, as it would be in the journal."""
    lines = JsonFormatter()
    return "\n".join(
        lines.format(record) for record in caplog.records if record.name.startswith(OWN)
    )


# Bugs


async def nested(*_: object) -> None:
    """A fault in a task of a task, as a nursery tells of it."""
    async with trio.open_nursery() as outer, trio.open_nursery() as inner:
        inner.start_soon(fault(ZeroDivisionError("x")))
        outer.start_soon(fault(OSError("x")))


@pytest.mark.parametrize(
    "broken",
    [
        fault(ZeroDivisionError("x")),
        fault(AssertionError()),
        fault(trio.TooSlowError()),
        fault(trio.BrokenResourceError("x")),
        nested,
    ],
    ids=["a bug", "a broken invariant", "a deadline", "a stream", "tasks"],
)
async def test_a_bug_is_500(
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
async def test_a_refusal_out_of_a_nursery_is_a_refusal(
    daemon: Daemon,
    token: str,
    monkeypatch: pytest.MonkeyPatch,
    refusals: list[Exception],
    status: int,
) -> None:
    monkeypatch.setattr(ConversionService, "convert", fault(ExceptionGroup("x", refusals)))
    answer = await daemon.convert(token, "https://example.org/")
    assert (answer.status_code, answer.json()["error"]) == (status, "no")


async def test_a_bug_tells_no_secret(
    start: Start, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    daemon = await start(links={"source": "browser"}, browser={"executable": "/nowhere/x"})
    token = await daemon.login()
    monkeypatch.setattr(convert_route, "parse_cookie", lambda _: 1 // 0)
    answer = await daemon.convert(token, "https://example.org/", cookie=COOKIE)
    assert answer.status_code == 500
    seen = answer.text + text_of(caplog)
    assert "ZeroDivisionError" in seen
    assert "secret-" not in seen
    assert token not in seen


# Parts


@pytest.mark.parametrize(
    ("part", "method", "call"),
    [
        ("auth", (AuthState, "check_session", fault_at_once), ("GET", "/api/status", None)),
        ("vault", (_Vault, "current", fault_at_once), ("GET", "/api/sync-cookie", None)),
        (
            "conversion",
            (_ConversionService, "convert", fault),
            ("POST", "/api/convert", {"links": ["x"]}),
        ),
    ],
    ids=["auth", "vault", "conversion"],
)
async def test_a_part_that_fails_is_503(
    start: Start,
    caplog: pytest.LogCaptureFixture,
    part: str,
    method: tuple[type, str, Callable[[BaseException], Callable[..., Any]]],
    call: tuple[str, str, object],
) -> None:
    daemon = await start()
    token = await daemon.login()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(*method[:2], method[2](ZeroDivisionError("x")))
        answer = await daemon.ask(*call, token=token)
    assert answer.status_code == 503
    assert answer.json()["error"].startswith(f"the {part} part of the daemon restarted while")
    assert int(answer.headers["Retry-After"]) >= 1
    # The next one waits for the next instance, and the session is still good.
    assert (await daemon.ask(*call, token=token)).status_code == 200
    errors = [record for record in caplog.records if record.levelno >= logging.ERROR]
    assert [record.getMessage() for record in errors] == [f"{part} failed"]


def lose_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have everybody wait for a part of a second in place of their seconds; a deadline that is
    somebody's own stays.
    """

    def little(seconds: float = PATIENCE) -> patience:
        return patience(0.05 if seconds == PATIENCE else seconds)

    for module in ("operations", "routes.convert", "routes.cookies"):
        monkeypatch.setattr(f"smartlinkd.api.{module}.patience", little)


@pytest.mark.usefixtures("slow_restarts")
@pytest.mark.parametrize(
    ("part", "call"),
    [
        ("auth", ("GET", "/api/status", None)),
        ("auth", ("POST", "/api/auth/login", {"password": PASSWORD})),
        ("auth", ("GET", "/metrics", None)),
        ("vault", ("GET", "/api/sync-cookie", None)),
        ("vault", ("POST", "/api/sync-cookie", {"cookie": COOKIE})),
        ("vault", ("POST", "/api/convert", {"links": ["x"]})),
    ],
    ids=["admitted", "asked", "admitted to a page", "looked at", "told", "asked at the beginning"],
)
async def test_a_part_that_does_not_come_back_is_503(
    start: Start,
    monkeypatch: pytest.MonkeyPatch,
    part: str,
    call: tuple[str, str, object],
) -> None:
    daemon = await start(cookie={"open_to": [], "sync_key": SYNC_KEY})
    token = await daemon.login()
    looks = {"auth": (AuthState, "check_session"), "vault": (_Vault, "current")}
    with monkeypatch.context() as broken:
        broken.setattr(*looks[part], fault_at_once(ZeroDivisionError("x")))
        assert (await daemon.get("/api/sync-cookie", token=token)).status_code == 503
    lose_patience(monkeypatch)
    answer = await daemon.ask(*call, token=token)
    assert answer.status_code == 503
    assert answer.json()["error"].startswith("a part of the daemon is being restarted")
    assert int(answer.headers["Retry-After"]) >= 1


async def test_the_other_parts_go_on(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    daemon = await start(cookie={"sync_key": SYNC_KEY})
    monkeypatch.setattr(AuthState, "check_session", fault_at_once(ZeroDivisionError("x")))
    await daemon.get("/api/status", token="x")
    assert (await daemon.get("/api/health")).status_code == 200
    assert (await daemon.get("/livez")).status_code == 200
    assert (await daemon.post("/api/sync-cookie", {"cookie": COOKIE})).status_code == 200
    answer = await daemon.get("/api/sync-cookie", token=SYNC_KEY, Host="evil.example")
    assert answer.json()["cookie"] == COOKIE


# Secrets


async def test_no_secret_is_ever_logged(
    start: Start, phone: Phone, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Everything that takes or gives a secret, done right and done wrong, with all logs open."""
    caplog.set_level(logging.DEBUG)
    daemon = await start(
        links={"source": "browser"},
        browser={"executable": "/nowhere/chromium"},
        cookie={"open_to": [], "sync_key": SYNC_KEY},
        open_api={"secret": "secret-of-the-open-api"},
    )
    token = await daemon.login()
    secret = await phone.enable(daemon, token)
    temp_token, code, wrong = await daemon.begin_login(), phone.shows(secret), phone.wrong(secret)
    await daemon.post("/api/auth/login", {"password": "secret-guess"})
    await daemon.post("/api/auth/login", b'{"password": ["secret-in-an-array"]}')
    await daemon.post("/api/auth/verify-mfa", {"tempToken": temp_token, "code": wrong})
    body = {"tempToken": temp_token, "code": code}
    second = (await daemon.post("/api/auth/verify-mfa", body)).json()["token"]
    await daemon.get("/api/status", token=second + "x")
    await daemon.get("/api/sync-cookie", token="secret-wrong-key")
    for cookie in (COOKIE, "secret-not-a-pair", "SPC_EC=.secret-ec\n"):
        await daemon.post("/api/sync-cookie", {"cookie": cookie}, token=SYNC_KEY)
        await daemon.convert(token, "https://shopee.vn/product/1/2", cookie=cookie)
    await daemon.get("/api/sync-cookie", token=SYNC_KEY)
    with monkeypatch.context() as broken:
        broken.setattr(_Vault, "store", fault(ZeroDivisionError("x")))
        await daemon.post("/api/sync-cookie", {"cookie": COOKIE}, token=SYNC_KEY)
    await daemon.stop()

    seen = text_of(caplog)
    assert "wrong password from 127.0.0.1" in seen
    assert "vault failed" in seen
    assert "secret-" not in seen
    signing_secret = (daemon.state / "signing-secret").read_text().strip()
    for hidden in (PASSWORD, SYNC_KEY, token, second, temp_token, secret, signing_secret):
        assert hidden not in seen
    assert not re.search(rf"\b({code}|{wrong})\b", seen)
