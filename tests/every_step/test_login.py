"""Logins whose client leaves, or during which auth fails, at every step.

A code is accepted once, even if its client gets no answer. After a 200 the change is saved.
Disabling the second factor is saved as enabling is (`tests/auth/test_actor_restarts.py`).
"""

from __future__ import annotations

from functools import partial

import pyotp
import pytest

from smartlinkd.auth import state
from smartlinkd.auth.files import STATE_FILE, SavedState, load
from smartlinkd.auth.throttle import Throttle
from smartlinkd.auth.totp import STEP
from tests.every_step.strike import Strike
from tests.every_step.world import PASSWORD, StrikeWorld, World, is_answered, strike_at
from tests.faults.sockets import SentRequest

TARGETS = ("client", "auth")
"""The client leaves, or the actor that works for it fails."""
ORDERS = 2
"""Seeds of trio's order of tasks. These scenarios are short."""


class Owner:
    """The owner, with the password, the phone and access to the disk.

    `secret` is the second factor's; "" while it is off.
    """

    def __init__(self, world: World) -> None:
        self.world = world
        self.stage = world.stage
        self.secret = ""

    # Requests

    def login(self, password: str = PASSWORD) -> SentRequest:
        return self.stage.request("POST", "/api/auth/login", {"password": password})

    def verify(self, temp_token: str, code: str) -> SentRequest:
        body = {"tempToken": temp_token, "code": code}
        return self.stage.request("POST", "/api/auth/verify-mfa", body)

    def enable(self, token: str, secret: str, code: str) -> SentRequest:
        body = {"secret": secret, "code": code}
        return self.stage.request("POST", "/api/auth/2fa/enable", body, token=token)

    def disable(self, token: str, code: str) -> SentRequest:
        return self.stage.request("POST", "/api/auth/2fa/disable", {"code": code}, token=token)

    async def half_login(self) -> str:
        """Log in with the password alone and return the temporary token."""
        return str((await self.login().expect_ok())["tempToken"])

    async def session(self) -> str:
        """Log in, with a code if one is needed, and return the session's token."""
        found = await self.login().expect_ok()
        if found.get("mfaRequired"):
            found = await self.verify(found["tempToken"], self.next_code()).expect_ok()
        return str(found["token"])

    async def setup(self, token: str) -> str:
        """Return the secret of a second factor that is not yet on."""
        asked = self.stage.request("GET", "/api/auth/2fa/setup", token=token)
        return str((await asked.expect_ok())["secret"])

    async def enable_factor(self) -> None:
        token = await self.session()
        self.secret = await self.setup(token)
        await self.enable(token, self.secret, self.next_code(self.secret)).expect_ok()

    async def has_access(self, token: str) -> bool:
        """True if the session is valid."""
        asked = self.stage.request("GET", "/api/crews", token=token)
        assert await asked.wait() in (200, 403), asked
        return asked.status == 200

    # The phone

    def next_code(self, secret: str = "") -> str:
        """Advance the wall clock to the next code and return it."""
        self.stage.wall.offset += STEP
        return self.code(secret)

    def code(self, secret: str = "") -> str:
        return pyotp.TOTP(secret or self.secret).at(int(self.stage.wall.now()))

    # The disk

    def saved(self) -> SavedState:
        """Return the saved state. It must be complete, with no temporary file beside it."""
        names = {each.name for each in self.stage.directory.iterdir()}
        assert not {name for name in names if name.endswith(".new")}, names
        assert STATE_FILE in names
        return load(self.stage.directory)

    def is_used(self) -> bool:
        """True if the phone's current code has been used."""
        factor = self.saved().second_factor
        return factor is not None and int(self.stage.wall.now()) // STEP in factor.used_steps


@pytest.fixture(autouse=True)
def any_number_of_codes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Allow more wrong codes an hour than the daemon does."""
    monkeypatch.setattr(state, "Throttle", partial(Throttle, max_wrong_codes=10**6))


@pytest.mark.parametrize("target", TARGETS)
def test_login(strike_world: StrikeWorld, target: str) -> None:
    async def scenario(strike: Strike, world: World) -> None:
        owner = Owner(world)
        asked = owner.login()
        await strike_at(strike, asked, target, world)
        await world.check_clean()
        if is_answered(asked):
            assert await owner.has_access(asked.answer["token"])
        assert await owner.has_access(await owner.session())

    assert strike_world(scenario, seeds=ORDERS) > 15


@pytest.mark.parametrize("target", TARGETS)
def test_code_is_accepted_once(strike_world: StrikeWorld, target: str) -> None:
    owners: list[Owner] = []

    async def scenario(strike: Strike, world: World) -> None:
        owner = await owner_with_factor(owners, world)
        temp_token, code = await owner.half_login(), owner.next_code()
        asked = owner.verify(temp_token, code)
        # A restarted auth does not know the temporary token.
        await strike_at(strike, asked, target, world, but=403)
        await world.check_clean()
        used = owner.is_used()
        assert used or asked.status != 200
        assert target == "client" or asked.status != 403 or not used
        if is_answered(asked):
            assert await owner.has_access(asked.answer["token"])
        # If the use is saved, the login is over; else the code and the temporary token stay valid.
        again = temp_token if target == "client" else await owner.half_login()
        refused = 403 if target == "client" else 401
        assert await owner.verify(again, code).wait() == (refused if used else 200)
        assert await owner.verify(await owner.half_login(), code).wait() == 401
        await owner.session()

    assert strike_world(scenario, seeds=ORDERS) > 15


async def owner_with_factor(known: list[Owner], world: World) -> Owner:
    """Return the owner, whose second factor is on."""
    if not known:
        known.append(Owner(world))
        await known[0].enable_factor()
    return known[0]


@pytest.mark.parametrize("target", TARGETS)
def test_second_factor_is_enabled_completely_or_not(strike_world: StrikeWorld, target: str) -> None:
    async def scenario(strike: Strike, world: World) -> None:
        owner = Owner(world)
        other, own = await owner.session(), await owner.session()
        secret = await owner.setup(own)
        code = owner.next_code(secret)
        before = owner.saved()
        asked = owner.enable(own, secret, code)
        # A restarted auth does not know this secret.
        await strike_at(strike, asked, target, world, but=400)
        await world.check_clean()
        saved = owner.saved()
        on = saved.second_factor is not None
        assert on or asked.status != 200
        assert (await owner.login().expect_ok()).get("mfaRequired", False) is on
        assert await owner.has_access(own)
        assert await owner.has_access(other) is not on
        if on:
            assert saved.epoch != before.epoch
            owner.secret = secret
            assert await owner.verify(await owner.half_login(), code).wait() == 401
        else:
            assert saved == before
            owner.secret = secret = await owner.setup(own)
            await owner.enable(own, secret, owner.next_code()).expect_ok()
        await owner.disable(own, owner.next_code()).expect_ok()

    assert strike_world(scenario) > 15
