from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from types import SimpleNamespace

import pytest
from trio.testing import MockClock

from smartlinkd.auth import state
from smartlinkd.auth.actor import Auth
from smartlinkd.errors import Invalid, NotAllowed, TooManyTries, WrongCredential

HERE, THERE = "192.0.2.1", "192.0.2.2"
DAY = 24 * 3600

Log_in = Callable[[Auth], Awaitable[str]]
Enable = Callable[[Auth], Awaitable[tuple[str, str]]]
Shown = Callable[..., str]

WRONG_CODE = (
    r"^code: is wrong, was used already, or is too old; wait for the app to show the next one$"
)
REFUSED = r"^tempToken: is invalid, used or expired; log in again at /api/auth/login for a new one$"


class Owner:
    """Somebody who knows the password and has the phone, logging in."""

    def __init__(self, auth: Auth, wall: SimpleNamespace, code: Shown, begin: Log_in) -> None:
        self.auth, self.wall, self.code = auth, wall, code
        self._begin = begin

    async def begin(self) -> str:
        return await self._begin(self.auth)

    async def verify(self, temp_token: str, code: str | None = None, address: str = HERE) -> str:
        return await self.auth.verify_mfa(
            temp_token, self.code() if code is None else code, address
        )

    def wrong_code(self) -> str:
        good = {self.code(ahead=30 * step) for step in range(-2, 10)}
        return next(text for n in range(13) if (text := f"{n:06}") not in good)

    async def fail(self, temp_token: str, times: int = 1, address: str = HERE) -> None:
        for _ in range(times):
            with pytest.raises(WrongCredential, match=WRONG_CODE):
                await self.verify(temp_token, self.wrong_code(), address)


@pytest.fixture
async def owner(
    auth: Auth, enable: Enable, begin_login: Log_in, shown: Shown, wall: SimpleNamespace
) -> Owner:
    secret, _ = await enable(auth)
    return Owner(auth, wall, partial(shown, secret), begin_login)


async def test_password_and_code_give_a_session(owner: Owner) -> None:
    token = await owner.verify(await owner.begin())

    await owner.auth.check_session(token)
    owner.wall.now += 7 * DAY - 1
    await owner.auth.check_session(token)
    owner.wall.now += 1
    with pytest.raises(NotAllowed):
        await owner.auth.check_session(token)


async def test_the_temporary_token_is_no_session(owner: Owner) -> None:
    with pytest.raises(NotAllowed):
        await owner.auth.check_session(await owner.begin())


async def test_a_session_is_no_temporary_token(owner: Owner) -> None:
    session_token = await owner.verify(await owner.begin())
    owner.wall.now += 30

    with pytest.raises(NotAllowed, match=REFUSED):
        await owner.verify(session_token)


async def test_wrong_used_and_stale_codes_get_the_same_answer(owner: Owner) -> None:
    used = owner.code()
    await owner.verify(await owner.begin(), used)
    temp_token = await owner.begin()

    answers = set()
    for code in (owner.wrong_code(), used, owner.code(ahead=-90)):
        with pytest.raises(WrongCredential) as refused:
            await owner.verify(temp_token, code)
        answers.add(str(refused.value))

    assert len(answers) == 1


@pytest.mark.parametrize("code", ["12345", "1234567", "abcdef", ""])
async def test_what_is_no_code_neither_counts_nor_spends_the_token(code: str, owner: Owner) -> None:
    temp_token = await owner.begin()

    for _ in range(20):
        with pytest.raises(Invalid, match=r"^code: must be the 6 digits"):
            await owner.verify(temp_token, code)

    await owner.verify(temp_token)


async def test_a_temporary_token_is_good_once(owner: Owner) -> None:
    temp_token = await owner.begin()
    await owner.verify(temp_token)
    owner.wall.now += 30

    with pytest.raises(NotAllowed, match=REFUSED):
        await owner.verify(temp_token)


async def test_four_wrong_codes_are_forgiven(owner: Owner) -> None:
    temp_token = await owner.begin()
    await owner.fail(temp_token, 4)

    await owner.verify(temp_token)


async def test_a_temporary_token_is_dead_after_five_wrong_codes(owner: Owner) -> None:
    temp_token = await owner.begin()
    await owner.fail(temp_token, 5)

    with pytest.raises(NotAllowed, match=REFUSED):
        await owner.verify(temp_token)
    await owner.verify(await owner.begin())


async def test_a_temporary_token_lasts_five_minutes(owner: Owner) -> None:
    temp_token, other = await owner.begin(), await owner.begin()
    owner.wall.now += 299
    await owner.verify(temp_token)
    owner.wall.now += 1

    with pytest.raises(NotAllowed, match=REFUSED):
        await owner.verify(other)


async def test_logins_half_done_are_bounded(owner: Owner, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state, "MAX_PENDING_LOGINS", 2)
    oldest, older, newest = [await owner.begin() for _ in range(3)]

    with pytest.raises(NotAllowed, match=REFUSED):
        await owner.verify(oldest)
    await owner.verify(older)
    owner.wall.now += 30
    await owner.verify(newest)


@pytest.mark.parametrize(("others", "good"), [(1023, True), (1024, False)])
async def test_a_thousand_logins_may_be_half_done(others: int, good: bool, owner: Owner) -> None:
    temp_token = await owner.begin()
    for _ in range(others):
        await owner.begin()

    if good:
        await owner.verify(temp_token)
    else:
        with pytest.raises(NotAllowed, match=REFUSED):
            await owner.verify(temp_token)


async def test_revoking_ends_logins_half_done(owner: Owner) -> None:
    temp_token = await owner.begin()

    await owner.auth.revoke_all()

    with pytest.raises(NotAllowed, match=REFUSED):
        await owner.verify(temp_token)


async def test_switching_it_off_ends_logins_half_done(owner: Owner) -> None:
    temp_token = await owner.begin()

    await owner.auth.reset_second_factor()

    with pytest.raises(NotAllowed, match=REFUSED):
        await owner.verify(temp_token)


async def test_a_login_half_done_does_not_count_either_way(owner: Owner) -> None:
    for _ in range(9):
        with pytest.raises(WrongCredential):
            await owner.auth.login("a wrong one", HERE)
    for _ in range(20):
        await owner.begin()

    with pytest.raises(WrongCredential):
        await owner.auth.login("a wrong one", HERE)
    with pytest.raises(TooManyTries):
        await owner.begin()


async def test_a_finished_login_resets_the_address(owner: Owner) -> None:
    for _ in range(2):
        for _ in range(9):
            with pytest.raises(WrongCredential):
                await owner.auth.login("a wrong one", HERE)
        await owner.verify(await owner.begin())
        owner.wall.now += 30


async def test_wrong_codes_throttle_their_address(owner: Owner) -> None:
    for _ in range(2):
        await owner.fail(await owner.begin(), 5)

    with pytest.raises(TooManyTries):
        await owner.begin()


async def test_wrong_codes_are_throttled_wherever_they_come_from(
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


async def test_a_bad_token_is_told_before_the_throttle(owner: Owner) -> None:
    for n in range(4):
        await owner.fail(await owner.begin(), 5, address=f"198.51.100.{n}")

    with pytest.raises(NotAllowed, match=REFUSED):
        await owner.verify("no token")


@pytest.mark.parametrize("jump", [DAY, -DAY])
async def test_a_clock_that_was_wrong_for_a_while_locks_nobody_out(jump: int, owner: Owner) -> None:
    used = owner.code()
    await owner.verify(await owner.begin(), used)
    owner.wall.now += jump
    await owner.verify(await owner.begin())
    owner.wall.now -= jump

    temp_token = await owner.begin()
    with pytest.raises(WrongCredential):
        await owner.verify(temp_token, used)
    await owner.verify(temp_token, owner.code(ahead=30))
