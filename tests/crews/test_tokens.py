"""The crew tokens actor: who is let in as whom, and who is not."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import logging
import re
import traceback
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import pytest
import trio
from pydantic import SecretBytes

from smartlinkd.crews.tokens import MAX_TOKEN, CrewTokens
from smartlinkd.errors import NotFound, WrongCredential
from smartlinkd.state_files import NotSaved, StateUnusable
from tests.crews.holders import EVERYBODY, USERS, all_shown, is_valid, shown

MASTER = bytes(range(32))

Running = Callable[..., AbstractAsyncContextManager[CrewTokens]]


@pytest.fixture
async def tokens(running_tokens: Running) -> AsyncIterator[CrewTokens]:
    async with running_tokens(USERS) as one:
        yield one


# Tokens


async def test_a_token_says_who_calls(tokens: CrewTokens) -> None:
    for who, token in (await all_shown(tokens)).items():
        assert await tokens.caller(who.crew, token) == who


async def test_no_two_are_the_same(tokens: CrewTokens) -> None:
    assert len(set((await all_shown(tokens)).values())) == len(EVERYBODY)


async def test_a_token_tells_its_kind_and_has_256_bits(tokens: CrewTokens) -> None:
    assert re.fullmatch("slc_[A-Za-z0-9_-]{43}", await shown(tokens, "post"))
    assert re.fullmatch("slu_[A-Za-z0-9_-]{43}", await shown(tokens, "post", "ann"))


async def test_a_token_can_be_computed_by_whoever_has_both_files(
    tokens: CrewTokens, tmp_path: Path
) -> None:
    """The form is for good: with another one an update would lock every client out."""
    saved = json.loads((tmp_path / "crew-tokens.json").read_text())
    key = hmac.new(MASTER, b"crew tokens", hashlib.sha256).digest()
    message = f"user\0post\0ann\0{saved['first']}".encode()
    mac = hmac.new(key, message, hashlib.sha256).digest()
    text = base64.urlsafe_b64encode(mac).decode().rstrip("=")
    assert await shown(tokens, "post", "ann") == f"slu_{text}"


async def test_another_master_secret_gives_other_tokens(running_tokens: Running) -> None:
    async with running_tokens(USERS) as tokens:
        before = await shown(tokens, "post")
    async with running_tokens(USERS, master=bytes(32)) as tokens:
        assert await shown(tokens, "post") != before


async def test_a_lost_file_brings_no_token_back(running_tokens: Running, tmp_path: Path) -> None:
    async with running_tokens(USERS) as tokens:
        known = [await shown(tokens, "post"), (await tokens.rotate("post")).get_secret_value()]
    (tmp_path / "crew-tokens.json").unlink()
    async with running_tokens(USERS) as tokens:
        assert [await is_valid(tokens, "post", token) for token in known] == [False, False]


async def test_nothing_of_the_daemons_shows_a_token(
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


# Who is not let in


async def test_without_a_token_nobody_is_let_in(tokens: CrewTokens) -> None:
    for crew in ("post", "nowhere"):
        with pytest.raises(WrongCredential) as refused:
            await tokens.caller(crew, None)
        assert str(refused.value) == (
            "a bearer token is needed: send the header Authorization: Bearer <token>"
        )


async def test_no_token_opens_another_crew(tokens: CrewTokens) -> None:
    for who, token in (await all_shown(tokens)).items():
        others = [crew for crew in (*USERS, "nowhere", "") if crew != who.crew]
        assert [await is_valid(tokens, crew, token) for crew in others] == [False] * 4


WRONG = {
    "empty": lambda token: token[:0],
    "cut off": lambda token: token[:-1],
    "longer": lambda token: token + "A",
    "far longer": lambda token: token.ljust(100_000, "A"),
    "without its end": lambda token: token[:46] + "\0",
    "another prefix": lambda token: "slu_" + token[4:],
    "without prefix": lambda token: token[4:],
    "blank before": lambda token: " " + token,
    "in capitals": lambda token: token.upper(),
    "not ASCII": lambda token: "ü" + token[1:],
    "what looks the same": lambda token: "\N{FULLWIDTH LATIN SMALL LETTER S}" + token[1:],
    "no text at all": lambda token: "\udcff" + token[1:],
    "NUL": lambda token: token + "\0",
}


@pytest.mark.parametrize("spoil", WRONG.values(), ids=list(WRONG))
async def test_what_is_no_token_is_just_wrong(
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


async def test_each_way_of_being_wrong_is_the_same_work(
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


async def test_a_token_without_end_is_not_hashed_whole(
    tokens: CrewTokens, monkeypatch: pytest.MonkeyPatch
) -> None:
    longest = 0
    digest = hmac.digest

    def measuring(key: bytes, message: bytes, name: str) -> bytes:
        nonlocal longest
        longest = max(longest, len(message))
        return digest(key, message, name)

    monkeypatch.setattr(hmac, "digest", measuring)
    assert not await is_valid(tokens, "post", "\N{OK HAND SIGN}" * 60_000)
    assert longest <= 4 * MAX_TOKEN


# Which there are


@pytest.mark.parametrize("ask", [CrewTokens.show, CrewTokens.rotate])
async def test_what_there_is_not_is_answered_with_what_there_is(
    tokens: CrewTokens, ask: Callable[..., object]
) -> None:
    method = getattr(tokens, ask.__name__)
    for whose, text in {
        ("pst", ""): "there is no crew of that name; choose from: post, mail, quiet",
        ("pst", "ann"): "there is no crew of that name; choose from: post, mail, quiet",
        ("post", "eve"): "crew post has no user of that name; choose from: ann, bob",
        ("quiet", "ann"): "crew quiet has no user of that name; the configuration has none",
    }.items():
        with pytest.raises(NotFound) as refused:
            await method(*whose)
        assert str(refused.value) == text


async def test_without_crews_there_are_no_tokens(running_tokens: Running) -> None:
    async with running_tokens({}) as tokens:
        with pytest.raises(NotFound, match="the configuration has none"):
            await tokens.show("post")
        assert not await is_valid(tokens, "post", "slc_" + "A" * 43)


# The start


async def test_a_damaged_file_keeps_the_actor_from_starting(tmp_path: Path) -> None:
    (tmp_path / "crew-tokens.json").write_text("{}")
    (tmp_path / "crew-tokens.json").chmod(0o600)

    with pytest.RaisesGroup(StateUnusable):
        async with trio.open_nursery() as nursery:
            await nursery.start(CrewTokens(tmp_path, SecretBytes(MASTER), USERS).run)


async def test_a_missing_folder_keeps_the_actor_from_starting(tmp_path: Path) -> None:
    with pytest.RaisesGroup(NotSaved):
        async with trio.open_nursery() as nursery:
            await nursery.start(CrewTokens(tmp_path / "gone", SecretBytes(MASTER), USERS).run)


# Other crews and users, while it runs


async def test_whoever_stays_keeps_their_token(running_tokens: Running) -> None:
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


async def test_next_instance_has_the_same_crews(tmp_path: Path, running_tokens: Running) -> None:
    async with running_tokens({"post": ()}) as tokens:
        await tokens.set_users({"new": ("ann",)})
    async with trio.open_nursery() as nursery:
        await nursery.start(tokens.run)
        assert await is_valid(tokens, "new", await shown(tokens, "new", "ann"))
        nursery.cancel_scope.cancel()
