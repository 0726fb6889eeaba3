"""API keys: their file, their use and their end."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace

import pytest
import trio
from pydantic import TypeAdapter, ValidationError
from trio.testing import MockClock

from smartlinkd.auth import keys
from smartlinkd.auth.actor import Auth, KeySpec
from smartlinkd.auth.keys import (
    HINT,
    KEYS_FILE,
    MAX_KEYS,
    KeyName,
    Scope,
    WrongKey,
    load_keys,
    save_keys,
)
from smartlinkd.errors import Invalid, NotAllowed, NotFound, Unavailable, WrongCredential
from smartlinkd.state_files import NotSaved, StateUnusable
from tests.auth.conftest import Enable, NewAuth, Running, Shown, WrongCode, log_in
from tests.fakes.files import write_private

HERE = "192.0.2.1"
DAY = 86_400


def wanted(*scopes: Scope, name: str = "a bot", days: int | None = None) -> KeySpec:
    return KeySpec(name, scopes or ("convert",), days)


async def make(auth: Auth, *scopes: Scope, days: int | None = None) -> str:
    made = await auth.create_key_in_shell(wanted(*scopes, days=days))
    return made.key.get_secret_value()


async def last_use(auth: Auth) -> float | None:
    (entry,) = await auth.list_keys()
    return entry.last_used_at


def refuse_to_write(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise NotSaved("no room")

    monkeypatch.setattr(keys, "save_keys", full)


async def test_key_has_what_was_asked_for_and_is_accepted(
    auth: Auth, wall: SimpleNamespace
) -> None:
    made = await auth.create_key_in_shell(wanted("status", "convert", "status", days=2))
    key, entry = made.key.get_secret_value(), made.entry

    assert (entry.name, entry.scopes) == ("a bot", ("convert", "status"))
    assert (entry.created_at, entry.expires_at) == (wall.now, wall.now + 2 * DAY)
    assert (key.startswith("slk_"), len(key), entry.hint) == (True, 47, key[-HINT:])
    assert (await auth.check_key(key)).id == entry.id


@pytest.mark.parametrize("given", ["", "slk_", "slk_" + "A" * 43, "\ud800", "slk_" + "x" * 10_000])
async def test_unknown_key_is_refused(auth: Auth, given: str) -> None:
    await make(auth)
    with pytest.raises(WrongKey, match=r"^the API key is wrong, has expired or was revoked; "):
        await auth.check_key(given)
    assert await last_use(auth) is None


async def test_key_is_refused_from_its_expiry(auth: Auth, wall: SimpleNamespace) -> None:
    key = await make(auth, days=1)
    wall.now += DAY - 1
    await auth.check_key(key)
    wall.now += 1
    with pytest.raises(WrongKey):
        await auth.check_key(key)
    assert len(await auth.list_keys()) == 1  # it is listed until it is revoked


async def test_key_is_in_no_log_and_no_repr(auth: Auth, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("DEBUG")
    made = await auth.create_key_in_shell(wanted("convert", "metrics"))
    await auth.check_key(made.key.get_secret_value())
    await auth.revoke_key(made.entry.id)
    assert caplog.messages == [
        f"API key {made.entry.id} (a bot) was made from the owner's shell, for: convert, metrics",
        f"API key {made.entry.id} (a bot) was revoked",
    ]
    said = caplog.text + repr([made, made.entry, vars(auth)])
    assert made.key.get_secret_value() not in said
    assert made.entry.digest not in said


# Over restarts


def test_keys_file_of_a_newer_daemon_keeps_its_unknown_fields(tmp_path: Path) -> None:
    entry = {
        "id": "1",
        "name": "a bot",
        "scopes": ["convert", "a scope of later"],
        "created_at": 1,
        "expires_at": None,
        "last_used_at": None,
        "hint": "wxyz",
        "digest": "ab" * 32,
        "a field of later": [1],
    }
    written = {"version": 1, "keys": [entry], "another": True}
    write_private(tmp_path / KEYS_FILE, json.dumps(written))
    save_keys(tmp_path, load_keys(tmp_path))
    assert json.loads((tmp_path / KEYS_FILE).read_text()) == written


@pytest.mark.parametrize("content", ["", "{", '{"version": 2}', '{"version": 1, "keys": [{}]}'])
async def test_damaged_keys_file_stops_the_start(
    running: Running, tmp_path: Path, content: str
) -> None:
    write_private(tmp_path / KEYS_FILE, content)
    damaged = pytest.RaisesExc(StateUnusable, match="which ends every API key")
    with pytest.RaisesGroup(damaged):
        async with running():
            pass


# The second factor, sessions


async def test_key_with_a_second_factor_needs_a_code_which_is_used_up(
    auth: Auth, enable: Enable, shown: Shown, wrong_code: WrongCode
) -> None:
    secret, token = await enable(auth)
    session = await auth.check_session(token)
    for none in ("", "12345"):
        with pytest.raises(Invalid, match=r"^code: must be the 6 digits"):
            await auth.create_key(wanted(), session, none, HERE)
    with pytest.raises(WrongCredential, match=r"^code: is wrong"):
        await auth.create_key(wanted(), session, wrong_code(secret), HERE)
    assert await auth.list_keys() == ()
    code = shown(secret)
    await auth.create_key(wanted(), session, f" {code[:3]} {code[3:]}", HERE)
    with pytest.raises(WrongCredential):
        await auth.create_key(wanted(), session, code, HERE)
    assert len(await auth.list_keys()) == 1


async def test_revoke_all_ends_keys_only_when_asked(
    auth: Auth, caplog: pytest.LogCaptureFixture
) -> None:
    key = await make(auth)
    await auth.revoke_all()
    await auth.check_key(key)
    caplog.clear()
    token = await log_in(auth)
    await auth.revoke_all(with_keys=True)
    with pytest.raises(WrongKey):
        await auth.check_key(key)
    with pytest.raises(NotAllowed):
        await auth.check_session(token)
    await auth.revoke_all(with_keys=True)  # with none there is nothing to end
    assert caplog.messages == [
        "1 API keys ended by the operator",
        "every session ended by the operator",
        "every session ended by the operator",
    ]


# Disks


async def test_key_change_that_was_not_saved_has_not_happened(
    auth: Auth, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = await make(auth)
    entry = await auth.check_key(key)
    refuse_to_write(monkeypatch)
    with pytest.raises(Unavailable):
        await make(auth)
    with pytest.raises(Unavailable):
        await auth.revoke_key(entry.id)
    with pytest.raises(Unavailable):
        await auth.revoke_all(with_keys=True)
    assert [each.id for each in await auth.list_keys()] == [entry.id]
    await auth.check_key(key)


# When they were last used


async def test_last_uses_are_written_once_a_minute(
    autojump_clock: MockClock, auth: Auth, wall: SimpleNamespace, tmp_path: Path
) -> None:
    key = await make(auth)
    path = tmp_path / KEYS_FILE
    written = {path.stat().st_mtime_ns}
    for _ in range(300):
        await auth.check_key(key)
        await trio.sleep(1)
        written.add(path.stat().st_mtime_ns)
    await trio.sleep(61)
    with pytest.raises(NotFound):  # a change waits for the one before
        await auth.revoke_key("none")
    assert load_keys(tmp_path).keys[0].last_used_at == wall.now
    assert len(written) <= 7  # the virtual minutes may pass during one save
    last = path.stat().st_mtime_ns
    await trio.sleep(600)
    assert path.stat().st_mtime_ns == last  # nothing was used since


@pytest.mark.parametrize("is_used", [True, False])
async def test_last_use_is_written_at_the_end_and_without_one_nothing_is(
    *, new_auth: NewAuth, running: Running, wall: SimpleNamespace, tmp_path: Path, is_used: bool
) -> None:
    auth = new_auth()
    async with trio.open_nursery() as nursery:
        await nursery.start(auth.run)
        if is_used:
            await auth.check_key(await make(auth))
        auth.stop()
    assert (tmp_path / KEYS_FILE).exists() is is_used
    if is_used:
        async with running() as again:
            assert await last_use(again) == wall.now


async def test_last_use_that_cannot_be_written_is_written_later(
    autojump_clock: MockClock,
    auth: Auth,
    wall: SimpleNamespace,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    key = await make(auth)
    with monkeypatch.context() as patch:
        refuse_to_write(patch)
        await auth.check_key(key)
        await trio.sleep(61)
        with pytest.raises(Unavailable):
            await make(auth)
    assert load_keys(tmp_path).keys[0].last_used_at is None
    with pytest.raises(NotFound):  # waits for a write that is under way; the clock does not
        await auth.revoke_key("none")
    await trio.sleep(61)
    with pytest.raises(NotFound):
        await auth.revoke_key("none")
    assert load_keys(tmp_path).keys[0].last_used_at == wall.now


async def test_51st_key_is_refused_until_one_is_revoked(auth: Auth) -> None:
    for _ in range(MAX_KEYS):
        await make(auth)
    with pytest.raises(Invalid, match=r"^there are 50 API keys already; revoke one"):
        await make(auth)
    await auth.revoke_key((await auth.list_keys())[0].id)
    await make(auth)


@pytest.mark.parametrize(
    ("name", "is_good"),
    [
        *[(name, False) for name in ("", "  ", "x" * 61, "a\nb", "a\x00", "\u200b")],
        *[(name, True) for name in ("x", "x" * 60, "Máy bán hàng 🛒", "  trimmed ")],
    ],
)
def test_key_name_is_1_to_60_printable_characters_and_is_stripped(name: str, is_good: bool) -> None:
    names = TypeAdapter(KeyName)
    if is_good:
        assert names.validate_python(name) == name.strip()
    else:
        with pytest.raises(ValidationError, match="must be 1 to 60 printable characters"):
            names.validate_python(name)


async def test_key_without_a_second_factor_needs_no_code(auth: Auth) -> None:
    session = await auth.check_session(await log_in(auth))
    made = await auth.create_key(wanted(), session, None, HERE)
    await auth.check_key(made.key.get_secret_value())
    with pytest.raises(Invalid, match=r"^code: must be the 6 digits"):
        await auth.create_key(wanted(), session, "", HERE)
