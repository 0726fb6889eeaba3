"""The actor: nobody waits for it, failures are tried again, and channels are independent."""

from __future__ import annotations

import logging
import random
from collections.abc import Mapping
from datetime import UTC, datetime

import pytest
import trio
import trio.testing
from trio.testing import MockClock

from smartlinkd.auth.keys import ApiKey
from smartlinkd.conversion.account import AccountState, AccountStatus
from smartlinkd.logs import LogEvent
from smartlinkd.notify.actor import ATTEMPTS, Notifier
from smartlinkd.notify.channels import Channel, NotSent
from smartlinkd.notify.notice import MAX_OCCURRENCES, MIN_INTERVAL, DaemonIdentity
from smartlinkd.supervision.child import ChildSpec
from smartlinkd.supervision.policy import Backoff
from smartlinkd.supervision.supervisor import Supervisor

NOON = datetime(2026, 11, 21, 12, tzinfo=UTC)
PAUSED = AccountState(AccountStatus.PAUSED, NOON, "a human check")
ACTIVE = AccountState(AccountStatus.ACTIVE, NOON, None)
LOST = AccountState(AccountStatus.SESSION_LOST, NOON, "wants a login")


class PlayedChannel:
    """A channel whose outcomes are given; None is a success. It keeps what was told, and when."""

    def __init__(self, name: str = "notify.played", *outcomes: Exception | None) -> None:
        self.name = name
        self.outcomes = list(outcomes)
        self.told: list[tuple[float, str]] = []
        self.bodies: list[Mapping[str, str]] = []
        self.hangs = False

    async def send(self, body: Mapping[str, str]) -> None:
        self.told.append((trio.current_time(), body["event"]))
        self.bodies.append(body)
        if self.hangs:
            await trio.sleep_forever()
        await trio.lowlevel.checkpoint()
        outcome = self.outcomes.pop(0) if self.outcomes else None
        if outcome is not None:
            raise outcome

    @property
    def events(self) -> list[str]:
        return [event for _, event in self.told]


@pytest.fixture
def channel() -> PlayedChannel:
    return PlayedChannel()


Known = list[tuple[str, datetime]]


def notifier(*channels: Channel, known: Known | None = None) -> Notifier:
    """`known` is what the owner has been told of accounts."""
    known = [] if known is None else known
    return Notifier(
        channels,
        DaemonIdentity("here", "/state"),
        on_account_notified=lambda *account: known.append(account),
        chance=random.Random(1),
        wall=lambda: NOON,
    )


async def settle() -> None:
    await trio.testing.wait_all_tasks_blocked()


NO_COOKIE = "no cookie is stored, so no links are made: sync one"
NO_CHROMIUM = "Chromium cannot be kept up, so no links are made: launch failed: no such file"
NO_DISK = "the disk is full: crews cannot be kicked off, and what runs is held up"
TOLD = [
    ("account_paused", "7", "paused", "account 7 is now paused: a human check"),
    ("account_back", "7", "active", "account 7 is now active"),
    ("cookie_missing", "", "missing", NO_COOKIE),
    ("cookie_back", "", "stored", "a cookie was synced: links are made again"),
    ("browser_down", "", "down", NO_CHROMIUM),
    ("browser_back", "", "up", "Chromium stays up again"),
    ("disk_full", "", "full", NO_DISK),
    ("disk_has_room", "", "has room", "the disk has room again"),
]


async def test_each_change_is_told_with_its_fields_and_a_good_state_before_is_none(
    autojump_clock: MockClock, nursery: trio.Nursery, channel: PlayedChannel
) -> None:
    made = notifier(channel)
    await nursery.start(made.run)
    made.report_account("7", ACTIVE)
    made.report_missing_cookie(False)
    made.report_browser(None)
    made.report_disk(False)
    await trio.sleep(2 * MIN_INTERVAL)
    made.report_account("7", PAUSED)
    made.report_missing_cookie(True)
    made.report_browser("launch failed: no such file")
    made.report_disk(True)
    await trio.sleep(MIN_INTERVAL + 1)
    made.report_account("7", ACTIVE)
    made.report_missing_cookie(False)
    made.report_browser(None)
    made.report_disk(False)
    await trio.sleep(1)
    told = [
        (body["event"], body["account"], body["state"], body["text"]) for body in channel.bodies
    ]
    assert sorted(told) == sorted(TOLD)
    same = {(body["host"], body["state_directory"], body["since"]) for body in channel.bodies}
    assert same == {("here", "/state", "2026-11-21T12:00:00.000Z")}


KEY = ApiKey(
    id="8f1c", name="a bot", scopes=("convert", "status"), created_at=1.0, expires_at=None,
    last_used_at=None, hint="wxyz", digest="ab" * 32,
)  # fmt: skip


def test_notice_without_room_is_logged(
    channel: PlayedChannel, caplog: pytest.LogCaptureFixture
) -> None:
    made = notifier(channel)
    for _ in range(MAX_OCCURRENCES + 1):
        made.report_new_key(KEY)
    (lost,) = caplog.messages
    assert lost.endswith("change the password: too much else is wrong already")


async def test_keys_and_replaced_accounts_are_told_each_and_are_no_news_of_a_pause(
    autojump_clock: MockClock, nursery: trio.Nursery, channel: PlayedChannel
) -> None:
    known: Known = []
    made = notifier(channel, known=known)
    await nursery.start(made.run)
    made.report_new_key(KEY)
    made.report_new_key(KEY)
    made.report_replaced_account("4711", "4712")
    made.report_account("7", PAUSED)
    await settle()
    assert channel.events == ["key_made", "key_made", "account_replaced", "account_paused"]
    assert known == [("7", NOON)]


async def test_failed_notice_is_tried_again_after_growing_waits(
    autojump_clock: MockClock, nursery: trio.Nursery, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    channel = PlayedChannel("notify.url", NotSent("HTTP 503"), NotSent("HTTP 503"))
    made = notifier(channel)
    await nursery.start(made.run)
    made.report_disk(True)
    await trio.sleep(60)
    times = [moment for moment, _ in channel.told]
    assert len({body["id"] for body in channel.bodies}) == 1
    assert [4 <= times[1] - times[0] <= 5, 8 <= times[2] - times[1] <= 10] == [True, True]
    assert len(times) == 3
    assert "notify.url: told that the disk is full" in caplog.text
    assert [record for record in caplog.records if hasattr(record, "event")] == []


@pytest.mark.parametrize("final", [False, True])
async def test_notice_that_keeps_failing_is_given_up_and_logged(
    autojump_clock: MockClock,
    nursery: trio.Nursery,
    caplog: pytest.LogCaptureFixture,
    final: bool,
) -> None:
    tries = 1 if final else ATTEMPTS
    channel = PlayedChannel("notify.url", *[NotSent("HTTP 404", is_final=final)] * tries)
    made = notifier(channel)
    await nursery.start(made.run)
    made.report_account("7", PAUSED)
    await trio.sleep(120)
    assert len(channel.told) == tries
    (lost,) = [one for one in caplog.records if getattr(one, "event", None) is LogEvent.NOTICE_LOST]
    assert lost.getMessage() == (
        "notify.url: gave up telling that account 7 is now paused: a human check: HTTP 404 "
        f"(attempt {tries})"
    )
    made.report_account("7", ACTIVE)
    await trio.sleep(MIN_INTERVAL)
    assert channel.events[-1] == "account_back"  # it goes on with the next


async def test_channel_that_hangs_delays_no_other(
    autojump_clock: MockClock, nursery: trio.Nursery, channel: PlayedChannel
) -> None:
    other = PlayedChannel("notify.other")
    other.hangs = True
    made = notifier(other, channel)
    await nursery.start(made.run)
    for subject in range(5):
        made.report_account(f"{subject}", PAUSED)
    await trio.sleep(1)
    assert channel.events == ["account_paused"] * 5
    assert len(other.told) == 1


async def test_bug_in_a_channel_is_logged_without_the_address(
    autojump_clock: MockClock, nursery: trio.Nursery, caplog: pytest.LogCaptureFixture
) -> None:
    channel = PlayedChannel("notify.url", *[ValueError("https://tell.example/key")] * ATTEMPTS)
    made = notifier(channel)
    await nursery.start(made.run)
    made.report_disk(True)
    await trio.sleep(120)
    assert "a bug of the daemon's own (ValueError) (attempt 4)" in caplog.text
    assert "tell.example" not in caplog.text


async def test_waiting_notices_survive_a_restart_of_the_actor(
    autojump_clock: MockClock, nursery: trio.Nursery, channel: PlayedChannel
) -> None:
    channel.hangs = True
    made = notifier(channel)
    dying = trio.Event()

    async def run(task_status: trio.TaskStatus[None]) -> None:
        async with trio.open_nursery() as inner:
            await inner.start(made.run)
            task_status.started()
            if not dying.is_set():
                await dying.wait()
                raise ZeroDivisionError

    supervisor = Supervisor("top", [ChildSpec("notify", run)], backoff=Backoff())
    await nursery.start(supervisor.run)
    made.report_account("7", PAUSED)
    await settle()
    made.report_disk(True)
    channel.hangs = False
    dying.set()
    await trio.sleep(MIN_INTERVAL)
    assert channel.events == ["account_paused", "disk_full"]
    supervisor.stop()
    await settle()


# The end of the daemon


async def test_waiting_notices_are_sent_before_the_end(
    autojump_clock: MockClock, channel: PlayedChannel
) -> None:
    channel.outcomes = [None, NotSent("busy")]
    made = notifier(channel)
    async with trio.open_nursery() as nursery:
        await nursery.start(made.run)
        made.report_account("7", PAUSED)
        await settle()
        made.report_account("7", ACTIVE)  # too soon after the other to be told now
        made.report_disk(True)  # fails, and waits to be tried again
        await settle()
        began = trio.current_time()
        made.stop()
    assert channel.events == ["account_paused", "disk_full", "disk_full", "account_back"]
    assert trio.current_time() == began


async def test_notice_that_fails_at_the_end_is_logged(
    autojump_clock: MockClock, channel: PlayedChannel, caplog: pytest.LogCaptureFixture
) -> None:
    channel.outcomes = [NotSent("no server"), NotSent("no server")]
    made = notifier(channel)
    async with trio.open_nursery() as nursery:
        await nursery.start(made.run)
        made.report_account("7", PAUSED)
        await settle()
        made.stop()
    assert len(channel.told) == 2
    assert [each.getMessage() for each in caplog.records if each.levelno == logging.ERROR] == [
        "notify.played: gave up telling that account 7 is now paused: a human check: "
        "no server (attempt 2)"
    ]


async def test_channel_that_hangs_at_the_end_logs_each_lost_notice(
    autojump_clock: MockClock, channel: PlayedChannel, caplog: pytest.LogCaptureFixture
) -> None:
    channel.hangs = True
    made = notifier(channel)
    spec = ChildSpec("notify", made.run, stop=made.stop, grace=5)
    supervisor = Supervisor("top", [spec])
    async with trio.open_nursery() as nursery:
        await nursery.start(supervisor.run)
        made.report_account("7", PAUSED)
        made.report_disk(True)
        await settle()
        began = trio.current_time()
        supervisor.stop()
    assert trio.current_time() - began == pytest.approx(5)
    lost = [each for each in caplog.records if "the daemon has ended" in each.getMessage()]
    assert [getattr(each, "event", None) is not None for each in lost] == [True, True]
    assert len(channel.told) == 1


async def test_pause_told_by_an_earlier_daemon_is_not_told_again_but_its_end_is(
    autojump_clock: MockClock, nursery: trio.Nursery, channel: PlayedChannel
) -> None:
    made = notifier(channel)
    made.mark_account_notified("7", PAUSED)
    await nursery.start(made.run)
    made.report_account("7", PAUSED)
    await trio.sleep(MIN_INTERVAL)
    assert channel.events == []
    made.report_account("7", ACTIVE)
    await settle()
    assert channel.events == ["account_back"]
