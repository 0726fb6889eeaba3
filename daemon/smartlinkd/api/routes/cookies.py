"""The stored cookie's endpoints, and how a request's cookie is read."""

from __future__ import annotations

import time

import trio
from pydantic import SecretStr

from smartlinkd.api.auth_guards import Client, Guards
from smartlinkd.api.operations import Api
from smartlinkd.api.schemas import (
    Failure,
    StoredCookieResponse,
    SyncCookieRequest,
    SyncCookieResponse,
)
from smartlinkd.conversion.service import ConversionService
from smartlinkd.marketplace.cookie_text import header_value
from smartlinkd.marketplace.markets import Market
from smartlinkd.supervision.calls import actor_deadline
from smartlinkd.threads import on_thread
from smartlinkd.vault.actor import Vault
from smartlinkd.vault.cookie import MAX_BYTES

NOT_NAMED = "Affiliate"
NOT_NAMED_LOCALLY = "Local Sync"


async def read_cookie(pasted: SecretStr, market: Market) -> str:
    """Return a pasted cookie as the value of a Cookie header. Raises `Invalid`."""
    text, now = pasted.get_secret_value(), time.time()
    if len(text) <= MAX_BYTES:
        return header_value(text, market, now)
    return await on_thread(header_value, text, market, now)  # a long export takes a while


def add(api: Api, guards: Guards, vault: Vault, conversion: ConversionService) -> None:
    """Add these operations to `api`."""
    storing = trio.Lock()  # so that conversion hears of the cookies in their order

    async def store(client: Client, body: SyncCookieRequest, not_named: str) -> SyncCookieResponse:
        name = body.account_name or not_named
        has_key = client.key_id is not None
        cookie_text = await read_cookie(body.cookie, conversion.market)
        # Both or neither, also when the client has gone: a new cookie whose account stays
        # paused would be a riddle. Bounded, since the shield keeps the request's own deadline out.
        with trio.CancelScope(shield=True), actor_deadline():
            async with storing:
                record, before = await vault.store(
                    cookie_text, name, keep_account=has_key and not body.replace_account
                )
                is_paused = await conversion.note_synced_cookie(
                    record.cookie, before.cookie if before else None, keep_pause=has_key
                )
        return SyncCookieResponse(
            account_name=record.account_name,
            synced_at=record.synced_at,
            paused=True if has_key and is_paused else None,
        )

    @api.operation(
        "POST",
        "/api/sync-cookie",
        access=guards.local_or_key("cookie:write"),
        body=SyncCookieRequest,
        ok=SyncCookieResponse,
        errors=(409,),
    )
    async def sync_cookie(client: Client, body: SyncCookieRequest) -> SyncCookieResponse:
        """Store the affiliate account's cookie, in the place of the one before.

        Any form that people paste is read; what is stored is the value of the Cookie header. A
        refusal (400) says what the text is instead, and leaves the stored cookie.

        With an API key the cookie never ends a pause: `paused` is true then. Another account's
        cookie is refused (409) unless `replaceAccount` is true.
        """
        return await store(client, body, NOT_NAMED)

    @api.operation(
        "POST",
        "/api/sync-cookie-local",
        access=guards.local_or_key("cookie:write"),
        body=SyncCookieRequest,
        ok=SyncCookieResponse,
        errors=(409,),
    )
    async def sync_cookie_local(client: Client, body: SyncCookieRequest) -> SyncCookieResponse:
        """The same, for a sync by hand from a personal computer."""
        return await store(client, body, NOT_NAMED_LOCALLY)

    @api.operation(
        "GET",
        "/api/sync-cookie",
        access=guards.local_or_key("cookie:read"),
        ok=(StoredCookieResponse, Failure),
    )
    async def stored_cookie(_: Client) -> StoredCookieResponse | Failure:
        """Return the stored cookie, as the value of a Cookie header.

        With none stored, `ok` is false and the status still 200.
        """
        record = await vault.current()
        if record is None:
            return Failure(error="no cookie was synced yet; send one to POST /api/sync-cookie")
        return StoredCookieResponse(
            cookie=record.cookie_text,
            account_name=record.account_name,
            synced_at=record.synced_at,
        )
