"""The password is changed while the daemon runs: whoever is in is out, in the midst of anything."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager

import pytest
import trio
from pydantic import SecretStr

from daemon.auth import passwords
from daemon.auth.actor import Auth, LoggedIn
from daemon.auth.passwords import hash_password
from daemon.errors import NotAllowed, WrongCredential

HERE = "192.0.2.1"
NEW = SecretStr(hash_password("open barley"))
COMPARE = passwords._matches


@pytest.fixture
def new_auth(new_auth: Callable[..., Auth], monkeypatch: pytest.MonkeyPatch) -> Callable[..., Auth]:
    """With hashes that are really compared."""
    monkeypatch.setattr(passwords, "_matches", COMPARE)
    return new_auth


async def test_only_the_new_one_opens(auth: Auth) -> None:
    await auth.take_password(NEW)
    assert isinstance(await auth.login("open barley", HERE), LoggedIn)
    with pytest.raises(WrongCredential):
        await auth.login("the right one", HERE)


async def test_every_session_has_ended(
    auth: Auth, log_in: Callable[[Auth], Awaitable[str]], caplog: pytest.LogCaptureFixture
) -> None:
    token = await log_in(auth)
    await auth.check_session(token)
    await auth.take_password(NEW)
    with pytest.raises(NotAllowed):
        await auth.check_session(token)
    said = [one.message for one in caplog.records]
    assert said == ["the password was changed: every session has ended"]


async def test_a_login_with_the_old_one_that_is_under_way_fails(
    auth: Auth, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is being compared, rightly, with the hash that goes."""
    came = trio.Event()
    goes_on = trio.Event()

    async def right(*_: object) -> bool:
        came.set()
        await goes_on.wait()
        return True

    monkeypatch.setattr(passwords.Passwords, "is_right", right)
    async with trio.open_nursery() as nursery:

        async def try_it() -> None:
            with pytest.raises(WrongCredential, match=r"^password: is wrong$"):
                await auth.login("the old one", HERE)

        nursery.start_soon(try_it)
        await came.wait()
        await auth.take_password(NEW)
        goes_on.set()


async def test_a_login_half_done_cannot_be_finished(
    auth: Auth,
    enable: Callable[[Auth], Awaitable[tuple[str, str]]],
    begin_login: Callable[[Auth], Awaitable[str]],
    shown: Callable[..., str],
) -> None:
    secret, _ = await enable(auth)
    temporary = await begin_login(auth)
    await auth.take_password(NEW)
    with pytest.raises(NotAllowed):
        await auth.verify_mfa(temporary, shown(secret, ahead=30), HERE)


async def test_the_next_incarnation_has_it_too(
    new_auth: Callable[..., Auth],
    running: Callable[..., AbstractAsyncContextManager[Auth]],
) -> None:
    handle = new_auth()
    async with running(handle):
        await handle.take_password(NEW)
    async with running(handle):
        assert isinstance(await handle.login("open barley", HERE), LoggedIn)
