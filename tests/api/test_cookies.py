"""The stored cookie over HTTP. tests/contract/test_cookies.py tests its forms and limits."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from smartlinkd.conversion.service import ConversionService
from smartlinkd.vault.cookie import Cookie, parse_cookie

if TYPE_CHECKING:
    from tests.api.conftest import Daemon, Start

SYNC = "/api/sync-cookie"
COOKIE = "SPC_U=4712; SPC_EC=another"


async def test_sync_ends_the_pause_though_its_client_leaves(
    daemon: Daemon, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise the cookie would be new and the account still paused."""
    tell, stored_it, told, told_of = (
        ConversionService.note_synced_cookie,
        trio.Event(),
        trio.Event(),
        list[Cookie](),
    )

    async def tell_later(
        conversion: ConversionService, cookie: Cookie, before: Cookie | None, *, keep_pause: bool
    ) -> bool:
        stored_it.set()
        await wait_all_tasks_blocked()  # the daemon notices that the client has left
        is_paused = await tell(conversion, cookie, before, keep_pause=keep_pause)
        told_of.append(cookie)
        told.set()
        return is_paused

    monkeypatch.setattr(ConversionService, "note_synced_cookie", tell_later)
    with trio.fail_after(5):
        async with trio.open_nursery() as client:
            client.start_soon(daemon.post, SYNC, {"cookie": COOKIE})
            await stored_it.wait()
            client.cancel_scope.cancel()
        await told.wait()
    assert told_of == [parse_cookie(COOKIE)]
    assert (await daemon.get(SYNC)).json()["cookie"] == COOKIE


async def test_two_syncs_at_once_are_noted_in_the_order_of_the_stored_cookies(
    daemon: Daemon, monkeypatch: pytest.MonkeyPatch
) -> None:
    tell, told_of = ConversionService.note_synced_cookie, list[tuple[Cookie, Cookie | None]]()
    is_first = True

    async def tell_first_later(
        conversion: ConversionService, cookie: Cookie, before: Cookie | None, *, keep_pause: bool
    ) -> bool:
        nonlocal is_first
        if is_first:
            is_first = False
            await trio.sleep(0.1)
        told_of.append((cookie, before))
        return await tell(conversion, cookie, before, keep_pause=keep_pause)

    monkeypatch.setattr(ConversionService, "note_synced_cookie", tell_first_later)
    async with trio.open_nursery() as clients:
        for cookie in (COOKIE, "SPC_U=4713; SPC_EC=a-third"):
            clients.start_soon(daemon.post, SYNC, {"cookie": cookie})
    (first, before), (second, before_second) = told_of
    assert (before, before_second) == (None, first)
    assert (await daemon.get(SYNC)).json()["cookie"] == second.header()


async def test_restart_without_systemd_forgets_the_cookie(start: Start) -> None:
    first = await start()
    await first.post(SYNC, {"cookie": COOKIE})
    await first.stop()
    assert (await (await start()).get(SYNC)).json()["ok"] is False
