"""2FA codes are read as authenticator apps show them, and each is accepted once."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pyotp
import pytest

if TYPE_CHECKING:
    from tests.e2e.conftest import Daemon, Running

STEP = 30
"""Seconds for which an app shows a code. The daemon accepts the next code, too."""

FORMS = {
    "a space": "{0} {1}",
    "a dash": "{0}-{1}",
    "a line end": "{0}{1}\r\n",
    "a no-break space": "\ufeff{0}\N{NO-BREAK SPACE}{1} ",
    "an en dash": "{0} \N{EN DASH} {1}",
}


@pytest.fixture(scope="module")
def daemon(running: Running) -> Iterator[Daemon]:
    """A daemon without a browser."""
    open_api = {"app_id": "1", "secret": "unused-here", "url": "http://127.0.0.1:1/"}
    with running(
        links={"source": "open_api"}, products={"source": "none"}, open_api=open_api
    ) as daemon:
        yield daemon


def code(secret: str, *, ahead: int = 0) -> str:
    return pyotp.TOTP(secret).at(int(time.time()) + ahead)


def written(form: str, digits: str) -> str:
    return FORMS[form].format(digits[:3], digits[3:])


async def post(daemon: Daemon, path: str, **body: str) -> tuple[int, str]:
    """Return the status, and the error's text ("" without one)."""
    answer = await daemon.ask("POST", f"/api/auth/{path}", body, token=await daemon.login())
    return answer.status_code, answer.json().get("error", "")


async def secret_of_a_setup(daemon: Daemon) -> str:
    answer = await daemon.ask("GET", "/api/auth/2fa/setup", token=await daemon.login())
    secret = str(answer.json()["secret"])
    daemon.secrets.add(secret)
    return secret


async def temp_token(daemon: Daemon) -> str:
    answer = await daemon.ask("POST", "/api/auth/login", {"password": daemon.password})
    token = str(answer.json()["tempToken"])
    daemon.secrets.add(token)
    return token


@pytest.mark.parametrize("form", FORMS)
async def test_code_as_the_app_shows_it_enables_and_disables(daemon: Daemon, form: str) -> None:
    secret = await secret_of_a_setup(daemon)
    given = {"secret": secret, "code": written(form, code(secret))}
    assert await post(daemon, "2fa/enable", **given) == (200, "")
    again = {"code": written(form, code(secret, ahead=STEP))}
    assert await post(daemon, "2fa/disable", **again) == (200, "")


@pytest.mark.parametrize("form", FORMS)
async def test_code_as_the_app_shows_it_ends_a_login_once(daemon: Daemon, form: str) -> None:
    secret = await secret_of_a_setup(daemon)
    await post(daemon, "2fa/enable", secret=secret, code=code(secret))
    try:
        digits = code(secret, ahead=STEP)
        first = {"tempToken": await temp_token(daemon), "code": written(form, digits)}
        assert await post(daemon, "verify-mfa", **first) == (200, "")
        second = {"tempToken": await temp_token(daemon), "code": digits}
        status, error = await post(daemon, "verify-mfa", **second)
        assert (status, error.startswith("code: is wrong, was used already")) == (401, True)
    finally:
        await daemon.run("2fa", "off")


@pytest.mark.parametrize("separator", [" ", "-", "\n"])
async def test_secret_as_the_app_shows_it_enables(daemon: Daemon, separator: str) -> None:
    secret = await secret_of_a_setup(daemon)
    groups = separator.join(secret[at : at + 4] for at in range(0, len(secret), 4)).lower()
    daemon.secrets.add(groups)
    assert await post(daemon, "2fa/enable", secret=groups, code=code(secret)) == (200, "")
    assert await post(daemon, "2fa/disable", code=code(secret, ahead=STEP)) == (200, "")


@pytest.mark.parametrize("path", ["verify-mfa", "2fa/enable", "2fa/disable"])
@pytest.mark.parametrize(
    "wrong", ["", " ", "12345", "123 4567", "12 34 5", "123.456", "abc-def", "123456" + " " * 9000]
)
async def test_text_without_six_digits_is_400(daemon: Daemon, path: str, wrong: str) -> None:
    status, error = await post(daemon, path, tempToken="t", secret="s", code=wrong)
    assert (status, error) == (400, "code: must be the 6 digits that the authenticator app shows")
