"""Calls are bounded, and tokens are checked under any load."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
import trio
import trio.testing

from smartlinkd.auth import passwords, state
from smartlinkd.auth.actor import Auth
from smartlinkd.auth.files import SavedState, save
from smartlinkd.errors import Unavailable
from tests.auth.conftest import log_in

BUSY = r"^too many logins or changes at once; try again shortly$"


@pytest.mark.parametrize("address", ["192.0.2.{}", "192.0.2.1"], ids=["many", "one"])
async def test_token_is_checked_while_logins_and_the_disk_hang(
    auth: Auth, monkeypatch: pytest.MonkeyPatch, address: str
) -> None:
    """Whoever it is that logs in: of one address most wait for the verdicts of the others."""
    token = await log_in(auth)
    gate = threading.Event()

    def matches(_: str, __: str) -> bool:
        return gate.wait(10)

    def slow_save(directory: Path, saved: SavedState) -> None:
        gate.wait(10)
        save(directory, saved)

    monkeypatch.setattr(passwords, "matches", matches)
    monkeypatch.setattr(state, "save", slow_save)

    async with trio.open_nursery() as nursery:
        for n in range(32):
            nursery.start_soon(auth.login, "the right one", address.format(n))
        for _ in range(16):
            nursery.start_soon(auth.reset_second_factor)
        await trio.testing.wait_all_tasks_blocked()

        with trio.fail_after(5):
            await auth.check_session(token)
            await auth.has_second_factor()
            await auth.begin_setup()
            with pytest.raises(Unavailable, match=BUSY) as refused:
                await auth.login("the right one", "198.51.100.1")
            assert refused.value.retry_after == 1
            with pytest.raises(Unavailable, match=BUSY):
                await auth.reset_second_factor()
        gate.set()

    await auth.login("the right one", "198.51.100.1")
    await auth.revoke_all()
