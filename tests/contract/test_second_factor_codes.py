"""2FA codes are read as authenticator apps show them, and each is accepted once."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pyotp
import pytest

from tests.config_file import WITHOUT_BROWSER
from tests.contract.second_factor import STEP, code_of, post, set_up

if TYPE_CHECKING:
    from tests.e2e.conftest import Daemon, Running

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
    with running(**WITHOUT_BROWSER) as daemon:
        yield daemon


def code(secret: str, *, ahead: int = 0) -> str:
    return code_of(pyotp.TOTP(secret), ahead=ahead)


def written(form: str, digits: str) -> str:
    return FORMS[form].format(digits[:3], digits[3:])


async def secret_of_a_setup(daemon: Daemon) -> str:
    return (await set_up(daemon)).secret


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
