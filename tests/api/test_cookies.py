"""The stored cookie over HTTP. Its forms and limits are in tests/contract/test_cookies.py."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from smartlinkd.conversion.service import ConversionService
from smartlinkd.vault.actor import Vault
from smartlinkd.vault.cookie import Cookie, parse_cookie
from tests.api.conftest import crash

if TYPE_CHECKING:
    from tests.api.conftest import Daemon

SYNC = "/api/sync-cookie"
COOKIE = 'SPC_EC=.a/b+c==; SPC_F=f; SPC_ST=".st.x"; SPC_U=4711;csrftoken=t; _ga=GA1.2 ; ünï=cödé'
OTHER = "SPC_U=4712; SPC_EC=another"


async def stored(daemon: Daemon) -> str | None:
    body = (await daemon.get(SYNC)).json()
    return str(body["cookie"]) if body["ok"] else None


async def test_sync_ends_the_pause_though_its_client_leaves(
    daemon: Daemon, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A new cookie whose account stays paused would be a riddle."""
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
        await wait_all_tasks_blocked()  # it is seen that the client has left
        is_paused = await tell(conversion, cookie, before, keep_pause=keep_pause)
        told_of.append(cookie)
        told.set()
        return is_paused

    monkeypatch.setattr(ConversionService, "note_synced_cookie", tell_later)
    with trio.fail_after(5):
        async with trio.open_nursery() as client:
            client.start_soon(daemon.post, SYNC, {"cookie": OTHER})
            await stored_it.wait()
            client.cancel_scope.cancel()
        await told.wait()
    assert told_of == [parse_cookie(OTHER)]
    assert await stored(daemon) == OTHER


async def test_sync_with_too_long_a_name_stores_nothing(daemon: Daemon) -> None:
    answer = await daemon.post(SYNC, {"cookie": COOKIE, "accountName": "x" * 201})
    assert answer.status_code == 400
    assert answer.json()["error"].startswith("accountName: longer than 200 characters")
    assert await stored(daemon) is None
    schemas = (await daemon.get("/openapi.json")).json()["components"]["schemas"]
    told, _ = schemas["SyncCookieRequest"]["properties"]["accountName"]["anyOf"]
    assert told == {"type": "string", "maxLength": 200}


async def test_cookie_outlives_a_crash_of_the_vault(
    daemon: Daemon, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    before = (await daemon.post(SYNC, {"cookie": COOKIE, "accountName": "mine"})).json()
    with monkeypatch.context() as broken:
        broken.setattr(Vault, "current", crash())
        answer = await daemon.get(SYNC)
        assert answer.status_code == 503
        assert "vault" in answer.json()["error"]
    # This call waits in the mailbox for the next instance.
    assert (await daemon.get(SYNC)).json() == before | {"cookie": COOKIE}
    assert "vault failed" in caplog.text
    assert ".a/b+c==" not in caplog.text
