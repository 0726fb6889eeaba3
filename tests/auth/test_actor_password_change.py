"""A changed password ends every session, while the daemon runs and between two starts."""

from __future__ import annotations

from pathlib import Path

import pytest
import trio
import trio.testing
from pydantic import SecretStr

from smartlinkd.auth import passwords
from smartlinkd.auth.actor import Auth, LoggedIn
from smartlinkd.auth.passwords import hash_password
from smartlinkd.errors import NotAllowed, Unavailable, WrongCredential
from tests.auth.conftest import NewAuth, Running, log_in

HERE = "192.0.2.1"
OLD = hash_password("the right one")
NEW = SecretStr(hash_password("open barley"))
COMPARE = passwords.matches


@pytest.fixture
def new_auth(new_auth: NewAuth, monkeypatch: pytest.MonkeyPatch) -> NewAuth:
    """With hashes that are really compared."""
    monkeypatch.setattr(passwords, "matches", COMPARE)
    return new_auth


async def test_changed_password_ends_every_session_and_alone_logs_in(
    auth: Auth, caplog: pytest.LogCaptureFixture
) -> None:
    token = await log_in(auth)
    await auth.check_session(token)
    await auth.change_password(NEW)
    with pytest.raises(NotAllowed):
        await auth.check_session(token)
    said = [one.message for one in caplog.records]
    assert said == ["the password was changed: every session has ended"]
    assert isinstance(await auth.login("open barley", HERE), LoggedIn)
    with pytest.raises(WrongCredential):
        await auth.login("the right one", HERE)


async def test_login_with_the_old_password_that_is_under_way_fails(
    auth: Auth, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The check with the old hash succeeds after the change."""
    came = trio.Event()
    goes_on = trio.Event()

    async def right(*_: object) -> bool:
        came.set()
        await goes_on.wait()
        return True

    monkeypatch.setattr(passwords.Passwords, "is_correct", right)
    async with trio.open_nursery() as nursery:

        async def try_it() -> None:
            with pytest.raises(WrongCredential, match=r"^password: is wrong$"):
                await auth.login("the old one", HERE)

        nursery.start_soon(try_it)
        await came.wait()
        await auth.change_password(NEW)
        goes_on.set()


async def test_old_password_that_is_put_back_brings_no_session_back(auth: Auth) -> None:
    await auth.change_password(SecretStr(OLD))
    token = await log_in(auth)
    await auth.change_password(NEW)
    await auth.change_password(SecretStr(OLD))
    with pytest.raises(NotAllowed):
        await auth.check_session(token)
    await auth.check_session(await log_in(auth))


@pytest.mark.parametrize("between", ["a start", "a reload"])
async def test_old_password_at_a_later_start_brings_no_session_back(
    new_auth: NewAuth, running: Running, between: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with running(new_auth(password_hash=OLD)) as auth:
        token = await log_in(auth)
        if between == "a reload":
            await auth.change_password(NEW)
    if between == "a start":
        async with running(new_auth(password_hash=NEW.get_secret_value())) as auth:
            await auth.reset_second_factor()  # any change: it saves the era that is in force
    caplog.clear()
    async with running(new_auth(password_hash=OLD)) as auth:
        with pytest.raises(NotAllowed):
            await auth.check_session(token)
    assert caplog.messages == [
        "the password, or the signing secret, is not the one of the last start: "
        "every session has ended"
    ]


async def test_session_survives_a_start_with_the_same_password_and_an_upgrade(
    new_auth: NewAuth, running: Running, tmp_path: Path
) -> None:
    """An older daemon did not save which password it is."""
    async with running(new_auth(password_hash=OLD)) as auth:
        token = await log_in(auth)
    for older in (False, True):
        if older:
            (tmp_path / "password-digest").unlink()
        async with running(new_auth(password_hash=OLD)) as auth:
            await auth.check_session(token)
    assert (tmp_path / "password-digest").exists()


@pytest.mark.parametrize("unsaved", ["auth.json", "password-digest"])
async def test_password_change_on_a_full_disk_is_in_force_and_can_be_repeated(
    new_auth: NewAuth, running: Running, tmp_path: Path, unsaved: str
) -> None:
    async with running(new_auth(password_hash=OLD)) as auth:
        token = await log_in(auth)
        written_first = tmp_path / f".{unsaved}.new"
        written_first.mkdir()
        with pytest.raises(Unavailable) as refused:
            await auth.change_password(NEW)
        written_first.rmdir()
        assert refused.value.retry_after == 30
        with pytest.raises(WrongCredential):
            await auth.login("the right one", HERE)
        with pytest.raises(NotAllowed):
            await auth.check_session(token)
        await auth.change_password(NEW)
    async with running(new_auth(password_hash=OLD)) as auth:
        with pytest.raises(NotAllowed):
            await auth.check_session(token)
