"""Logins with a second factor."""

from __future__ import annotations

from functools import partial
from types import SimpleNamespace

import pytest
from pydantic import SecretStr
from trio.testing import MockClock

from smartlinkd.auth.actor import Auth
from smartlinkd.errors import NotAllowed, TooManyTries, WrongCredential
from tests.auth.conftest import HASH, WRONG_CODE, Enable, Shown, WrongCode, begin_login, fail_logins

HERE, THERE = "192.0.2.1", "192.0.2.2"


REFUSED = r"^tempToken: is invalid, used or expired; log in again at /api/auth/login for a new one$"


class Owner:
    """Somebody who knows the password and has the phone, logging in."""

    def __init__(self, auth: Auth, wall: SimpleNamespace, code: Shown, wrong_code: str) -> None:
        self.auth, self.wall, self.code, self.wrong_code = auth, wall, code, wrong_code

    async def begin(self) -> str:
        return await begin_login(self.auth)

    async def verify(self, temp_token: str, code: str | None = None, address: str = HERE) -> str:
        return await self.auth.verify_mfa(
            temp_token, self.code() if code is None else code, address
        )

    async def fail(self, temp_token: str, times: int = 1, address: str = HERE) -> None:
        for _ in range(times):
            with pytest.raises(WrongCredential, match=WRONG_CODE):
                await self.verify(temp_token, self.wrong_code, address)


@pytest.fixture
async def owner(
    auth: Auth, enable: Enable, shown: Shown, wrong_code: WrongCode, wall: SimpleNamespace
) -> Owner:
    secret, _ = await enable(auth)
    return Owner(auth, wall, partial(shown, secret), wrong_code(secret))


async def test_temporary_token_ends_after_five_wrong_codes(owner: Owner) -> None:
    temp_token = await owner.begin()
    await owner.fail(temp_token, 5)

    with pytest.raises(NotAllowed, match=REFUSED):
        await owner.verify(temp_token)
    await owner.verify(await owner.begin())


async def test_temporary_token_ends_after_five_minutes(owner: Owner) -> None:
    temp_token, other = await owner.begin(), await owner.begin()
    owner.wall.now += 299
    await owner.verify(temp_token)
    owner.wall.now += 1

    with pytest.raises(NotAllowed, match=REFUSED):
        await owner.verify(other)


@pytest.mark.parametrize(("others", "good"), [(1023, True), (1024, False)])
async def test_1025th_unfinished_login_ends_the_oldest(
    others: int, good: bool, owner: Owner
) -> None:
    temp_token = await owner.begin()
    for _ in range(others):
        await owner.begin()

    if good:
        await owner.verify(temp_token)
    else:
        with pytest.raises(NotAllowed, match=REFUSED):
            await owner.verify(temp_token)


async def test_unfinished_login_neither_counts_nor_resets_failures(owner: Owner) -> None:
    await fail_logins(owner.auth, 9)
    for _ in range(20):
        await owner.begin()

    await fail_logins(owner.auth, 1)
    with pytest.raises(TooManyTries):
        await owner.begin()


async def test_wrong_codes_of_many_addresses_slow_down_all_codes(
    owner: Owner, mock_clock: MockClock
) -> None:
    for n in range(4):
        await owner.fail(await owner.begin(), 5, address=f"198.51.100.{n}")
    temp_token = await owner.begin()

    for _ in range(10):  # which do not spend the token
        with pytest.raises(TooManyTries) as refused:
            await owner.verify(temp_token, address=THERE)
        assert refused.value.retry_after == 60

    mock_clock.jump(60)
    await owner.verify(temp_token, address=THERE)


@pytest.mark.parametrize("change", ["all sessions end", "second factor is reset", "password"])
async def test_unfinished_login_ends_with_all_sessions_second_factor_or_password(
    owner: Owner, change: str
) -> None:
    temp_token = await owner.begin()
    match change:
        case "all sessions end":
            await owner.auth.revoke_all()
        case "second factor is reset":
            await owner.auth.reset_second_factor()
        case _:
            await owner.auth.change_password(SecretStr(HASH))
    with pytest.raises(NotAllowed, match=REFUSED):
        await owner.verify(temp_token)
