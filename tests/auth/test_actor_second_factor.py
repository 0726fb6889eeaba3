"""The second factor is set up, switched on and switched off."""

from __future__ import annotations

import pytest
from trio.testing import MockClock

from smartlinkd.auth.actor import Auth, Claims, LoggedIn
from smartlinkd.errors import Invalid, NotAllowed, TooManyTries, WrongCredential
from tests.auth.conftest import (
    Enable,
    Shown,
    WrongCode,
    fail_logins,
    log_in,
)

HERE, THERE = "192.0.2.1", "192.0.2.2"


NOT_ISSUED = (
    r"^secret: is not the latest that /api/auth/2fa/setup gave out in the last 10 minutes; "
    r"call it again and scan the new QR code$"
)
ON_ALREADY = (
    r"^the second factor is switched on already; switch it off at /api/auth/2fa/disable first$"
)
OFF_ALREADY = r"^the second factor is switched off already$"


@pytest.fixture
async def session(auth: Auth) -> Claims:
    return await auth.check_session(await log_in(auth))


async def test_enabling_again_needs_a_new_setup_and_ends_the_session_that_was_spared(
    auth: Auth, enable: Enable, shown: Shown
) -> None:
    secret, first = await enable(auth)
    await auth.reset_second_factor()
    session = await auth.check_session(first)
    with pytest.raises(Invalid, match=NOT_ISSUED):
        await auth.enable(session, secret, shown(secret), HERE)
    _, second = await enable(auth)

    await auth.check_session(second)
    with pytest.raises(NotAllowed):
        await auth.check_session(first)


@pytest.mark.parametrize("secret", ["", "GEZDGNBVGY3TQOJQGEZDGNBVGY3TQOJQ", "é\ud800"])
async def test_secret_that_setup_did_not_issue_is_refused(
    secret: str, auth: Auth, session: Claims
) -> None:
    with pytest.raises(Invalid, match=NOT_ISSUED):
        await auth.enable(session, secret, "123456", HERE)
    await auth.begin_setup()
    with pytest.raises(Invalid, match=NOT_ISSUED):
        await auth.enable(session, secret, "123456", HERE)


async def test_setup_expires_after_ten_minutes(
    auth: Auth, session: Claims, shown: Shown, mock_clock: MockClock
) -> None:
    secret = (await auth.begin_setup()).secret
    mock_clock.jump(600)

    with pytest.raises(Invalid, match=NOT_ISSUED):
        await auth.enable(session, secret, shown(secret), HERE)

    secret = (await auth.begin_setup()).secret
    mock_clock.jump(599)
    await auth.enable(session, secret, shown(secret), HERE)


async def test_code_disables_and_keeps_the_session(
    auth: Auth, enable: Enable, shown: Shown
) -> None:
    secret, token = await enable(auth)

    await auth.disable(await auth.check_session(token), shown(secret), HERE)

    assert isinstance(await auth.login("the right one", HERE), LoggedIn)
    await auth.check_session(token)


async def test_second_factor_that_is_on_or_off_already_cannot_be_switched(
    auth: Auth, session: Claims, enable: Enable, shown: Shown
) -> None:
    with pytest.raises(Invalid, match=OFF_ALREADY):
        await auth.disable(session, "123456", HERE)
    secret, token = await enable(auth)
    with pytest.raises(Invalid, match=ON_ALREADY):
        await auth.begin_setup()
    session = await auth.check_session(token)
    with pytest.raises(Invalid, match=ON_ALREADY):
        await auth.enable(session, secret, shown(secret), HERE)


async def test_ended_session_cannot_switch_the_second_factor_on(
    auth: Auth, session: Claims, shown: Shown
) -> None:
    secret = (await auth.begin_setup()).secret
    await auth.revoke_all()

    with pytest.raises(NotAllowed, match=r"^the session token is invalid or has expired"):
        await auth.enable(session, secret, shown(secret), HERE)
    assert not await auth.has_second_factor()


@pytest.mark.parametrize("is_on", [True, False])
async def test_wrong_codes_of_many_addresses_slow_down_switching(
    *,
    auth: Auth,
    session: Claims,
    enable: Enable,
    shown: Shown,
    wrong_code: WrongCode,
    is_on: bool,
) -> None:
    async def switch(code: str, address: str) -> None:
        if is_on:
            await auth.disable(session, code, address)
        else:
            await auth.enable(session, secret, code, address)

    if is_on:
        secret, token = await enable(auth)
        session = await auth.check_session(token)
    else:
        secret = (await auth.begin_setup()).secret
    for n in range(20):
        with pytest.raises(WrongCredential):
            await switch(wrong_code(secret), f"198.51.100.{n}")
    with pytest.raises(TooManyTries):
        await switch(shown(secret), THERE)


async def test_switching_or_login_resets_the_failures_of_the_address(
    auth: Auth, session: Claims, shown: Shown
) -> None:
    await fail_logins(auth, 9)
    secret = (await auth.begin_setup()).secret
    await auth.enable(session, secret, shown(secret), HERE)
    await fail_logins(auth, 9)
    await auth.disable(session, shown(secret, ahead=30), HERE)
    await fail_logins(auth, 9)
    await log_in(auth)
    await fail_logins(auth, 9)
