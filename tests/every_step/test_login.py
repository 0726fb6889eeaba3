"""Logins whose client leaves, or during which auth fails, at every step.

A code is accepted once, even if its client gets no answer. After a 200 the change is saved.
"""

from __future__ import annotations

from functools import partial

import pytest

from smartlinkd.auth import state
from smartlinkd.auth.throttle import Throttle
from tests.every_step.owner import Owner
from tests.every_step.strike import Strike
from tests.every_step.world import StrikeWorld, World, is_answered, strike_at

TARGETS = ("client", "auth")
"""The client leaves, or the actor that works for it fails."""
ORDERS = 2
"""Seeds of trio's order of tasks. These scenarios are short."""


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


@pytest.mark.parametrize("target", TARGETS)
def test_second_factor_is_disabled_completely_or_not(
    strike_world: StrikeWorld, target: str
) -> None:
    async def scenario(strike: Strike, world: World) -> None:
        owner = Owner(world)
        await owner.enable_factor()
        own = await owner.session()
        code = owner.next_code()
        asked = owner.disable(own, code)
        await strike_at(strike, asked, target, world)
        await world.check_clean()
        on = owner.factor() is not None
        assert not on or asked.status != 200
        assert (await owner.login().expect_ok()).get("mfaRequired", False) is on
        assert await owner.has_access(own)
        if on:
            assert not owner.is_used()
            await owner.disable(own, code).expect_ok()

    assert strike_world(scenario) > 15
