"""Crew tokens: who is let in, rotation, their file, and the master secret."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import logging
import os
import threading
import traceback
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import pytest
import trio
from pydantic import SecretBytes, SecretStr

from smartlinkd.crews.model import CrewUser
from smartlinkd.crews.tokens import (
    CrewTokens,
    TokenVersions,
    derive,
    load_master_secret,
    load_versions,
    save_versions,
)
from smartlinkd.errors import Invalid, Unavailable, WrongCredential
from smartlinkd.state_files import StateUnusable
from smartlinkd.supervision.actor import ActorRestarting
from tests.fakes.files import fail_folder_fsync, unwritable

USERS: dict[str, tuple[str, ...]] = {"post": ("ann", "bob"), "mail": ("ann",), "quiet": ()}
EVERYBODY = [CrewUser(crew, user) for crew, users in USERS.items() for user in ("", *users)]


async def shown(tokens: CrewTokens, crew: str, user: str = "") -> str:
    return (await tokens.show(crew, user)).get_secret_value()


async def all_shown(tokens: CrewTokens) -> dict[CrewUser, str]:
    return {who: await shown(tokens, who.crew, who.user) for who in EVERYBODY}


async def is_valid(tokens: CrewTokens, crew: str, token: str) -> bool:
    try:
        await tokens.caller(crew, token)
    except WrongCredential:
        return False
    return True


MASTER = bytes(range(32))
Running = Callable[..., AbstractAsyncContextManager[CrewTokens]]


@pytest.fixture
async def tokens(running_tokens: Running) -> AsyncIterator[CrewTokens]:
    async with running_tokens(USERS) as one:
        yield one


async def test_token_is_computed_from_both_files_in_a_fixed_form(
    tokens: CrewTokens, tmp_path: Path
) -> None:
    """The form is for good: with another one an update would lock every client out."""
    saved = json.loads((tmp_path / "crew-tokens.json").read_text())
    key = hmac.new(MASTER, b"crew tokens", hashlib.sha256).digest()
    for kind, prefix, user in (("user", "slu_", "ann"), ("organization", "slc_", "")):
        message = f"{kind}\0post\0{user}\0{saved['first']}".encode()
        mac = hmac.new(key, message, hashlib.sha256).digest()
        text = base64.urlsafe_b64encode(mac).decode().rstrip("=")
        assert await shown(tokens, "post", user) == prefix + text


async def test_token_is_in_no_log_repr_or_file(
    running_tokens: Running, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    async with running_tokens(USERS) as tokens:
        told = [repr(tokens), str(vars(tokens)), repr(await tokens.show("post"))]
        secret = [await shown(tokens, "post"), (await tokens.rotate("post")).get_secret_value()]
        with pytest.raises(WrongCredential) as refused:
            await tokens.caller("mail", secret[1])
    told += [caplog.text, "".join(traceback.format_exception(refused.value))]
    told += [(tmp_path / "crew-tokens.json").read_text()]
    assert not [token for token in secret if token in "".join(told)]


async def test_token_names_its_caller_and_opens_no_other_crew(tokens: CrewTokens) -> None:
    for who, token in (await all_shown(tokens)).items():
        assert await tokens.caller(who.crew, token) == who
        others = [crew for crew in (*USERS, "nowhere", "") if crew != who.crew]
        assert [await is_valid(tokens, crew, token) for crew in others] == [False] * 4


WRONG = {
    "cut off": lambda token: token[:-1],
    "longer": lambda token: token + "A",
    "far longer": lambda token: token.ljust(100_000, "A"),
    "not ASCII": lambda token: "ü" + token[1:],
    "no text at all": lambda token: "\udcff" + token[1:],
}


@pytest.mark.parametrize("spoil", WRONG.values(), ids=list(WRONG))
async def test_malformed_token_is_refused_as_a_wrong_one(
    tokens: CrewTokens, spoil: Callable[[str], str]
) -> None:
    wrong = spoil(await shown(tokens, "post"))
    for crew in ("post", "nowhere"):
        with pytest.raises(WrongCredential) as refused:
            await tokens.caller(crew, wrong)
        assert str(refused.value) == (
            "the bearer token is not valid here: it may be another crew's, or was rotated, or its "
            "crew or user is no longer in the configuration; the crew's owner has the current one"
        )


async def test_refusing_any_wrong_token_takes_the_same_steps(
    tokens: CrewTokens, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Counted, not measured: a hash of what was sent, and nothing for each crew or user."""
    foreign = await shown(tokens, "mail", "ann")
    hashed: list[int] = []
    digest = hmac.digest

    def counting(key: bytes, message: bytes, name: str) -> bytes:
        hashed.append(len(message))
        return digest(key, message, name)

    monkeypatch.setattr(hmac, "digest", counting)
    for crew, token in (
        ("post", "slu_" + "A" * 43),
        ("post", foreign),
        ("quiet", foreign),
        ("nowhere", foreign),
        ("nowhere", "slu_" + "A" * 43),
    ):
        assert not await is_valid(tokens, crew, token)
    assert hashed == [47] * 5


async def test_reload_keeps_the_tokens_of_those_who_stay_and_outlives_a_restart(
    running_tokens: Running,
) -> None:
    async with running_tokens({"post": ("ann", "bob"), "old": ()}) as tokens:
        before = {name: await shown(tokens, "post", name) for name in ("", "ann", "bob")}
        old = await shown(tokens, "old")
        await tokens.set_users({"post": ("ann", "eve"), "new": ()})
        assert await shown(tokens, "post", "ann") == before["ann"]
        assert await is_valid(tokens, "post", before[""])
        assert await is_valid(tokens, "post", await shown(tokens, "post", "eve"))
        assert await is_valid(tokens, "new", await shown(tokens, "new"))
        assert not await is_valid(tokens, "post", before["bob"])
        assert not await is_valid(tokens, "old", old)
    async with trio.open_nursery() as nursery:
        await nursery.start(tokens.run)
        assert await is_valid(tokens, "new", await shown(tokens, "new"))
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize("who", EVERYBODY, ids=str)
async def test_rotation_changes_one_token_alone(
    running_tokens: Running, who: CrewUser, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "smartlinkd.crews.tokens")
    async with running_tokens(USERS) as tokens:
        before = await all_shown(tokens)
        new = (await tokens.rotate(who.crew, who.user)).get_secret_value()
        after = await all_shown(tokens)
        assert after == {**before, who: new}
        assert new != before[who]
        assert not await is_valid(tokens, who.crew, before[who])
        assert await tokens.caller(who.crew, new) == who
    whose = f"user {who.user}" if who.user else "organization"
    assert caplog.messages[1:] == [f"rotated the token of crew {who.crew}, {whose}"]
    async with running_tokens(USERS) as tokens:
        assert await all_shown(tokens) == after


async def test_rotated_token_stays_invalid_after_its_crew_was_away(
    running_tokens: Running,
) -> None:
    async with running_tokens(USERS) as tokens:
        old = await all_shown(tokens)
        for who in (CrewUser("post"), CrewUser("post", "ann")):
            await tokens.rotate(who.crew, who.user)
        rotated = await all_shown(tokens)
    async with running_tokens({"mail": ("ann",)}) as tokens:
        for token in rotated.values():
            assert not await is_valid(tokens, "post", token)
        await tokens.rotate("mail")
    async with running_tokens(USERS) as tokens:
        back = await all_shown(tokens)
        assert {who for who in EVERYBODY if back[who] != rotated[who]} == {CrewUser("mail")}
        assert not await is_valid(tokens, "post", old[CrewUser("post")])
        assert not await is_valid(tokens, "post", old[CrewUser("post", "ann")])


async def test_rotation_on_a_full_disk_changes_nothing(
    running_tokens: Running, tmp_path: Path
) -> None:
    async with running_tokens(USERS) as tokens:
        before = await all_shown(tokens)
        with unwritable(tmp_path), pytest.raises(Unavailable, match="so nothing was changed"):
            await tokens.rotate("post")
        assert await all_shown(tokens) == before
        assert await is_valid(tokens, "post", before[CrewUser("post")])
        await tokens.rotate("mail")
    async with running_tokens(USERS) as tokens:
        assert await shown(tokens, "post") == before[CrewUser("post")]


async def test_rotation_whose_caller_gives_up_is_as_the_disk_has_it(
    running_tokens: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    fsync, writes, goes_on = os.fsync, trio.Event(), threading.Event()

    def slow_fsync(descriptor: int) -> None:
        trio.from_thread.run_sync(writes.set)
        assert goes_on.wait(5)
        fsync(descriptor)

    async with running_tokens(USERS) as tokens:
        before = await shown(tokens, "post")
        monkeypatch.setattr(os, "fsync", slow_fsync)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(tokens.rotate, "post")
            await writes.wait()
            nursery.cancel_scope.cancel()
        goes_on.set()
        await tokens.rotate("mail")  # its turn is after that one
        after = await shown(tokens, "post")
        assert after != before
        assert await is_valid(tokens, "post", after)
    async with running_tokens(USERS) as tokens:
        assert await shown(tokens, "post") == after


async def test_failed_fsync_of_the_folder_restarts_the_actor(
    running_tokens: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next one reads what is really there."""

    async def rotate(tokens: CrewTokens) -> None:
        with pytest.raises(ActorRestarting):
            await tokens.rotate("post")

    fault = pytest.RaisesExc(OSError, match="Input/output error")
    with pytest.RaisesGroup(fault, flatten_subgroups=True):
        async with running_tokens(USERS) as tokens, trio.open_nursery() as nursery:
            before = await shown(tokens, "post")
            fail_folder_fsync(monkeypatch)
            nursery.start_soon(rotate, tokens)
    monkeypatch.undo()
    async with running_tokens(USERS) as tokens:
        assert await shown(tokens, "post") != before


A, B, C = "a" * 32, "b" * 32, "c" * 32
SOME = TokenVersions(version=1, first=A, rotated={"post": {"": B, "ann": C}})


GOOD = {"version": 1, "first": A, "rotated": {"post": {"": B, "ann": C}}}


def test_saved_versions_are_loaded(tmp_path: Path) -> None:
    save_versions(tmp_path, SOME)

    assert load_versions(tmp_path) == SOME
    assert json.loads((tmp_path / "crew-tokens.json").read_text()) == GOOD


def test_first_start_makes_the_file_without_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)

    made = load_versions(tmp_path)

    assert made.rotated == {}
    assert load_versions(tmp_path) == made
    assert [(r.levelno, r.getMessage()) for r in caplog.records] == [
        (
            logging.INFO,
            f"{tmp_path}/crew-tokens.json was not there: made one; the tokens of all crews are new",
        )
    ]


def test_lost_file_makes_no_rotated_token_valid(tmp_path: Path) -> None:
    before = load_versions(tmp_path)
    save_versions(tmp_path, before.with_new("post", ""))
    (tmp_path / "crew-tokens.json").unlink()

    assert load_versions(tmp_path).of("post", "") != before.of("post", "")


DAMAGED = {
    "cut off": json.dumps(GOOD)[:-1],
    "not UTF-8": "\xff",
    "newer": json.dumps({**GOOD, "version": 2}),
    "unknown field": json.dumps({**GOOD, "more": 1}),
    "more than a word": json.dumps({**GOOD, "rotated": {"post": {"": B + "\n"}}}),
}


@pytest.mark.parametrize("content", DAMAGED.values(), ids=list(DAMAGED))
def test_damaged_versions_file_is_refused_and_kept(content: str, tmp_path: Path) -> None:
    save_versions(tmp_path, SOME)
    path = tmp_path / "crew-tokens.json"
    path.write_text(content, encoding="latin-1")

    with pytest.raises(StateUnusable) as refused:
        load_versions(tmp_path)

    assert str(refused.value) == (
        f"{path} is damaged, or of another version of smartlinkd: restore it from a backup, "
        "or delete it, which gives every crew new tokens"
    )
    assert path.read_text(encoding="latin-1") == content


def test_file_over_its_limit_is_refused_and_the_saved_one_stays(tmp_path: Path) -> None:
    full = TokenVersions(
        version=1, first=A, rotated={"post": {f"user-{i}": B for i in range(30_000)}}
    )
    save_versions(tmp_path, SOME)

    with pytest.raises(Invalid, match="would have more than 1048576 bytes; stop the daemon and"):
        save_versions(tmp_path, full)

    assert load_versions(tmp_path) == SOME


def test_master_secret_is_the_configured_one_or_made_and_kept(tmp_path: Path) -> None:
    configured = load_master_secret(tmp_path, SecretStr("0aF0" * 16))
    assert configured.get_secret_value() == bytes.fromhex("0af0" * 16)
    assert list(tmp_path.iterdir()) == []

    made = load_master_secret(tmp_path, SecretStr(""))
    assert made == load_master_secret(tmp_path, SecretStr(""))
    assert made != configured
    assert (tmp_path / "crew-master-secret").exists()


def test_derived_keys_differ_by_their_use() -> None:
    key = derive(SecretBytes(MASTER), "journal").get_secret_value()

    assert key == hmac.new(MASTER, b"journal", hashlib.sha256).digest()
    assert key != derive(SecretBytes(MASTER), "crew tokens").get_secret_value()
    assert key != derive(SecretBytes(bytes(32)), "journal").get_secret_value()
