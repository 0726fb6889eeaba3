"""The cookie vault: owns the one stored cookie record (seed, "Stored cookie record")."""

from __future__ import annotations

import logging
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Final

import trio

from smartlinkd.errors import Conflict, Invalid, Unavailable
from smartlinkd.supervision.actor import Mailbox
from smartlinkd.vault.cookie import parse_cookie
from smartlinkd.vault.memory import Keeper, Record, RecordMemory

logger = logging.getLogger(__name__)

MAX_ACCOUNT_NAME: Final = 200
"""Characters of the label."""
QUEUE: Final = 64
"""Questions that may wait: syncs, which the owner alone makes; while it is restarted also one of
each request that needs the cookie."""


class Vault:
    """What others hold: ask it to store the cookie, or for the one that is stored."""

    def __init__(
        self,
        *,
        wall: Callable[[], datetime] = lambda: datetime.now(UTC),
        keeper: Keeper | None = None,
        record: Record | None = None,
    ) -> None:
        """`keeper` is given every record for the next process; `record` is from the one before."""
        self.mailbox = Mailbox[_Vault]("vault", size=QUEUE)
        self._memory = RecordMemory(keeper)
        self._wall = wall
        if record is not None:
            self._memory.write(record)

    async def run(self, task_status: trio.TaskStatus[None]) -> None:
        """One instance; the record of the one before is still there."""
        vault = _Vault(self._memory, self._wall)
        task_status.started()
        await self.mailbox.serve(vault)

    async def store(
        self, cookie_text: str, account_name: str, *, keep_account: bool = False
    ) -> Record:
        """Replace the record. What it raises leaves the old one.

        Raises:
            Invalid: it is no cookie.
            Conflict: with `keep_account`, it is another account's cookie than the stored one.
            Unavailable: nothing is left to keep it in.
        """
        return await self.mailbox.ask(
            _Vault.store, cookie_text, account_name, keep_account=keep_account
        )

    async def current(self) -> Record | None:
        """The stored record, or None when no cookie was synced yet."""
        return await self.mailbox.peek(_Vault.current)


class _Vault:
    def __init__(self, memory: RecordMemory, wall: Callable[[], datetime]) -> None:
        self._memory = memory
        self._wall = wall
        self._record = memory.read()

    async def store(self, cookie_text: str, account_name: str, *, keep_account: bool) -> Record:
        if len(account_name) > MAX_ACCOUNT_NAME:
            raise Invalid(f"accountName: longer than {MAX_ACCOUNT_NAME} characters; shorten it")
        cookie, before = parse_cookie(cookie_text), self._record
        if keep_account and before is not None and before.cookie.account != cookie.account:
            raise Conflict(
                "cookie: is another account's than the stored one (its SPC_U differs); to replace "
                'the account, send "replaceAccount": true'
            )
        record = Record(cookie_text=cookie_text, account_name=account_name, synced_at=self._wall())
        try:
            self._memory.write(record)
        except OSError as error:
            # That passes. To begin anew would help nobody, and to do so often ends the daemon.
            raise _nothing_left(error) from None
        self._record = record
        return record

    def current(self) -> Record | None:
        return self._record


def _nothing_left(error: OSError) -> Unavailable:
    logger.error("the cookie cannot be stored: %s", error.strerror)
    return Unavailable(
        f"the cookie cannot be stored at the moment ({error.strerror}), so nothing was changed; "
        "try again shortly",
        retry_after=5,
    )
