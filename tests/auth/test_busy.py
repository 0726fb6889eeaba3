"""Who waits for whom when there is much to do."""

from __future__ import annotations

import threading
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
import trio
import trio.testing

from daemon.auth import doorkeeper, passwords
from daemon.auth.actor import Auth
from daemon.auth.state import Saved, save
from daemon.errors import Unavailable
from daemon.supervision.actor import Overloaded

Log_in = Callable[[Auth], Awaitable[str]]

BUSY = r"^too many logins or changes at once; try again shortly$"


async def test_a_token_is_checked_while_everything_else_stands_still(
    auth: Auth, log_in: Log_in, monkeypatch: pytest.MonkeyPatch
) -> None:
    token = await log_in(auth)
    gate = threading.Event()

    def matches(_: str, __: str) -> bool:
        return gate.wait(10)

    def slow_save(directory: Path, saved: Saved) -> None:
        gate.wait(10)
        save(directory, saved)

    monkeypatch.setattr(passwords, "_matches", matches)
    monkeypatch.setattr(doorkeeper, "save", slow_save)

    async with trio.open_nursery() as nursery:
        for n in range(32):
            nursery.start_soon(auth.login, "the right one", f"192.0.2.{n}")
        for _ in range(16):
            nursery.start_soon(auth.second_factor_off)
        await trio.testing.wait_all_tasks_blocked()

        with trio.fail_after(5):
            await auth.check_session(token)
            await auth.second_factor_enabled()
            await auth.begin_setup()
            with pytest.raises(Unavailable, match=BUSY) as refused:
                await auth.login("the right one", "198.51.100.1")
            assert refused.value.retry_after == 1
            with pytest.raises(Unavailable, match=BUSY):
                await auth.second_factor_off()
        gate.set()

    await auth.login("the right one", "198.51.100.1")
    await auth.revoke_all()


@pytest.mark.parametrize(("burst", "too_many"), [(1025, 0), (1026, 1)])
async def test_a_burst_of_a_thousand_requests_is_answered(
    burst: int, too_many: int, auth: Auth, log_in: Log_in
) -> None:
    """1024 wait, and the actor takes the first as it comes."""
    token = await log_in(auth)
    overloaded = 0

    async def check() -> None:
        nonlocal overloaded
        try:
            await auth.check_session(token)
        except Overloaded:
            overloaded += 1

    async with trio.open_nursery() as nursery:
        for _ in range(burst):
            nursery.start_soon(check)

    assert overloaded == too_many
