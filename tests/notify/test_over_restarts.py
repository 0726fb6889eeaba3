"""A pause, and whether its owner knows of it, from one daemon to the next."""

from __future__ import annotations

import random
from collections.abc import Mapping
from pathlib import Path

import pytest
import trio
from trio.testing import MockClock

from smartlinkd.app.components import make_conversion
from smartlinkd.auth.passwords import hash_password
from smartlinkd.config import Settings, build
from smartlinkd.conversion.pause_store import PauseStore
from smartlinkd.net.client import HttpClient
from smartlinkd.notify.actor import Notifier
from smartlinkd.notify.channels import NotSent
from smartlinkd.notify.notice import DaemonIdentity
from smartlinkd.vault.cookie import parse_cookie
from tests.fakes.threads import threads_in_place


class PlayedReceiver:
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
    settings: Settings, folder: Path, receiver: PlayedReceiver, *, meets_check: bool = False
) -> None:
    """One daemon's life, of a minute and a half, which is killed."""
    pauses = PauseStore(folder)
    identity = DaemonIdentity("here", "/state")
    told = pauses.mark_notified
    notifier = Notifier([receiver], identity, on_account_notified=told, chance=random.Random(1))
    async with HttpClient() as http, trio.open_nursery() as nursery:
        conversion = make_conversion(settings, notifier, http, None, pauses)
        for run in (notifier.run, pauses.run, conversion.run):
            await nursery.start(run)
        if meets_check:
            await conversion.mailbox.ask(meet_check)
        await trio.sleep(90)
        nursery.cancel_scope.cancel()


async def meet_check(conversion: object) -> None:
    """An account of it meets a human check."""
    conversion.report_human_check(parse_cookie("SPC_U=1001"))  # type: ignore[attr-defined]


async def test_pause_is_told_by_each_daemon_until_the_owner_knows(
    settings: Settings,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    autojump_clock: MockClock,
) -> None:
    threads_in_place(monkeypatch)
    receiver = PlayedReceiver()
    receiver.down = True
    await live(settings, tmp_path, receiver, meets_check=True)
    await live(settings, tmp_path, receiver)
    assert receiver.heard == []
    receiver.down = False
    await live(settings, tmp_path, receiver)
    assert receiver.heard == ["account_paused"]
    await live(settings, tmp_path, receiver)
    assert receiver.heard == ["account_paused"]
