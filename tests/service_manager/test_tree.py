"""The daemon's own tree: every loop in it is watched, and one that hangs is seen."""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
import trio

from smartlinkd.app import tree
from smartlinkd.auth.passwords import hash_password
from smartlinkd.config import build
from smartlinkd.crews.webhooks.dispatcher import WebhookDispatcher
from smartlinkd.errors import Refused
from smartlinkd.supervision.actor import Mailbox
from smartlinkd.supervision.blocking import BlockingMailbox
from smartlinkd.supervision.heartbeat import WatchedLoop
from smartlinkd.supervision.supervisor import Supervisor

PATIENCE = 20.0
MORE_THAN_ALL_HANDS = 600
"""Of the part that has the most."""
HANG = 30.0
"""Seconds that a thread hangs at the most, so that a test that fails comes to its end."""
ACTORS = [
    *("auth", "vault", "history", "browser", "conversion", "crew tokens", "journal", "executor")
]
BY_ITSELF = "browser upkeep"
"""It goes round without being probed; this one's tests: tests/browser/test_actor.py."""
LOOPS = [
    *("smartlinkd", "pauses", "auth", "vault", "history", "browser", BY_ITSELF, "conversion"),
    *("crew tokens", "crews", "journal", "executor", "webhooks"),
]
HASH = hash_password("correct horse")


@asynccontextmanager
async def planted(directory: Path, patch: pytest.MonkeyPatch) -> AsyncIterator[Supervisor]:
    """The supervisor of a daemon that runs."""
    made: list[Supervisor] = []

    def note(*args: Any, **more: Any) -> Supervisor:
        made.append(Supervisor(*args, **more))
        return made[-1]

    patch.setattr(tree, "Supervisor", note)
    settings = build(
        {
            "server": {"bind": "127.0.0.1:0"},
            "state": {"directory": str(directory / "state")},
            "auth": {"password_hash": HASH},
            "browser": {"executable": "/nowhere/chromium", "job_timeout": 77},
        }
    )
    async with trio.open_nursery() as nursery:
        await nursery.start(tree.serve, settings)
        yield made[-1]
        nursery.cancel_scope.cancel()


Planted = Callable[[], Any]


@pytest.fixture
def daemon(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Planted:
    return lambda: planted(tmp_path, monkeypatch)


def vital(supervisor: Supervisor, name: str) -> WatchedLoop:
    (found,) = (each for each in supervisor.watched_loops() if each.name == name)
    return found


async def beats(one: WatchedLoop, *, since: float) -> None:
    """Wait until it has shown a sign of life."""
    with trio.fail_after(PATIENCE):
        while one.heartbeat.last <= since:
            one.heartbeat.probe()
            await trio.sleep(0.01)


async def test_every_loop_is_watched(daemon: Planted) -> None:
    async with daemon() as supervisor:
        assert [each.name for each in supervisor.watched_loops()] == LOOPS


async def test_every_loop_shows_signs_of_life_whenever_it_is_prompted(daemon: Planted) -> None:
    async with daemon() as supervisor:
        for _ in range(3):
            since = trio.current_time()
            for each in supervisor.watched_loops():
                if each.name != BY_ITSELF:
                    await beats(each, since=since)


async def test_those_whose_work_is_long_may_have_all_hands_busy_that_long(daemon: Planted) -> None:
    async with daemon() as supervisor:
        busy = {each.name: each.busy for each in supervisor.watched_loops() if each.busy}
    assert busy == {
        **dict.fromkeys(("browser", BY_ITSELF), 77 + 5.0),
        **dict.fromkeys(("pauses", "history", "journal", "executor", "webhooks"), 60.0),
    }


async def test_whoever_stands_still_with_the_journal_may_do_so_as_long_as_it(
    daemon: Planted,
) -> None:
    let_go = threading.Event()

    async def keep(mailbox: BlockingMailbox[Any]) -> None:
        with suppress(Refused):
            await mailbox.ask(lambda _: let_go.wait(HANG))

    async with daemon() as supervisor, trio.open_nursery() as nursery:
        journal = vital(supervisor, "journal")
        nursery.start_soon(keep, journal.heartbeat.probe.__self__)  # type: ignore[attr-defined]
        await trio.testing.wait_all_tasks_blocked(0.05)
        for _ in range(2):  # the first has the loop of the webhooks ask the journal
            since = trio.current_time()
            for each in supervisor.watched_loops():
                each.heartbeat.probe()
            await trio.testing.wait_all_tasks_blocked(0.05)
        still = {
            each.name: each.busy
            for each in supervisor.watched_loops()
            if each.heartbeat.last < since
        }
        del still[BY_ITSELF]
        assert still == dict.fromkeys(("journal", "webhooks"), tree.DISK_TIMEOUT_S)
        nursery.cancel_scope.cancel()
        let_go.set()


@pytest.mark.parametrize("name", ACTORS)
async def test_an_actor_that_hangs_shows_none(daemon: Planted, name: str) -> None:
    release, let_go = trio.Event(), threading.Event()

    async def hang(_: object) -> None:
        with trio.CancelScope(shield=True):
            await release.wait()

    async def ask(mailbox: Mailbox[Any] | BlockingMailbox[Any]) -> None:
        with suppress(Refused):
            if isinstance(mailbox, Mailbox):
                await mailbox.ask(hang)
            else:
                await mailbox.ask(lambda _: let_go.wait(HANG))

    async with daemon() as supervisor, trio.open_nursery() as nursery:
        one = vital(supervisor, name)
        mailbox = one.heartbeat.probe.__self__  # type: ignore[attr-defined]
        for _ in range(MORE_THAN_ALL_HANDS):
            nursery.start_soon(ask, mailbox)
        await trio.testing.wait_all_tasks_blocked(0.05)
        since = trio.current_time()
        for each in supervisor.watched_loops():
            # The last two ask the journal.
            if each.name not in (name, BY_ITSELF, "webhooks", "crews"):
                await beats(each, since=since)
        assert one.heartbeat.last < since
        nursery.cancel_scope.cancel()
        release.set()
        let_go.set()


async def test_the_webhooks_loop_is_seen_to_hang(
    daemon: Planted, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def hang(_: object) -> list[object]:
        await trio.sleep_forever()
        raise AssertionError

    monkeypatch.setattr(WebhookDispatcher, "_next", hang)
    async with daemon() as supervisor:
        since = trio.current_time()
        await beats(vital(supervisor, "journal"), since=since)
        one = vital(supervisor, "webhooks")
        one.heartbeat.probe()
        await trio.testing.wait_all_tasks_blocked(0.05)
        assert one.heartbeat.last < since
