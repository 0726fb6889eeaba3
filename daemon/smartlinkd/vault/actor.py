"""The vault actor, which owns the one stored cookie."""

from __future__ import annotations

import logging
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Final

import trio

from smartlinkd.errors import Conflict, Invalid, Unavailable
from smartlinkd.supervision.actor import Mailbox
from smartlinkd.vault.cookie import parse_cookie
from smartlinkd.vault.record import CookieRecord, DescriptorStore, RecordMemory

logger = logging.getLogger(__name__)

MAX_ACCOUNT_NAME: Final = 200
"""Characters of the label."""
QUEUE: Final = 64
"""Calls that may wait: the owner's syncs, and during a restart one of each request that needs the
cookie."""


class Vault:
    """The handle: stores the cookie, and returns the stored one."""

    def __init__(
        self,
        *,
        wall: Callable[[], datetime] = lambda: datetime.now(UTC),
        descriptor_store: DescriptorStore | None = None,
        record: CookieRecord | None = None,
    ) -> None:
        """`descriptor_store` gets each record for the next process.

        `record` is the one that the process before has left.
        """
        self.mailbox = Mailbox[_Vault]("vault", size=QUEUE)
        self._memory = RecordMemory(descriptor_store)
        self._wall = wall
        if record is not None:
            self._memory.write(record)

    async def run(self, task_status: trio.TaskStatus[None]) -> None:
        """Run one instance. The record outlives it."""
        vault = _Vault(self._memory, self._wall)
        task_status.started()
        await self.mailbox.serve(vault)

    async def store(
        self, cookie_text: str, account_name: str, *, keep_account: bool = False
    ) -> CookieRecord:
        """Replace the record, and return the new one. On an error the old one stays.

        Args:
            account_name: a label for people.
            keep_account: refuse a cookie of another account than the stored one's.

        Raises:
            Invalid: the text is no cookie, or the label is too long.
            Conflict: `keep_account` refuses it.
            Unavailable: the process has no descriptor or memory left for it.
        """
        return await self.mailbox.ask(
            _Vault.store, cookie_text, account_name, keep_account=keep_account
        )

    async def current(self) -> CookieRecord | None:
        """Return the stored record, or None if no cookie was synced yet."""
        return await self.mailbox.peek(_Vault.current)


class _Vault:
    def __init__(self, memory: RecordMemory, wall: Callable[[], datetime]) -> None:
        self._memory = memory
        self._wall = wall
        self._record = memory.read()

    async def store(
        self, cookie_text: str, account_name: str, *, keep_account: bool
    ) -> CookieRecord:
        if len(account_name) > MAX_ACCOUNT_NAME:
            raise Invalid(f"accountName: longer than {MAX_ACCOUNT_NAME} characters; shorten it")
        cookie, before = parse_cookie(cookie_text), self._record
        if keep_account and before is not None and before.cookie.account != cookie.account:
            raise Conflict(
                "cookie: is another account's than the stored one (its SPC_U differs); to replace "
                'the account, send "replaceAccount": true'
            )
        record = CookieRecord(
            cookie_text=cookie_text, account_name=account_name, synced_at=self._wall()
        )
        try:
            self._memory.write(record)
        except OSError as error:
            # A shortage passes; a crash would not help, and repeated ones end the daemon.
            raise _unavailable(error) from None
        self._record = record
        return record

    def current(self) -> CookieRecord | None:
        return self._record


def _unavailable(error: OSError) -> Unavailable:
    logger.error("the cookie cannot be stored: %s", error.strerror)
    return Unavailable(
        f"the cookie cannot be stored at the moment ({error.strerror}), so nothing was changed; "
        "try again shortly",
        retry_after=5,
    )
