"""The stored cookie (seed, "Stored cookie" and section 4)."""

from __future__ import annotations

import trio

from daemon.api.guards import Guards
from daemon.api.openapi import Api
from daemon.api.schemas import (
    Failure,
    StoredCookieResponse,
    SyncCookieRequest,
    SyncCookieResponse,
)
from daemon.conversion.desk import Desk
from daemon.patience import patience
from daemon.vault.actor import Vault

NOT_NAMED = "Affiliate"
NOT_NAMED_LOCALLY = "Local Sync"


def add(api: Api, guards: Guards, vault: Vault, desk: Desk) -> None:
    """Add these operations to `api`."""

    async def store(body: SyncCookieRequest, not_named: str) -> SyncCookieResponse:
        name = body.account_name or not_named
        # Both or neither, also when the client has gone: a new cookie whose account stays
        # paused would be a riddle. Bounded, since the shield keeps the request's own deadline out.
        with trio.CancelScope(shield=True), patience():
            before = await vault.current()
            record = await vault.store(body.cookie.get_secret_value(), name)
            await desk.cookie_synced(record.cookie, before.cookie if before else None)
        return SyncCookieResponse(account_name=record.account_name, synced_at=record.synced_at)

    @api.operation(
        "POST",
        "/api/sync-cookie",
        access=guards.local_or_key,
        body=SyncCookieRequest,
        ok=SyncCookieResponse,
    )
    async def sync_cookie(_: None, body: SyncCookieRequest) -> SyncCookieResponse:
        """Store the affiliate account's cookie, in the place of the one before."""
        return await store(body, NOT_NAMED)

    @api.operation(
        "POST",
        "/api/sync-cookie-local",
        access=guards.local_or_key,
        body=SyncCookieRequest,
        ok=SyncCookieResponse,
    )
    async def sync_cookie_local(_: None, body: SyncCookieRequest) -> SyncCookieResponse:
        """The same, for a sync by hand from a personal computer."""
        return await store(body, NOT_NAMED_LOCALLY)

    @api.operation(
        "GET",
        "/api/sync-cookie",
        access=guards.local_or_key,
        ok=(StoredCookieResponse, Failure),
    )
    async def stored_cookie(_: None) -> StoredCookieResponse | Failure:
        """The stored cookie; with none stored, `ok` is false and the status still 200."""
        record = await vault.current()
        if record is None:
            return Failure(error="no cookie was synced yet; send one to POST /api/sync-cookie")
        return StoredCookieResponse(
            cookie=record.cookie_text,
            account_name=record.account_name,
            synced_at=record.synced_at,
        )
