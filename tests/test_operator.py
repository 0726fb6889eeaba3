"""The owner's reports and commands, over real parts; what the portal does is played."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import trio
from pydantic import SecretStr
from trio.testing import MockClock

from daemon.auth.actor import Auth
from daemon.auth.passwords import hash_password
from daemon.conversion.desk import Desk, DeskLimits, DeskSetup
from daemon.conversion.order import Order
from daemon.errors import Refused
from daemon.marketplace.answers import Row
from daemon.marketplace.codes import FailCode
from daemon.marketplace.errors import HumanCheck, SessionLost
from daemon.marketplace.links import Product, Short
from daemon.marketplace.markets import market
from daemon.operator import Operator
from daemon.supervision.supervisor import ChildSnapshot, State
from daemon.vault.actor import Vault
from daemon.vault.cookie import Cookie, parse_cookie

HASH = SecretStr(hash_password("correct horse"))
COOKIE = "SPC_U=4711; SPC_EC=.secret"
ORDER = Order(("https://shopee.vn/product/1/2",), (), parse_cookie(COOKIE))


class Portal:
    """Makes links and refuses them, and there are no short ones."""

    needs_cookie = True

    def __init__(self) -> None:
        self.refusal: Refused | None = None

    async def create(
        self,
        cookie: Cookie | None,  # noqa: ARG002
        products: Sequence[Product],
        sub_ids: tuple[str, ...],  # noqa: ARG002
    ) -> Sequence[Row]:
        await trio.lowlevel.checkpoint()
        if self.refusal is not None:
            raise self.refusal
        return [Row("https://s.shopee.vn/a", None, FailCode.SUCCESS) for _ in products]

    async def resolve(self, short: Short) -> Product | int:  # noqa: ARG002
        return FailCode.INVALID_LINK


class Parts:
    """The parts, none of which runs at first."""

    def __init__(self, directory: Path) -> None:
        place = market("vn")
        self.portal = Portal()
        self.auth = Auth(directory, password_hash=HASH, signing_secret=SecretStr(""))
        self.vault = Vault()
        self.desk = Desk(DeskSetup(place, self.portal, None, self.portal, DeskLimits()))
        self.states = {"vault": State.RUNNING, "conversion": State.RUNNING}
        self.operator = Operator(
            auth=self.auth, vault=self.vault, desk=self.desk, browser=None, parts=self._snapshot
        )

    def _snapshot(self) -> list[ChildSnapshot]:
        return [
            ChildSnapshot(name, state, datetime.now(UTC), 0, None, None)
            for name, state in self.states.items()
        ]

    async def run(self, nursery: trio.Nursery) -> None:
        """The vault and the desk; auth works in threads, for which a mock clock does not wait."""
        await nursery.start(self.vault.run)
        await nursery.start(self.desk.run)

    async def do(self, command: str) -> dict[str, Any]:
        return await self.operator.commands()[command]()


@pytest.fixture
def parts(tmp_path: Path) -> Parts:
    return Parts(tmp_path)


# What is shown


async def test_the_account_and_its_trouble_are_shown(
    parts: Parts, nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    await parts.run(nursery)
    assert await parts.do("account show") == {"cookie": None, "accounts": []}
    record = await parts.vault.store(COOKIE, "mine")
    parts.portal.refusal = HumanCheck()
    with pytest.raises(HumanCheck):
        await parts.desk.convert(ORDER)
    shown = await parts.do("account show")
    assert shown["cookie"]["accountName"] == "mine"
    assert shown["cookie"]["syncedAt"].startswith(f"{record.synced_at:%Y-%m-%dT%H:%M:%S}.")
    (account,) = shown["accounts"]
    assert (account["account"], account["state"]) == ("4711", "paused")
    assert account["reason"].startswith("the affiliate portal asks for a human check")
    assert ".secret" not in str(shown)


async def test_a_digest_in_place_of_an_account_is_cut(
    parts: Parts, nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    await parts.run(nursery)
    cookie = parse_cookie("SPC_EC=nobody")
    await parts.desk.convert(Order(ORDER.links, (), cookie))
    (account,) = (await parts.do("account show"))["accounts"]
    assert account["account"] == cookie.digest[:12]


async def test_the_status_has_both_and_the_parts(
    parts: Parts, nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    await parts.run(nursery)
    parts.states["vault"] = State.WAITING
    status = await parts.do("status")
    assert [(part["name"], part["state"]) for part in status["actors"]] == [
        ("vault", "waiting"),
        ("conversion", "running"),
    ]
    assert status["conversion"]["requestsWaiting"] == 0
    assert status["secondFactor"] is None  # auth does not run
    assert status["browser"] is None


async def test_a_status_waits_for_nobody_for_long(parts: Parts, autojump_clock: MockClock) -> None:
    before = trio.current_time()
    status = await parts.operator.status()
    assert trio.current_time() - before <= 3
    assert (status.conversion, status.accounts, status.cookie, status.second_factor) == (
        None, None, None, None,
    )  # fmt: skip


@pytest.mark.parametrize("state", [State.STARTING, State.WAITING, State.STOPPING, State.DOWN])
def test_it_is_not_ready_while_a_part_does_not_run(parts: Parts, state: State) -> None:
    assert parts.operator.not_ready() is None
    parts.states["conversion"] = state
    assert parts.operator.not_ready() == state


# What is done


@pytest.mark.parametrize(
    ("refusal", "state"), [(HumanCheck(), "paused"), (SessionLost(), "session lost")]
)
async def test_clearing_ends_an_accounts_trouble(
    parts: Parts, nursery: trio.Nursery, autojump_clock: MockClock, refusal: Refused, state: str
) -> None:
    await parts.run(nursery)
    parts.portal.refusal = refusal
    with pytest.raises(type(refusal)):
        await parts.desk.convert(ORDER)
    (account,) = (await parts.do("account show"))["accounts"]
    assert account["state"] == state
    assert await parts.do("account clear") == {"cleared": 1}
    (account,) = (await parts.do("account show"))["accounts"]
    assert (account["state"], account["reason"]) == ("active", None)
    parts.portal.refusal = None
    assert await parts.desk.convert(ORDER)
    assert await parts.do("account clear") == {"cleared": 0}


async def test_tokens_are_revoked(parts: Parts, nursery: trio.Nursery) -> None:
    await nursery.start(parts.auth.run)
    login = await parts.auth.login("correct horse", "192.0.2.1")
    assert hasattr(login, "token")
    assert (await parts.auth.check_session(login.token)).jti
    assert "message" in await parts.do("tokens revoke")
    with pytest.raises(Refused, match="log in again"):
        await parts.auth.check_session(login.token)


async def test_the_second_factor_is_switched_off(parts: Parts, nursery: trio.Nursery) -> None:
    await nursery.start(parts.auth.run)
    assert "message" in await parts.do("2fa off")
    assert await parts.auth.second_factor_enabled() is False
