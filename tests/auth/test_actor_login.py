"""Logins with a password, and the sessions that they begin."""

from __future__ import annotations

import base64
import threading
from pathlib import Path

import pytest
import trio
from pydantic import SecretStr

from smartlinkd.auth import passwords
from smartlinkd.auth.actor import Auth, LoggedIn
from smartlinkd.auth.passwords import hash_password
from smartlinkd.auth.state import AuthState
from smartlinkd.auth.throttle import FREE_FAILURES
from smartlinkd.auth.tokens import Claims
from smartlinkd.errors import NotAllowed, TooManyTries, WrongCredential
from tests.auth.conftest import NewAuth, Running, fail_logins, log_in

WEEK = 7 * 24 * 3600
HERE = "192.0.2.1"


REFUSED = r"^the session token is invalid or has expired; log in again at /api/auth/login$"


def expiry(token: str) -> int:
    """When it ends to be good, in Unix seconds."""
    payload = token.split(".")[1]
    return Claims.model_validate_json(base64.urlsafe_b64decode(payload + "==")).exp


async def test_login_with_the_password_gives_a_session_of_a_week(
    tmp_path: Path, nursery: trio.Nursery
) -> None:
    password_hash = SecretStr(hash_password("open sesame"))
    auth = Auth(
        tmp_path, password_hash=password_hash, signing_secret=SecretStr(""), wall_clock=lambda: 1e9
    )
    await nursery.start(auth.run)

    answer = await auth.login("open sesame", HERE)

    assert isinstance(answer, LoggedIn)
    session = await auth.check_session(answer.token)
    assert session.exp == expiry(answer.token) == int(1e9) + WEEK
    with pytest.raises(WrongCredential):
        await auth.login("open barley", HERE)


async def test_missing_token_is_refused_with_a_hint(auth: Auth) -> None:
    with pytest.raises(
        NotAllowed,
        match=r"^no session token; send the one from /api/auth/login as `Authorization: Bearer …`$",
    ):
        await auth.check_session(None)


async def test_concurrent_wrong_passwords_are_limited_to_ten(auth: Auth) -> None:
    outcomes: list[type[Exception]] = []

    async def guess() -> None:
        try:
            await auth.login("a wrong one", HERE)
        except (WrongCredential, TooManyTries) as error:
            outcomes.append(type(error))

    async with trio.open_nursery() as nursery:
        for _ in range(30):
            nursery.start_soon(guess)

    assert outcomes.count(WrongCredential) == 10
    assert outcomes.count(TooManyTries) == 20


async def test_login_behind_ten_failures_has_to_wait(
    auth: Auth, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = threading.Event()
    monkeypatch.setattr(passwords, "matches", lambda *_: gate.wait(10) and False)

    async with trio.open_nursery() as nursery:
        for _ in range(FREE_FAILURES):
            nursery.start_soon(fail_logins, auth, 1)
        await trio.testing.wait_all_tasks_blocked()
        monkeypatch.setattr(passwords, "matches", lambda *_: True)
        for _ in range(FREE_FAILURES + 1):  # more than there are verdicts
            nursery.start_soon(_refused, auth)
        await trio.testing.wait_all_tasks_blocked()
        gate.set()


async def _refused(auth: Auth) -> None:
    with pytest.raises(TooManyTries, match=r"^too many failed tries; try again in 1 s$"):
        await auth.login("the right one", HERE)


async def test_caller_that_leaves_early_does_not_hide_a_failure(
    auth: Auth, monkeypatch: pytest.MonkeyPatch
) -> None:
    await fail_logins(auth, 9)
    state = await auth.mailbox.ask(itself)  # to see its work end, which the asker does not
    entered, gate = threading.Event(), threading.Event()

    def matches(_: str, __: str) -> bool:
        entered.set()
        gate.wait(10)
        return False

    monkeypatch.setattr(passwords, "matches", matches)
    with pytest.RaisesGroup(WrongCredential):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(state.login, "a guess", HERE)
            await trio.to_thread.run_sync(entered.wait)
            nursery.cancel_scope.cancel()
            gate.set()

    with pytest.raises(TooManyTries):
        await auth.login("the right one", HERE)


async def itself(state: AuthState) -> AuthState:
    return state


async def test_given_signing_secret_is_used_and_not_saved(
    new_auth: NewAuth, running: Running, tmp_path: Path
) -> None:
    async with running(new_auth(signing_secret="ab" * 32)) as auth:
        token = await log_in(auth)
    assert not (tmp_path / "signing-secret").exists()

    async with running(new_auth(signing_secret="ab" * 32)) as auth:
        await auth.check_session(token)
    async with running(new_auth(signing_secret="cd" * 32)) as auth:
        with pytest.raises(NotAllowed, match=REFUSED):
            await auth.check_session(token)
