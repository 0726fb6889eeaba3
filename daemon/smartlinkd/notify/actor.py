"""The notify actor: sends notices to the owner, and outlasts channels that fail.

The daemon's parts report changes and never wait. Each channel has a throttle (`notice.py`) and a
task of its own, so one that hangs holds up no other. A notice that failed `ATTEMPTS` times, or for
good, is dropped with a log record. Only the fact that an account's pause was notified outlives the
process (in `pauses.json`); other trouble that goes on after a restart is reported again.
"""

from __future__ import annotations

import logging
import random
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from math import inf
from typing import Final

import trio

from smartlinkd.auth.keys import ApiKey
from smartlinkd.conversion.account import AccountState, AccountStatus
from smartlinkd.logs import LogEvent
from smartlinkd.notify.channels import Channel, NotSent
from smartlinkd.notify.notice import DaemonIdentity, Notice, NoticeThrottle, body_of
from smartlinkd.supervision.policy import Backoff

logger = logging.getLogger(__name__)

ATTEMPTS: Final = 4
BACKOFF: Final = Backoff(first=5.0, longest=60.0)
"""Waits between attempts: 5, 10 and 20 s, each up to a fifth less by chance."""

ENDED: Final = "the daemon has ended"

AccountNotified = Callable[[str, datetime], None]
"""Called after a notice about an account, with its shown name and the start of its state."""


class Notifier:
    """The handle. Its `report_` methods never wait, and may be called before `run`."""

    def __init__(
        self,
        channels: Sequence[Channel],
        identity: DaemonIdentity,
        *,
        on_account_notified: AccountNotified,
        chance: random.Random | None = None,
        wall: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        """`on_account_notified` is called for an account's notice that one channel has sent."""
        chance = chance or random.Random()  # noqa: S311 - spreads waits, guards nothing
        self._senders = [
            _ChannelSender(channel, identity, on_account_notified, chance) for channel in channels
        ]
        self._wall = wall

    def __bool__(self) -> bool:
        """True if there is a channel."""
        return bool(self._senders)

    async def run(self, task_status: trio.TaskStatus[None]) -> None:
        """Run one instance. Waiting notices outlive it; the one that is being sent does not."""
        async with trio.open_nursery() as nursery:
            for sender in self._senders:
                nursery.start_soon(sender.run)
            task_status.started()

    def stop(self) -> None:
        """Have `run` return once each channel has tried each waiting notice a last time."""
        for sender in self._senders:
            sender.stop()

    def report_account(self, account: str, state: AccountState) -> None:
        """Report an account's new state. `account` is its shown name."""
        self._add(_account_notice(account, state))

    def mark_account_notified(self, account: str, state: AccountState) -> None:
        """Record an account's state that an earlier process has notified."""
        for sender in self._senders:
            sender.mark_sent(_account_notice(account, state))

    def report_missing_cookie(self, is_missing: bool) -> None:
        """Report that links are wanted and no cookie is stored, or that one was synced since."""
        now = self._wall()
        if is_missing:
            text = "no cookie is stored, so no links are made: sync one"
            notice = Notice("cookie", "missing", LogEvent.COOKIE_MISSING, now, text)
        else:
            text = "a cookie was synced: links are made again"
            notice = Notice("cookie", "stored", LogEvent.COOKIE_BACK, now, text, is_resolved=True)
        self._add(notice)

    def report_replaced_account(self, old: str, new: str) -> None:
        """Report that the stored cookie is another account's now. Both are shown names."""
        text = (
            f"the stored cookie is now of account {new}, and was of account {old}: if nobody did "
            "that, revoke the API keys and change the password"
        )
        about = ("cookie's account", "replaced", LogEvent.ACCOUNT_REPLACED)
        self._add(Notice(*about, self._wall(), text, account=new, is_occurrence=True))

    def report_new_key(self, key: ApiKey) -> None:
        """Report a new API key."""
        text = (
            f"the API key {key.name} ({key.id}) was made, for: {', '.join(key.scopes)}; if nobody "
            "did that, revoke it and change the password"
        )
        about = ("API keys", "made", LogEvent.KEY_MADE)
        self._add(Notice(*about, self._wall(), text, is_occurrence=True))

    def report_browser(self, failure: str | None) -> None:
        """Report why Chromium cannot be kept up, or None when it stays up again."""
        now = self._wall()
        if failure is not None:
            text = f"Chromium cannot be kept up, so no links are made: {failure}"
            notice = Notice("browser", "down", LogEvent.BROWSER_DOWN, now, text)
        else:
            text = "Chromium stays up again"
            notice = Notice("browser", "up", LogEvent.BROWSER_BACK, now, text, is_resolved=True)
        self._add(notice)

    def report_disk(self, is_full: bool) -> None:
        """Report that the state directory's disk is full, or has room again."""
        now = self._wall()
        if is_full:
            text = "the disk is full: crews cannot be kicked off, and what runs is held up"
            notice = Notice("disk", "full", LogEvent.DISK_FULL, now, text)
        else:
            text = "the disk has room again"
            event = LogEvent.DISK_HAS_ROOM
            notice = Notice("disk", "has room", event, now, text, is_resolved=True)
        self._add(notice)

    def _add(self, notice: Notice) -> None:
        for sender in self._senders:
            sender.add(notice)


def _account_notice(account: str, state: AccountState) -> Notice:
    why = f": {state.reason}" if state.reason else ""
    return Notice(
        subject=f"account {account}",
        account=account,
        state=state.status,
        event=state.event,
        since=state.since,
        text=f"account {account} is now {state.status}{why}",
        is_resolved=state.status is AccountStatus.ACTIVE,
    )


class _ChannelSender:
    """The task of one channel, and the notices that wait for it."""

    def __init__(
        self,
        channel: Channel,
        identity: DaemonIdentity,
        on_account_notified: AccountNotified,
        chance: random.Random,
    ) -> None:
        self._channel = channel
        self._identity = identity
        self._on_account_notified = on_account_notified
        self._chance = chance
        self._waiting = NoticeThrottle()
        self._current: Notice | None = None
        self._wake = trio.Event()
        self._stopping = trio.Event()

    def stop(self) -> None:
        self._stopping.set()
        self._wake.set()

    def mark_sent(self, notice: Notice) -> None:
        self._waiting.mark_sent(notice)

    def add(self, notice: Notice) -> None:
        lost = self._waiting.add(notice)
        if lost is not None:
            self._log_lost(lost, "too much else is wrong already")
        self._wake.set()

    async def run(self) -> None:
        self._current = None
        try:
            while not self._stopping.is_set():
                self._wake = trio.Event()
                if not await self._send_next(trio.current_time()):
                    with trio.move_on_at(self._waiting.due_at()):
                        await self._wake.wait()
            while await self._send_next(inf):
                pass
        finally:
            if self._stopping.is_set():
                self._log_rest_lost()

    async def _send_next(self, now: float) -> bool:
        self._current = self._waiting.pop(now)
        if self._current is None:
            return False
        await self._send(self._current)
        self._current = None
        return True

    def _log_rest_lost(self) -> None:
        while self._current is not None:
            self._log_lost(self._current, ENDED)
            self._current = self._waiting.pop(inf)

    async def _send(self, notice: Notice) -> None:
        body = body_of(notice, self._identity)
        for attempt in range(1, ATTEMPTS + 1):
            is_last = attempt == ATTEMPTS or self._stopping.is_set()
            try:
                await self._try_send(body)
            except NotSent as fault:
                if fault.is_final or is_last:
                    self._log_lost(notice, f"{fault} (attempt {attempt})")
                    return
                wait = BACKOFF.wait(attempt, self._chance)
                failed = (self._channel.name, notice.text, fault, wait)
                logger.info("%s: not told that %s: %s; again in %.0f s", *failed)
                with trio.move_on_after(wait):
                    await self._stopping.wait()
            else:
                logger.info("%s: told that %s", self._channel.name, notice.text)
                if notice.account and not notice.is_occurrence:
                    self._on_account_notified(notice.account, notice.since)
                return

    async def _try_send(self, body: Mapping[str, str]) -> None:
        try:
            await self._channel.send(body)
        except NotSent:
            raise
        except Exception as error:  # noqa: BLE001 - see below
            # A bug in a channel must not end the actor. The error's text may hold the address, so
            # only its type is told.
            raise NotSent(f"a bug of the daemon's own ({type(error).__name__})") from None

    def _log_lost(self, notice: Notice, why: str) -> None:
        about = LogEvent.NOTICE_LOST(account=notice.account)
        lost = (self._channel.name, notice.text, why)
        logger.error("%s: gave up telling that %s: %s", *lost, extra=about)
