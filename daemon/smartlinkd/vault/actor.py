"""The vault actor, which owns the one stored cookie."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Final

import trio

from smartlinkd.errors import Conflict, Invalid
from smartlinkd.supervision.actor import Mailbox
from smartlinkd.vault.cookie import parse_cookie
from smartlinkd.vault.record import CookieRecord

MAX_ACCOUNT_NAME: Final = 200
"""Characters of the label."""
QUEUE: Final = 64
"""Calls that may wait: the owner's syncs, and during a restart one of each request that needs the
cookie."""


class Vault:
    """Stores the cookie, and returns the stored one. The record outlives the actor's instances.

    Each call may raise what `Mailbox.ask` raises.

    Args:
        keep: called with each new record, to keep it for the next process. Never waits or fails.
        record: the one that the process before has left.
    """

    def __init__(
        self,
        *,
        wall: Callable[[], datetime] = lambda: datetime.now(UTC),
        keep: Callable[[CookieRecord], None] = lambda _: None,
        record: CookieRecord | None = None,
    ) -> None:
        self.mailbox = Mailbox[Vault]("vault", size=QUEUE)
        self._wall = wall
        self._keep = keep
        self._record = record

    async def run(self, task_status: trio.TaskStatus[None]) -> None:
        """Run one instance."""
        task_status.started()
        await self.mailbox.serve(self)

    async def store(
        self, cookie_text: str, account_name: str, *, keep_account: bool = False
    ) -> tuple[CookieRecord, CookieRecord | None]:
        """Replace the record. Return the new one, and the one before it or None.

        On an error the old one stays.

        Args:
            account_name: a label for people.
            keep_account: refuse a cookie of another account than the stored one's.

        Raises:
            Invalid: the text is no cookie, or the label is too long.
            Conflict: `keep_account` refuses it.
        """
        return await self.mailbox.ask(
            Vault._store, cookie_text, account_name, keep_account=keep_account
        )

    async def current(self) -> CookieRecord | None:
        """Return the stored record, or None if no cookie was synced yet."""
        return await self.mailbox.peek(lambda vault: vault._record)

    async def _store(
        self, cookie_text: str, account_name: str, *, keep_account: bool
    ) -> tuple[CookieRecord, CookieRecord | None]:
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
        self._keep(record)
        self._record = record
        return record, before
