"""The owner's reports and commands with real actors; the portal is a fake."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import trio
from pydantic import JsonValue, SecretBytes, SecretStr
from trio.testing import MockClock

from smartlinkd.admin.status import Operator
from smartlinkd.auth.actor import Auth
from smartlinkd.auth.passwords import hash_password
from smartlinkd.conversion.limits import ConversionLimits
from smartlinkd.conversion.request import ConversionRequest
from smartlinkd.conversion.service import ConversionService, ConversionSetup
from smartlinkd.conversion.sources import MaySend
from smartlinkd.crews.catalog.catalog import Catalog
from smartlinkd.crews.executor import Executor
from smartlinkd.crews.model import BrokenCrew, Crew
from smartlinkd.crews.tokens import CrewTokens
from smartlinkd.crews.worker import WorkerSettings
from smartlinkd.errors import Invalid, NotFound, Refused, WrongCredential
from smartlinkd.marketplace.answers import FailCode, Row
from smartlinkd.marketplace.errors import HumanCheck, SessionLost
from smartlinkd.marketplace.links import NotALink, Product, Short
from smartlinkd.marketplace.markets import market
from smartlinkd.store.actor import Store
from smartlinkd.store.model import Retention
from smartlinkd.supervision.child import ChildSnapshot, ChildState
from smartlinkd.vault.actor import Vault
from smartlinkd.vault.cookie import Cookie, parse_cookie

HASH = SecretStr(hash_password("correct horse"))
COOKIE = "SPC_U=4711; SPC_EC=.secret"


def order(item: int) -> ConversionRequest:
    return ConversionRequest(
        (f"https://shopee.vn/product/1/{item}",), (), parse_cookie(COOKIE), "owner"
    )


def crew(name: str, *users: str) -> Crew:
    worker = WorkerSettings(("/bin/true",), {}, memory=2**20)
    return Crew(name, worker, (), 1, 0, 60.0, 60.0, "fail", users, ())


CATALOG = Catalog(
    {"post": crew("post", "ann", "bob"), "mail": crew("mail")},
    (BrokenCrew("late", (), ("eve",)), BrokenCrew(None, ())),
    default="post",
)


class Portal:
    """A portal that makes links or raises `refusal`, and has no short links."""

    needs_cookie = True

    def __init__(self) -> None:
        self.refusal: Refused | None = None

    async def create(
        self,
        cookie: Cookie | None,  # noqa: ARG002
        products: Sequence[Product],
        sub_ids: tuple[str, ...],  # noqa: ARG002
        may_send: MaySend,
    ) -> Sequence[Row]:
        may_send()
        await trio.lowlevel.checkpoint()
        if self.refusal is not None:
            raise self.refusal
        return [Row("https://s.shopee.vn/a", None, FailCode.SUCCESS) for _ in products]

    async def resolve(self, short: Short) -> NotALink:  # noqa: ARG002
        return NotALink("no")


class Parts:
    """The actors of a daemon, not running at first."""

    def __init__(self, directory: Path) -> None:
        place = market("vn")
        self.portal = Portal()
        self.auth = Auth(directory, password_hash=HASH, signing_secret=SecretStr(""))
        self.vault = Vault()
        self.conversion = ConversionService(
            ConversionSetup(place, self.portal, None, self.portal.resolve, ConversionLimits())
        )
        self.states = {"vault": ChildState.RUNNING, "conversion": ChildState.RUNNING}
        self.tokens = CrewTokens(directory, SecretBytes(bytes(32)), CATALOG.users())
        self.operator = Operator(
            auth=self.auth,
            vault=self.vault,
            conversion=self.conversion,
            browser=None,
            parts=self._snapshot,
            tokens=self.tokens,
            executor=Executor(
                CATALOG,
                Store(
                    directory / "journal",
                    key=SecretBytes(bytes(32)),
                    retention=Retention(timedelta(days=1), 1),
                ),
                tools={},
                runs=directory / "runs",
                on_calls_queued=lambda: None,
            ),
            url="http://127.0.0.1:8787",
            crew_urls={"mail": "http://127.0.0.1:9000"},
            cookie_kept=lambda: False,
        )

    def _snapshot(self) -> list[ChildSnapshot]:
        return [
            ChildSnapshot(name, state, datetime.now(UTC), 0, None, None)
            for name, state in self.states.items()
        ]

    async def run(self, nursery: trio.Nursery) -> None:
        """Start vault and service. Auth works in threads, for which a mock clock does not wait."""
        await nursery.start(self.vault.run)
        await nursery.start(self.conversion.run)

    async def do(self, command: str, **arguments: JsonValue) -> dict[str, Any]:
        return await self.operator.commands()[command].run(arguments)


@pytest.fixture
def parts(tmp_path: Path) -> Parts:
    return Parts(tmp_path)


# Reports


@pytest.mark.parametrize(
    ("refusal", "trouble"),
    [
        (HumanCheck, ("paused", "the affiliate portal asks for a human check")),
        (SessionLost, ("session_lost", "the affiliate portal wants a login")),
    ],
)
async def test_account_is_shown_without_a_cookie_in_a_pause_and_after_it(
    parts: Parts,
    nursery: trio.Nursery,
    autojump_clock: MockClock,
    refusal: Callable[[], Refused],
    trouble: tuple[str, str],
) -> None:
    await parts.run(nursery)
    shown = await parts.do("account show")
    assert (shown["cookie"]["stored"], shown["accounts"]) == (False, [])
    record, _ = await parts.vault.store(COOKIE, "mine")
    synced_at = f"{record.synced_at:%Y-%m-%dT%H:%M:%S}."
    for shown in (await parts.do("account show"), await parts.do("status")):
        assert shown["cookie"]["accountName"] == "mine"
        assert shown["cookie"]["syncedAt"].startswith(synced_at)
    (account,) = shown["accounts"]
    assert (account["account"], account["state"]) == ("4711", "not used yet")
    assert account["since"].startswith(synced_at)
    await parts.conversion.convert(order(1))
    (account,) = (await parts.do("status"))["accounts"]
    assert (account["account"], account["state"]) == ("4711", "active")

    # An exception made as a test's parameter would keep its traceback and all actors alive.
    parts.portal.refusal = refusal()
    with pytest.raises(type(parts.portal.refusal)):
        await parts.conversion.convert(order(2))
    shown = await parts.do("account show")
    assert shown == (await parts.operator.account()).model_dump(mode="json")
    (account,) = shown["accounts"]
    state, reason = trouble
    assert (account["state"], account["reason"].startswith(reason)) == (state, True)
    assert account["remedy"]
    assert ".secret" not in str(shown)

    assert await parts.do("account clear") == {"cleared": 1}
    (account,) = (await parts.do("account show"))["accounts"]
    assert (account["state"], account["reason"]) == ("active", None)
    parts.portal.refusal = None
    assert await parts.conversion.convert(order(2))
    assert await parts.do("account clear") == {"cleared": 0}


async def test_status_waits_three_seconds_at_most(parts: Parts, autojump_clock: MockClock) -> None:
    before = trio.current_time()
    status = await parts.operator.status()
    assert trio.current_time() - before <= 3
    assert (status.conversion, status.accounts, status.cookie, status.second_factor) == (
        None, None, None, None,
    )  # fmt: skip


@pytest.mark.parametrize(
    "state", [ChildState.STARTING, ChildState.WAITING, ChildState.STOPPING, ChildState.DOWN]
)
def test_daemon_is_not_ready_while_a_part_does_not_run(parts: Parts, state: ChildState) -> None:
    assert parts.operator.not_ready() is None
    parts.states["conversion"] = state
    assert parts.operator.not_ready() == state


# Crews


async def test_crews_are_listed_also_those_that_cannot_run(parts: Parts) -> None:
    def listed(name: str | None, state: str, address: str | None, *users: str) -> dict[str, Any]:
        return {
            "name": name,
            "state": state,
            "default": name == "post",
            "baseAddress": address,
            "users": list(users),
            "running": 0,
            "waiting": 0,
        }

    main = "http://127.0.0.1:8787/crews"
    assert (await parts.do("crew list"))["crews"] == [
        listed("post", "ready", f"{main}/post", "ann", "bob"),
        listed("mail", "ready", "http://127.0.0.1:9000"),
        listed("late", "broken", f"{main}/late", "eve"),
        listed(None, "broken", None),
    ]


@pytest.mark.parametrize(("name", "user"), [("post", None), ("post", "ann"), ("late", "eve")])
async def test_a_crews_token_is_shown_and_rotated(
    parts: Parts, nursery: trio.Nursery, name: str, user: str | None
) -> None:
    await nursery.start(parts.tokens.run)
    whose = {"name": name} if user is None else {"name": name, "user": user}
    answer = await parts.do("crew token", **whose)
    assert (answer["crew"], answer["user"]) == (name, user)
    caller = await parts.tokens.caller(name, answer["token"])
    assert (caller.crew, caller.user) == (name, user or "")
    assert await parts.do("crew token", **whose) == answer
    new = (await parts.do("crew token", **whose, rotate=True))["token"]
    assert (await parts.tokens.caller(name, new)).user == (user or "")
    with pytest.raises(WrongCredential):
        await parts.tokens.caller(name, answer["token"])


EMPTY_USER = "user: is empty; name one, or leave it out for the organization token"


@pytest.mark.parametrize(
    ("arguments", "kind", "text"),
    [
        ({}, Invalid, "name: is missing"),
        ({"name": "post", "rotate": "yes"}, Invalid, "rotate: must be true or false"),
        ({"name": "post", "user": ""}, Invalid, EMPTY_USER),
        ({"name": "post", "user": "", "rotate": True}, Invalid, EMPTY_USER),
        ({"name": "pst"}, NotFound, "there is no crew of that name; choose from: post, mail, late"),
        (
            {"name": "post", "user": "eve"},
            NotFound,
            "crew post has no user of that name; choose from: ann, bob",
        ),
    ],
)
async def test_token_of_an_unknown_crew_or_user_is_refused_and_none_is_rotated(
    parts: Parts,
    nursery: trio.Nursery,
    arguments: dict[str, JsonValue],
    kind: type[Refused],
    text: str,
) -> None:
    await nursery.start(parts.tokens.run)
    token = await parts.do("crew token", name="post")
    with pytest.raises(kind) as refused:
        await parts.do("crew token", **arguments)
    assert str(refused.value) == text
    assert await parts.do("crew token", name="post") == token
