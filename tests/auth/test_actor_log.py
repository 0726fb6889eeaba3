"""The log of logins, and secrets that are never shown."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path

import pytest

from smartlinkd.auth.actor import Auth, LoggedIn, SecondStep
from smartlinkd.auth.throttle import FREE_FAILURES
from smartlinkd.errors import Refused, TooManyTries, WrongCredential
from smartlinkd.logs import LogEvent
from tests.auth.conftest import Enable, Shown, WrongCode

HERE = "192.0.2.1"


async def test_log_and_errors_show_the_events_and_no_secret(
    auth: Auth,
    shown: Shown,
    wrong_code: WrongCode,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.DEBUG)
    errors: list[object] = []
    password = "hunter2"

    async def refused(awaitable: Awaitable[object]) -> None:
        with pytest.raises(Refused) as error:
            await awaitable
        errors.extend((error.value, error.value.__cause__))

    await refused(auth.login(password, HERE))
    logged_in = await auth.login("the right one", HERE)
    assert isinstance(logged_in, LoggedIn)
    session = await auth.check_session(logged_in.token)
    setup = await auth.begin_setup()
    code = shown(setup.secret)
    await refused(auth.enable(session, setup.secret, wrong_code(setup.secret), HERE))
    await auth.enable(session, setup.secret, code, HERE)
    half = await auth.login("the right one", HERE)
    assert isinstance(half, SecondStep)
    await refused(auth.verify_mfa(half.temp_token, code, HERE))
    next_code = shown(setup.secret, ahead=30)
    token = await auth.verify_mfa(half.temp_token, next_code, HERE)
    await refused(auth.disable(session, code, HERE))
    last_code = shown(setup.secret, ahead=-30)
    await auth.disable(session, last_code, HERE)
    await auth.reset_second_factor()
    await auth.revoke_all()
    await refused(auth.check_session(token))

    assert [
        (r.levelname, r.getMessage()) for r in caplog.records if r.name.endswith("auth.state")
    ] == [
        ("WARNING", f"wrong password from {HERE}"),
        ("INFO", f"login from {HERE}"),
        ("WARNING", f"wrong code from {HERE}"),
        ("WARNING", f"second factor switched on from {HERE}"),
        ("WARNING", f"wrong code from {HERE}"),
        ("INFO", f"login with a second factor from {HERE}"),
        ("WARNING", f"wrong code from {HERE}"),
        ("WARNING", f"second factor switched off from {HERE}"),
        ("WARNING", "second factor switched off by the operator"),
        ("WARNING", "every session ended by the operator"),
    ]
    said = caplog.text + repr([*errors, logged_in, half, session, setup, vars(auth)])
    signing_secret = (tmp_path / "signing-secret").read_text().strip()
    for secret in (
        password,
        "the right one",
        setup.secret,
        code,
        next_code,
        last_code,
        logged_in.token,
        half.temp_token,
        token,
        signing_secret,
        "$argon2id$",
    ):
        assert secret not in said


@pytest.mark.parametrize("what", ["a password", "a code"])
async def test_address_that_is_slowed_down_is_logged_once(
    what: str,
    auth: Auth,
    enable: Enable,
    wrong_code: WrongCode,
    caplog: pytest.LogCaptureFixture,
) -> None:
    secret, token = await enable(auth)
    session = await auth.check_session(token)
    fails: dict[str, Callable[[], Awaitable[object]]] = {
        "a password": partial(auth.login, "hunter2", HERE),
        "a code": partial(auth.disable, session, wrong_code(secret), HERE),
    }
    caplog.clear()
    for _ in range(FREE_FAILURES):
        assert slowed(caplog) == []
        with pytest.raises(WrongCredential):
            await fails[what]()
    assert slowed(caplog) == [f"{HERE} has failed too often, and has to wait between tries"]
    for _ in range(5):
        with pytest.raises(TooManyTries):
            await auth.login("hunter2", HERE)
    assert len(slowed(caplog)) == 1  # nothing is told of who is not heard


def slowed(caplog: pytest.LogCaptureFixture) -> list[str]:
    found = (
        one for one in caplog.records if getattr(one, "event", None) is LogEvent.GUESSES_SLOWED
    )
    return [one.getMessage() for one in found]
