"""Rotation of crew tokens: what changes, when it counts, and a disk that does not take it."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, contextmanager
from itertools import combinations
from pathlib import Path

import pytest
import trio

from smartlinkd.crews.model import CrewUser
from smartlinkd.crews.tokens import ROTATIONS_AT_ONCE, CrewTokens, TokenVersions, save_versions
from smartlinkd.errors import Invalid, Unavailable
from smartlinkd.supervision.actor import ActorRestarting
from tests.crews.holders import EVERYBODY, USERS, all_shown, is_valid, shown

Running = Callable[..., AbstractAsyncContextManager[CrewTokens]]


@pytest.fixture
async def tokens(running_tokens: Running) -> AsyncIterator[CrewTokens]:
    async with running_tokens(USERS) as one:
        yield one


async def test_a_rotation_returns_what_is_shown(tokens: CrewTokens) -> None:
    new = await tokens.rotate("post", "ann")
    assert new == await tokens.show("post", "ann")


@pytest.mark.parametrize("who", EVERYBODY, ids=str)
async def test_a_rotation_changes_one_token_and_no_other(
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


async def test_no_rotation_brings_a_token_back(tokens: CrewTokens) -> None:
    known = [await shown(tokens, "post")]
    known += [(await tokens.rotate("post")).get_secret_value() for _ in range(5)]
    assert all(one != other for one, other in combinations(known, 2))
    assert [await is_valid(tokens, "post", token) for token in known] == [False] * 5 + [True]


async def test_what_was_rotated_stays_so_when_its_crew_is_away_for_a_while(
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


async def test_rotations_at_the_same_time_are_all_kept(running_tokens: Running) -> None:
    given: dict[CrewUser, str] = {}

    async def rotate(tokens: CrewTokens, who: CrewUser) -> None:
        given[who] = (await tokens.rotate(who.crew, who.user)).get_secret_value()

    async with running_tokens(USERS) as tokens, trio.open_nursery() as nursery:
        for who in EVERYBODY:
            nursery.start_soon(rotate, tokens, who)
    async with running_tokens(USERS) as tokens:
        assert await all_shown(tokens) == given


@contextmanager
def full_disk(folder: Path) -> Iterator[None]:
    """Nothing can be written: the folder is elsewhere for a while."""
    elsewhere = folder.rename(folder.with_name("elsewhere"))
    yield
    elsewhere.rename(folder)


async def test_a_disk_that_refuses_changes_nothing(running_tokens: Running, tmp_path: Path) -> None:
    async with running_tokens(USERS) as tokens:
        before = await all_shown(tokens)
        with full_disk(tmp_path), pytest.raises(Unavailable, match="so nothing was changed"):
            await tokens.rotate("post")
        assert await all_shown(tokens) == before
        assert await is_valid(tokens, "post", before[CrewUser("post")])
        await tokens.rotate("mail")
    async with running_tokens(USERS) as tokens:
        assert await shown(tokens, "post") == before[CrewUser("post")]


async def test_rotation_into_a_full_file_changes_nothing(
    running_tokens: Running, tmp_path: Path
) -> None:
    words = {f"user-{i:05}": "b" * 32 for i in range(21_843)}
    most = TokenVersions(version=1, first="a" * 32, rotated={"old": words})
    save_versions(tmp_path, most)
    async with running_tokens(USERS) as tokens:
        before = await shown(tokens, "post")
        with pytest.raises(Invalid, match="stop the daemon and delete the file"):
            await tokens.rotate("post")
        assert await shown(tokens, "post") == before


async def test_failed_fsync_of_the_folder_ends_the_instance(
    running_tokens: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next one reads what is really there."""
    fsync = os.fsync

    def only_files(descriptor: int) -> None:
        if Path(f"/proc/self/fd/{descriptor}").is_dir():
            raise OSError(5, "Input/output error")
        fsync(descriptor)

    async def rotate(tokens: CrewTokens) -> None:
        with pytest.raises(ActorRestarting):
            await tokens.rotate("post")

    fault = pytest.RaisesExc(OSError, match="Input/output error")
    with pytest.RaisesGroup(fault, flatten_subgroups=True):
        async with running_tokens(USERS) as tokens, trio.open_nursery() as nursery:
            before = await shown(tokens, "post")
            monkeypatch.setattr(os, "fsync", only_files)
            nursery.start_soon(rotate, tokens)
    monkeypatch.undo()
    async with running_tokens(USERS) as tokens:
        assert await shown(tokens, "post") != before


class Disk:
    """A disk that takes as long as the test likes."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.is_slow = False
        self.is_written_to = trio.Event()
        self.goes_on = threading.Event()
        self._fsync = os.fsync
        monkeypatch.setattr(os, "fsync", self.fsync)

    def fsync(self, descriptor: int) -> None:
        if self.is_slow:
            trio.from_thread.run_sync(self.is_written_to.set)
            assert self.goes_on.wait(5)
        self._fsync(descriptor)


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Iterator[Disk]:
    disk = Disk(monkeypatch)
    yield disk
    disk.goes_on.set()


async def test_callers_do_not_wait_for_the_disk(
    tokens: CrewTokens, disk: Disk, nursery: trio.Nursery
) -> None:
    current = await shown(tokens, "post")
    disk.is_slow = True
    for _ in range(ROTATIONS_AT_ONCE):
        nursery.start_soon(tokens.rotate, "post")
    await disk.is_written_to.wait()
    assert await is_valid(tokens, "post", current)
    assert await shown(tokens, "post") == current
    with pytest.raises(Unavailable, match="too many tokens are being rotated"):
        await tokens.rotate("mail")
    disk.goes_on.set()


async def test_who_gives_up_in_the_midst_finds_what_the_disk_has(
    running_tokens: Running, disk: Disk
) -> None:
    async with running_tokens(USERS) as tokens:
        before = await shown(tokens, "post")
        disk.is_slow = True
        async with trio.open_nursery() as nursery:
            nursery.start_soon(tokens.rotate, "post")
            await disk.is_written_to.wait()
            nursery.cancel_scope.cancel()
        disk.goes_on.set()
        await tokens.rotate("mail")  # its turn is after that one
        after = await shown(tokens, "post")
        assert after != before
        assert await is_valid(tokens, "post", after)
    async with running_tokens(USERS) as tokens:
        assert await shown(tokens, "post") == after
