"""Restarts, disks that fail, callers that leave."""

from __future__ import annotations

import threading
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import pytest
import trio
import trio.testing

from smartlinkd.auth import state
from smartlinkd.auth.actor import Auth
from smartlinkd.auth.files import SavedState, load, save
from smartlinkd.errors import Invalid, NotAllowed, Unavailable, WrongCredential
from smartlinkd.supervision.actor import ActorRestarting
from smartlinkd.threads import NoThread
from tests.auth.conftest import Enable, NewAuth, Running, Shown, begin_login, log_in
from tests.fakes.files import fail_folder_fsync, unwritable
from tests.shortage import Shortage

HERE = "192.0.2.1"


async def test_restart_keeps_sessions_and_used_codes(
    running: Running, enable: Enable, shown: Shown
) -> None:
    async with running() as auth:
        ended = await log_in(auth)
        secret, spared = await enable(auth)
        used = shown(secret)
        current = await auth.verify_mfa(await begin_login(auth), used, HERE)

    async with running() as auth:
        await auth.check_session(spared)
        await auth.check_session(current)
        with pytest.raises(NotAllowed):
            await auth.check_session(ended)
        temp_token = await begin_login(auth)
        with pytest.raises(WrongCredential):
            await auth.verify_mfa(temp_token, used, HERE)
        await auth.verify_mfa(temp_token, shown(secret, ahead=30), HERE)


CANNOT_WRITE = (
    r"^the daemon could not write to its state directory, so nothing was changed; "
    r"see its log, make room, and try again$"
)


async def test_disk_error_after_a_write_restarts_the_actor_which_reads_the_disk(
    new_auth: NewAuth, running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    auth = new_auth()
    with pytest.RaisesGroup(pytest.RaisesGroup(OSError)):
        async with running(auth):
            token = await log_in(auth)
            fail_folder_fsync(monkeypatch)
            with pytest.raises(ActorRestarting, match=r"^the auth part of the daemon"):
                await auth.revoke_all()
            await trio.sleep_forever()

    async with running(auth):
        with pytest.raises(NotAllowed):
            await auth.check_session(token)


async def test_calls_without_a_thread_are_refused_and_change_and_count_nothing(
    auth: Auth, enable: Enable, shown: Shown, no_thread: Shortage
) -> None:
    secret, token = await enable(auth)
    session = await auth.check_session(token)
    temp_token, code = await begin_login(auth), shown(secret)
    asked: list[Callable[[], Awaitable[object]]] = [
        partial(auth.login, "the right one", HERE),
        partial(auth.verify_mfa, temp_token, code, HERE),
        partial(auth.disable, session, code, HERE),
        auth.reset_second_factor,
        auth.revoke_all,
    ]
    with no_thread():
        for ask in asked * 10:
            with pytest.raises(NoThread):
                await ask()
        await auth.check_session(token)

    assert await auth.has_second_factor()
    await auth.verify_mfa(temp_token, code, HERE)


class SlowDisk:
    """Saving stops in its thread until it is told to go on."""

    def __init__(self) -> None:
        self._reached, self._go_on = threading.Semaphore(0), threading.Event()
        self.saves = 0

    def save(self, directory: Path, saved: SavedState) -> None:
        self.saves += 1
        self._reached.release()
        assert self._go_on.wait(10)
        save(directory, saved)

    async def reached(self) -> None:
        assert await trio.to_thread.run_sync(partial(self._reached.acquire, timeout=5))

    def go_on(self) -> None:
        self._go_on.set()


async def test_caller_that_leaves_during_a_save_leaves_a_whole_change(
    auth: Auth, enable: Enable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = SlowDisk()
    monkeypatch.setattr(state, "save", disk.save)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(enable, auth)
        await disk.reached()
        nursery.cancel_scope.cancel()
    assert not await auth.has_second_factor()
    disk.go_on()

    with pytest.raises(NotAllowed):  # after it in the line, so the change is done
        await auth.verify_mfa("", "123456", HERE)
    assert await auth.has_second_factor()
    assert load(tmp_path).second_factor is not None


async def test_code_sent_twice_at_the_same_time_is_accepted_once(
    auth: Auth, enable: Enable, shown: Shown, monkeypatch: pytest.MonkeyPatch
) -> None:
    secret, _ = await enable(auth)
    temp_tokens = [await begin_login(auth) for _ in range(3)]
    disk = SlowDisk()
    monkeypatch.setattr(state, "save", disk.save)
    outcomes: list[str] = []

    async def verify(temp_token: str) -> None:
        try:
            await auth.verify_mfa(temp_token, shown(secret), HERE)
            outcomes.append("in")
        except WrongCredential:
            outcomes.append("refused")

    async with trio.open_nursery() as nursery:
        for temp_token in temp_tokens:
            nursery.start_soon(verify, temp_token)
        await disk.reached()
        await trio.testing.wait_all_tasks_blocked()
        disk.go_on()

    assert sorted(outcomes) == ["in", "refused", "refused"]
    assert disk.saves == 1


async def test_change_that_was_not_saved_has_not_happened_and_can_be_repeated(
    auth: Auth, enable: Enable, shown: Shown, wall: SimpleNamespace, tmp_path: Path
) -> None:
    token = await log_in(auth)
    session = await auth.check_session(token)
    secret = (await auth.begin_setup()).secret
    code = shown(secret)
    with unwritable(tmp_path):
        with pytest.raises(Unavailable, match=CANNOT_WRITE) as refused:
            await auth.revoke_all()
        assert refused.value.retry_after == 30
        with pytest.raises(Unavailable):
            await auth.enable(session, secret, code, HERE)
    assert not await auth.has_second_factor()
    await auth.check_session(token)
    await auth.enable(session, secret, code, HERE)

    wall.now += 30
    temp_token, code = await begin_login(auth), shown(secret)
    with unwritable(tmp_path):
        for _ in range(10):  # which is nobody's failure
            with pytest.raises(Unavailable):
                await auth.verify_mfa(temp_token, code, HERE)
        with pytest.raises(Unavailable):
            await auth.disable(session, code, HERE)
    assert await auth.has_second_factor()
    await auth.verify_mfa(temp_token, code, HERE)
    wall.now += 30
    await auth.disable(session, shown(secret), HERE)
    assert load(tmp_path).second_factor is None


async def test_restart_ends_unfinished_logins_and_setups(
    new_auth: NewAuth, running: Running, enable: Enable, shown: Shown
) -> None:
    auth = new_auth()
    async with running(auth):
        secret, token = await enable(auth)
        temp_token = await begin_login(auth)
    async with running(auth):
        with pytest.raises(NotAllowed):
            await auth.verify_mfa(temp_token, shown(secret), HERE)
        await auth.reset_second_factor()
        secret = (await auth.begin_setup()).secret
    async with running(auth):
        session = await auth.check_session(token)
        with pytest.raises(Invalid, match=r"^secret: is not the latest"):
            await auth.enable(session, secret, shown(secret), HERE)
