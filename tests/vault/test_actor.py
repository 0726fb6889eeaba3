"""The vault holds one record, which only a valid cookie replaces, over restarts."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from smartlinkd.errors import Conflict, Invalid
from smartlinkd.supervision.actor import ActorRestarting
from smartlinkd.supervision.child import ChildSpec
from smartlinkd.supervision.policy import Backoff
from smartlinkd.supervision.supervisor import Supervisor
from smartlinkd.vault.actor import MAX_ACCOUNT_NAME, Vault
from smartlinkd.vault.record import CookieRecord

SECRET = "hunter2"
NOW = datetime(2026, 5, 4, 3, 2, 1, 123456, tzinfo=UTC)


@pytest.fixture
def vault() -> Vault:
    return Vault(wall=lambda: NOW)


async def test_stored_cookie_is_current_with_its_label_and_time(
    vault: Vault, nursery: trio.Nursery
) -> None:
    await nursery.start(vault.run)
    assert await vault.current() is None
    await vault.store("a=old", "Old")
    stored, _ = await vault.store("  SPC_U=1;a=b ", "Shop")
    assert (stored.cookie_text, stored.account_name) == ("  SPC_U=1;a=b ", "Shop")
    assert stored.synced_at == NOW
    assert await vault.current() == stored


async def test_store_returns_the_record_before_also_of_calls_that_wait_together(
    vault: Vault, nursery: trio.Nursery
) -> None:
    before_by_record: dict[CookieRecord, CookieRecord | None] = {}

    async def store(cookie_text: str) -> None:
        record, before = await vault.store(cookie_text, "Shop")
        before_by_record[record] = before

    async with trio.open_nursery() as callers:
        for cookie_text in ("a=1", "a=2", "a=3"):
            callers.start_soon(store, cookie_text)
        await wait_all_tasks_blocked()
        await nursery.start(vault.run)
    chain, last = [], await vault.current()
    while last is not None:
        chain.append(last)
        last = before_by_record[last]
    assert len(chain) == 3


@pytest.mark.parametrize(
    ("cookie_text", "account_name", "field"),
    [
        (SECRET, "Shop", "cookie"),
        (f"a={SECRET}\n", "Shop", "cookie"),
        (f"a={SECRET}\ud800", "Shop", "cookie"),
        (f"a={SECRET}", "x" * (MAX_ACCOUNT_NAME + 1), "accountName"),
    ],
)
async def test_refused_cookie_or_label_leaves_the_stored_one(
    *, vault: Vault, nursery: trio.Nursery, cookie_text: str, account_name: str, field: str
) -> None:
    await nursery.start(vault.run)
    stored, _ = await vault.store("a=b", "Shop")
    with pytest.raises(Invalid, match=rf"^{field}: ") as refused:
        await vault.store(cookie_text, account_name)
    assert SECRET not in str(refused.value)
    assert await vault.current() == stored


@pytest.mark.parametrize("account_name", ["", "x" * MAX_ACCOUNT_NAME, "\ud7ff\ue000 ü 😀"])
async def test_label_may_be_any_text_up_to_200_characters(
    vault: Vault, nursery: trio.Nursery, account_name: str
) -> None:
    await nursery.start(vault.run)
    await vault.store("a=b", account_name)
    current = await vault.current()
    assert current is not None
    assert current.account_name == account_name


async def test_cookie_of_another_account_is_refused_with_keep_account(
    vault: Vault, nursery: trio.Nursery
) -> None:
    await nursery.start(vault.run)
    await vault.store("SPC_U=1; SPC_EC=a", "First", keep_account=True)
    same, _ = await vault.store("SPC_U=1; SPC_EC=b", "Same", keep_account=True)
    for other in ("SPC_U=2; SPC_EC=c", "SPC_EC=c"):
        with pytest.raises(Conflict, match=r"^cookie: is another account's than the stored one"):
            await vault.store(other, "Other", keep_account=True)
        assert await vault.current() == same
    replacing, _ = await vault.store("SPC_U=2; SPC_EC=c", "Other")
    assert replacing == await vault.current()


async def test_crash_keeps_the_record_and_shows_nothing_of_the_cookie(
    *,
    nursery: trio.Nursery,
    autojump_clock: MockClock,
    caplog: pytest.LogCaptureFixture,
) -> None:
    def keep(record: CookieRecord) -> None:
        if record.account_name == "Other":
            raise RuntimeError("a bug")

    vault = Vault(keep=keep)
    spec = ChildSpec("vault", vault.run, mailbox=vault.mailbox)
    supervisor = Supervisor("tree", [spec], backoff=Backoff(first=1.0))
    await nursery.start(supervisor.run)
    stored, _ = await vault.store("a=b", "Shop")
    with pytest.raises(ActorRestarting):
        await vault.store(f"a={SECRET}", "Other")
    assert await vault.current() == stored
    assert supervisor.snapshot()[0].restarts == 1
    assert "a bug" in caplog.text
    assert SECRET not in caplog.text
    assert SECRET not in repr(supervisor.snapshot())
