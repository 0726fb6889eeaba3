"""Launching a real Chromium, and what is left of it: nothing. The last is in `profiles`."""

from __future__ import annotations

import errno
import logging
import os
import re
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import trio

from smartlinkd.browser.cdp import CdpConnection, connect
from smartlinkd.browser.chromium import (
    CANDIDATES,
    Chromium,
    LaunchSettings,
    is_sandboxed,
    launch,
    product,
)
from smartlinkd.browser.errors import BrowserFailed, LaunchFailed
from smartlinkd.browser.instance import BrowserInstance
from smartlinkd.browser.page import BrowserContext, Page
from tests.browser.jobs import instance_settings
from tests.shortage import Shortage

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root drops to another user")


@pytest.fixture
def pretend(profiles: Path) -> Iterator[Callable[[str], Path]]:
    """`pretend(script)`: a program in the place of the browser."""
    program = profiles.with_name(f"{profiles.name}-pretender")

    def write(script: str) -> Path:
        program.write_text(f"#!/bin/sh\n{script}\n")
        program.chmod(0o755)
        return program

    yield write
    program.unlink()


def process(pid: int) -> tuple[dict[str, str], int]:
    """The environment and the user id of a process."""
    told = Path(f"/proc/{pid}/environ").read_text(encoding="utf-8")
    environment = dict(line.split("=", 1) for line in told.split("\0") if line)
    return environment, Path(f"/proc/{pid}").stat().st_uid


def session(leader: int) -> list[int]:
    """The processes of a Chromium: they stay in the session of the first. Zombies count."""
    found = []
    for pid in (int(entry.name) for entry in Path("/proc").glob("[0-9]*")):
        with suppress(ProcessLookupError):
            if os.getsid(pid) == leader:
                found.append(pid)
    return found


def private_memory(pid: int) -> int:
    """The bytes of a process that no other process shares."""
    told = Path(f"/proc/{pid}/smaps_rollup").read_text(encoding="ascii")
    return 1024 * sum(int(size) for size in re.findall(r"^Private_\w+: +(\d+) kB", told, re.M))


def only_one(folder: Path) -> Path:
    (one,) = folder.iterdir()
    return one


@asynccontextmanager
async def launched(settings: LaunchSettings) -> AsyncIterator[tuple[Chromium, CdpConnection]]:
    """A Chromium and a connection to it; after the block all its processes are gone."""
    async with launch(settings) as chromium, connect(chromium.endpoint) as connection:
        assert len(session(chromium.pid)) > 1
        yield chromium, connection
    assert session(chromium.pid) == []


async def a_page(connection: CdpConnection) -> Page:
    return await (await BrowserContext.create(connection, ())).new_page()


each_of_debians = pytest.mark.parametrize(
    "executable",
    [
        pytest.param(
            Path(name),
            id=Path(name).name,
            marks=pytest.mark.skipif(not Path(name).exists(), reason="not installed"),
        )
        for name in CANDIDATES[:2]  # Debian's two
    ],
)


@pytest.mark.chromium
@each_of_debians
async def test_each_debian_browser_runs_script_in_its_sandbox(
    executable: Path, settings: LaunchSettings
) -> None:
    async with launched(replace(settings, executable=executable)) as (chromium, connection):
        assert re.fullmatch(r"(Headless)?Chrome/[0-9.]+", await product(connection))
        assert await (await a_page(connection)).evaluate("(a, b) => a + b", 1, 2) == 3
        assert await is_sandboxed(connection)
        own = [private_memory(pid) for pid in session(chromium.pid)]
        assert await chromium.memory() > sum(own)


@pytest.mark.parametrize(
    ("kinds", "said"),
    [(["browser"], "no page is open"), (["browser", "renderer"], "cannot be verified: .*Too many")],
    ids=["without a page", "without a descriptor"],
)
async def test_sandbox_that_cannot_be_read_raises_why(
    conversation: CdpConnection,
    peer: Any,
    nursery: trio.Nursery,
    shortage: Shortage,
    *,
    kinds: list[str],
    said: str,
) -> None:
    processes = [{"type": kind, "id": os.getpid()} for kind in kinds]
    nursery.start_soon(peer.answer, {"processInfo": processes})
    with shortage(), pytest.raises(BrowserFailed, match=said):
        await is_sandboxed(conversation)


@pytest.mark.chromium
async def test_no_sandbox_is_warned_of_and_shown(
    settings: LaunchSettings, caplog: pytest.LogCaptureFixture
) -> None:
    async with launched(replace(settings, no_sandbox=True)) as (_, connection):
        await a_page(connection)
        assert not await is_sandboxed(connection)
    assert [record.levelno for record in caplog.records] == [logging.WARNING]
    assert "browser.no_sandbox" in caplog.text


@as_root
@pytest.mark.chromium
async def test_browser_has_a_private_home_another_user_and_a_clean_environment(
    settings: LaunchSettings, profiles: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SMARTLINKD_SECRET", "secret")
    async with launch(settings) as chromium:
        home = only_one(profiles)
        environment, owner = process(chromium.pid)
        assert (home.stat().st_mode & 0o777, home.stat().st_uid) == (0o700, owner)
    assert environment["HOME"] == environment["TMPDIR"] == str(home)
    assert environment.keys() <= {"PATH", "HOME", "TMPDIR", "LANG", "TZ"}
    assert owner != 0


@pytest.mark.parametrize(
    ("script", "said"),
    [
        ("echo '[1:ERROR:x.cc:1] No usable sandbox! Blah.' >&2; exit 1", "browser.no_sandbox"),
        ("echo 'Running as root without --no-sandbox is not' >&2; exit 1", "browser.user"),
        ("echo '[1:ERROR:x.cc:1] out of luck' >&2; echo noise >&2; exit 3", "code 3: out of luck"),
        (
            "exit 4",
            r"exit code 4: it said nothing; if browser\.executable is no Chromium or Chrome",
        ),
        ("echo usage >&2; exit 2", r"exit code 2: usage; .*set browser\.executable to the path of"),
        ("kill -SEGV $$", "signal 11"),
    ],
    ids=["sandbox", "root", "unknown", "silent", "another program", "crash"],
)
async def test_browser_that_ends_at_once_raises_why(
    script: str, said: str, settings: LaunchSettings, pretend: Callable[[str], Path]
) -> None:
    program = pretend(script)
    with pytest.raises(LaunchFailed, match=said):
        async with launch(replace(settings, executable=program)):
            raise AssertionError("it was launched")


@pytest.mark.parametrize("later", ["", "sleep 0.1; "])
async def test_browser_that_ends_once_it_listens_raises_why(
    settings: LaunchSettings, pretend: Callable[[str], Path], nursery: trio.Nursery, later: str
) -> None:
    path = f"/devtools/browser/{'0' * 36}"
    tell = f"echo DevTools listening on ws://127.0.0.1:1{path} >&2"
    program = pretend(f"{tell}; {later}echo '[1:FATAL:x.cc:1] out of luck' >&2; exit 3")
    instance = BrowserInstance(instance_settings(replace(settings, executable=program)))
    with pytest.raises(LaunchFailed, match=r"exit code 3: out of luck"):
        await nursery.start(instance.run)


async def test_browser_that_is_not_ready_in_time_raises_with_its_setting(
    settings: LaunchSettings, pretend: Callable[[str], Path]
) -> None:
    program = pretend("echo DevTools listening on ws://127.0.0.1:1/dev >&2; sleep 1000")
    with pytest.raises(LaunchFailed, match=r"within 0\.3 s \(browser\.start_timeout\)"):
        async with launch(replace(settings, executable=program, start_timeout=0.3)):
            raise AssertionError("it was launched")


@as_root
@pytest.mark.parametrize(
    ("user", "said"),
    [
        ("no-such-user", r"browser\.user: there is no user 'no-such-user'"),
        ("nobody", r"as user nobody \(browser\.user\): .*denied"),
    ],
    ids=["not there", "may not run it"],
)
async def test_user_that_cannot_start_the_browser_is_named(
    user: str, said: str, settings: LaunchSettings, pretend: Callable[[str], Path]
) -> None:
    program = pretend("exit 0")
    program.chmod(0o700)
    with pytest.raises(LaunchFailed, match=said):
        async with launch(replace(settings, user=user, executable=program)):
            raise AssertionError("it was launched")


@as_root
async def test_profile_that_cannot_be_given_to_its_user_is_removed(
    settings: LaunchSettings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Chromium is launched again for as long as the daemon lives: each time would leave one."""

    def refuse(*_: object) -> None:
        raise PermissionError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(os, "chown", refuse)
    with pytest.raises(LaunchFailed, match="not permitted"):
        async with launch(replace(settings, profiles=tmp_path)):
            raise AssertionError("it was launched")
    assert not [*os.scandir(tmp_path)]
