"""A logout ends one session for good."""

from __future__ import annotations

import json
import re
from pathlib import Path
from types import SimpleNamespace

import pytest

from smartlinkd.auth import state
from smartlinkd.auth.actor import Auth, KeySpec
from smartlinkd.auth.files import LOGOUTS_FILE, MAX_LOGOUTS, Logouts, load_logouts, save_logouts
from smartlinkd.errors import NotAllowed, Unavailable
from smartlinkd.state_files import NotSaved, StateUnusable
from tests.auth.conftest import Enable, NewAuth, Running, Shown, log_in
from tests.fakes.files import write_private

HERE = "192.0.2.1"
WEEK = 7 * 86_400


async def log_out(auth: Auth, token: str) -> None:
    await auth.logout(await auth.check_session(token))


async def is_good(auth: Auth, token: str) -> bool:
    try:
        await auth.check_session(token)
    except NotAllowed:
        return False
    return True


async def test_session_after_a_logout_cannot_change_anything(
    auth: Auth, enable: Enable, shown: Shown
) -> None:
    secret, token = await enable(auth)  # the session that was spared
    session = await auth.check_session(token)
    await auth.logout(session)
    with pytest.raises(NotAllowed):
        await auth.disable(session, shown(secret), HERE)
    with pytest.raises(NotAllowed):
        await auth.create_key(KeySpec("a", ["convert"], None), session, shown(secret), HERE)
    assert await auth.has_second_factor()
    await auth.logout(session)  # once more ends nothing


async def test_logout_ends_that_session_and_no_other_and_survives_restart(
    running: Running, tmp_path: Path
) -> None:
    async with running() as auth:
        ended, other = await log_in(auth), await log_in(auth)
        await log_out(auth, ended)
        assert [await is_good(auth, token) for token in (ended, other)] == [False, True]
    assert (tmp_path / LOGOUTS_FILE).stat().st_mode & 0o777 == 0o600
    async with running() as auth:
        assert [await is_good(auth, token) for token in (ended, other)] == [False, True]


async def test_logout_that_was_not_saved_has_not_happened(
    auth: Auth, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise NotSaved("no room")

    token = await log_in(auth)
    with monkeypatch.context() as patch:
        patch.setattr(state, "save_logouts", full)
        with pytest.raises(Unavailable):
            await log_out(auth, token)
    assert await is_good(auth, token)


async def test_logout_is_forgotten_a_day_after_its_expiry(
    auth: Auth, wall: SimpleNamespace, tmp_path: Path
) -> None:
    await log_out(auth, await log_in(auth))
    wall.now += WEEK + 86_400 - 1
    await log_out(auth, await log_in(auth))
    assert len(load_logouts(tmp_path).ended) == 2
    wall.now += 1
    await log_out(auth, await log_in(auth))
    assert len(load_logouts(tmp_path).ended) == 2


async def test_1001st_logout_ends_every_session(
    running: Running, wall: SimpleNamespace, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    ends = int(wall.now) + WEEK
    ended = {f"{number:032x}": ends for number in range(MAX_LOGOUTS - 1)}
    save_logouts(tmp_path, Logouts(ended=ended))
    async with running() as auth:
        first, second, other = [await log_in(auth) for _ in range(3)]
        await log_out(auth, first)
        assert await is_good(auth, other)
        caplog.clear()
        await log_out(auth, second)
        assert [await is_good(auth, token) for token in (first, second, other)] == [False] * 3
        assert caplog.messages[0] == (
            "every session has ended: over 1000 were logged out within days"
        )
        again = await log_in(auth)
        await log_out(auth, again)
        assert len(load_logouts(tmp_path).ended) == 1


def test_logouts_file_of_a_newer_daemon_is_loaded(tmp_path: Path) -> None:
    write_private(tmp_path / LOGOUTS_FILE, json.dumps({"version": 1, "ended": {}, "more": 1}))
    assert load_logouts(tmp_path) == Logouts()


@pytest.mark.parametrize("content", ["", "{", '{"version": 2}', '{"ended": {"a": "b"}}'])
def test_damaged_logouts_file_is_refused(tmp_path: Path, content: str) -> None:
    path = write_private(tmp_path / LOGOUTS_FILE, content)
    with pytest.raises(StateUnusable, match=f"^{re.escape(str(path))} is damaged"):
        load_logouts(tmp_path)


async def test_cookie_name_differs_by_signing_secret(new_auth: NewAuth, running: Running) -> None:
    names = []
    for secret in ("ab" * 32, "ab" * 32, "cd" * 32):
        async with running(new_auth(signing_secret=secret)) as auth:
            names.append(await auth.cookie_name())
    assert names[0] == names[1] != names[2]
    assert all(re.fullmatch("smartlinkd_[0-9a-f]{12}", name) for name in names)
    assert "ab" * 6 not in names[0]
