"""A pause, and whether its owner knows of it, from one daemon to the next."""

from __future__ import annotations

import random
from collections.abc import Mapping
from pathlib import Path

import pytest
import trio
from trio.testing import MockClock

from smartlinkd.app.components import make_desk
from smartlinkd.auth.passwords import hash_password
from smartlinkd.config import Settings, build
from smartlinkd.conversion.pauses import Pauses
from smartlinkd.marketplace.errors import HumanCheck
from smartlinkd.net.client import HttpClient
from smartlinkd.notify.actor import Notifier
from smartlinkd.notify.channels import NotSent
from smartlinkd.notify.notice import DaemonIdentity
from tests.fakes.threads import threads_in_place


class Receiver:
    """The owner's, of which nobody hears anything while it is down."""

    name = "notify.played"

    def __init__(self) -> None:
        self.down = False
        self.heard: list[str] = []

    async def send(self, body: Mapping[str, str]) -> None:
        await trio.lowlevel.checkpoint()
        if self.down:
            raise NotSent("it is down")
        self.heard.append(body["event"])


@pytest.fixture
def settings() -> Settings:
    """A daemon that needs no browser."""
    return build(
        {
            "auth": {"password_hash": hash_password("correct horse")},
            "links": {"source": "open_api"},
            "products": {"source": "none"},
            "open_api": {"app_id": "1", "secret": "s" * 32, "url": "http://127.0.0.1:1/graphql"},
        }
    )


async def live(
    settings: Settings, folder: Path, receiver: Receiver, *, meets_check: bool = False
) -> None:
    """One daemon's life, of a minute and a half, which is killed."""
    pauses = Pauses(folder)
    identity = DaemonIdentity("here", "/state")
    told = pauses.owner_knows
    notifier = Notifier([receiver], identity, on_account_notified=told, chance=random.Random(1))
    async with HttpClient() as http, trio.open_nursery() as nursery:
        desk = make_desk(settings, notifier, http, None, pauses)
        for run in (notifier.run, pauses.run, desk.run):
            await nursery.start(run)
        if meets_check:
            await desk.mailbox.ask(meet_check)
        await trio.sleep(90)
        nursery.cancel_scope.cancel()


async def meet_check(desk: object) -> None:
    """An account of it meets a human check."""
    desk._line(None).pause(HumanCheck(), None)  # type: ignore[attr-defined]


async def test_a_pause_is_told_until_its_owner_knows_whatever_ends_the_daemon(
    settings: Settings,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    autojump_clock: MockClock,
) -> None:
    threads_in_place(monkeypatch)
    receiver = Receiver()
    receiver.down = True
    await live(settings, tmp_path, receiver, meets_check=True)
    await live(settings, tmp_path, receiver)
    assert receiver.heard == []
    receiver.down = False
    await live(settings, tmp_path, receiver)
    assert receiver.heard == ["account_paused"]
    await live(settings, tmp_path, receiver)
    assert receiver.heard == ["account_paused"]
