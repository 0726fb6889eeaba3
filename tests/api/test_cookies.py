"""The stored cookie, over HTTP. Who may store and read it is in `test_who_may_call.py`.

| promised | test |
|---|---|
| seed 3, none stored → stored | `test_a_sync_stores_the_cookie[…]` |
| seed 3, stored → stored | `test_the_next_sync_replaces_it[…]` |
| contract, it ends a pause | `test_it_ends_a_pause_also_when_its_client_leaves_in_the_midst` |
| seed 2 and 4, the record's fields | `test_a_sync_stores_the_cookie[…]` |
| seed 4, GET with none stored; contract: HTTP 200 | `test_with_none_stored_it_is_200_and_not_ok` |
| contract, timestamps | `test_times_are_in_utc_with_milliseconds` |
| contract, accountName left out | `test_an_account_has_a_name[…]` |
| contract, cookie forms | `tests/contract/test_cookies.py` |
| contract, what is no cookie is 400, the stored one stays | `test_this_is_no_cookie[…]` |
| contract, the limits themselves | `test_this_is_just_a_cookie[…]` |
| seed 3, in memory; design: over a crash | `test_it_outlives_its_actor` |
| seed 2, kept in memory | `test_it_is_on_no_disk` |
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from smartlinkd.conversion.service import ConversionService
from smartlinkd.vault.actor import _Vault
from smartlinkd.vault.cookie import Cookie, parse_cookie

if TYPE_CHECKING:
    from tests.api.conftest import Daemon

SYNC = "/api/sync-cookie"
LOCAL = "/api/sync-cookie-local"
COOKIE = 'SPC_EC=.a/b+c==; SPC_F=f; SPC_ST=".st.x"; SPC_U=4711;csrftoken=t; _ga=GA1.2 ; ünï=cödé'
OTHER = "SPC_U=4712; SPC_EC=another"


async def stored(daemon: Daemon) -> str | None:
    body = (await daemon.get(SYNC)).json()
    return str(body["cookie"]) if body["ok"] else None


@pytest.mark.parametrize("path", [SYNC, LOCAL])
async def test_a_sync_stores_the_cookie(daemon: Daemon, path: str) -> None:
    answer = await daemon.post(path, {"cookie": COOKIE, "accountName": "Cửa hàng 🛒"})
    assert answer.status_code == 200
    body = answer.json()
    assert body == {"ok": True, "accountName": "Cửa hàng 🛒", "syncedAt": body["syncedAt"]}
    read = await daemon.get(SYNC)
    assert read.status_code == 200
    assert read.json() == body | {"cookie": COOKIE}


@pytest.mark.parametrize("path", [SYNC, LOCAL])
async def test_the_next_sync_replaces_it(daemon: Daemon, path: str) -> None:
    first = (await daemon.post(SYNC, {"cookie": COOKIE, "accountName": "first"})).json()
    second = (await daemon.post(path, {"cookie": OTHER, "accountName": "second"})).json()
    assert (await daemon.get(SYNC)).json() == second | {"cookie": OTHER}
    assert second["syncedAt"] >= first["syncedAt"]


async def test_it_ends_a_pause_also_when_its_client_leaves_in_the_midst(
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


async def test_with_none_stored_it_is_200_and_not_ok(daemon: Daemon) -> None:
    answer = await daemon.get(SYNC)
    assert answer.status_code == 200
    assert answer.json() == {
        "ok": False,
        "error": "no cookie was synced yet; send one to POST /api/sync-cookie",
    }


async def test_times_are_in_utc_with_milliseconds(daemon: Daemon) -> None:
    before = datetime.now(UTC)
    text = (await daemon.post(SYNC, {"cookie": COOKIE})).json()["syncedAt"]
    moment = datetime.strptime(text, "%Y-%m-%dT%H:%M:%S.%fZ").replace(tzinfo=UTC)
    assert len(text) == len("2026-01-31T23:59:59.999Z")
    assert abs((moment - before).total_seconds()) < 10


@pytest.mark.parametrize(
    ("path", "given", "name"),
    [
        (SYNC, {}, "Affiliate"),
        (LOCAL, {}, "Local Sync"),
        (SYNC, {"accountName": None}, "Affiliate"),
        (LOCAL, {"accountName": None}, "Local Sync"),
        (SYNC, {"accountName": ""}, "Affiliate"),
        (LOCAL, {"accountName": ""}, "Local Sync"),
        (SYNC, {"accountName": "mine"}, "mine"),
        (LOCAL, {"accountName": "x" * 200}, "x" * 200),
    ],
    ids=["left out", "locally", "null", "null locally", "empty", "empty locally", "given", "long"],
)
async def test_an_account_has_a_name(
    daemon: Daemon, path: str, given: dict[str, str | None], name: str
) -> None:
    answer = await daemon.post(path, {"cookie": COOKIE} | given)
    assert answer.json()["accountName"] == name
    assert (await daemon.get(SYNC)).json()["accountName"] == name


@pytest.mark.parametrize(
    ("cookie", "error"),
    [
        ("", "cookie: holds no name=value pair"),
        ("  ; ;", "cookie: holds no name=value pair"),
        ("SPC_EC", "cookie: holds no name=value pair"),
        ("SPC_U=1; a b=x", "cookie: part 2 is not a name=value pair"),
        ("SPC_U=1;\r\nX-Header: 1", "cookie: holds a control character"),
        ("SPC_U=1\x00", "cookie: holds a control character"),
        ("SPC_U=1\t2", "cookie: holds a control character"),
        ("SPC_U=\x7f", "cookie: holds a control character"),
        ("; ".join(f"n{n}={'x' * 650}" for n in range(101)), "more than the 65536"),
        ("SPC_U=1; n=" + "x" * 4095, "cookie: pair 2 is over the 4096 bytes"),
        ("; ".join(f"n{n}=x" for n in range(151)), "cookie: 151 pairs"),
    ],
    ids=[
        "empty",
        "only semicolons",
        "no pair",
        "no good name",
        "a line break",
        "a zero byte",
        "a tab",
        "a delete",
        "over 64 KiB",
        "a pair over 4096 bytes",
        "over 150 pairs",
    ],
)
async def test_this_is_no_cookie(daemon: Daemon, cookie: str, error: str) -> None:
    await daemon.post(SYNC, {"cookie": OTHER})
    for path in (SYNC, LOCAL):
        answer = await daemon.post(path, {"cookie": cookie})
        assert answer.status_code == 400
        assert error in answer.json()["error"]
        assert await stored(daemon) == OTHER


@pytest.mark.parametrize(
    "cookie",
    [
        "; ".join(["SPC_EC=x", *(f"{n:03}={'x' * 651}" for n in range(100))])[:65536],
        "SPC_EC=x; n=" + "x" * 4094,
        "; ".join(["SPC_EC=x", *(f"n{n}=x" for n in range(149))]),
        "SPC_EC=x; n=",
        "SPC_EC=b=c",
        "SPC_EC=x; __Host-SPC=x; __Secure-SPC=y",
    ],
    ids=["64 KiB", "a pair of 4096 bytes", "150 pairs", "no value", "two signs", "prefixes"],
)
async def test_this_is_just_a_cookie(daemon: Daemon, cookie: str) -> None:
    assert (await daemon.post(SYNC, {"cookie": cookie})).status_code == 200
    assert await stored(daemon) == cookie


async def test_a_name_that_is_too_long_stores_nothing(daemon: Daemon) -> None:
    answer = await daemon.post(SYNC, {"cookie": COOKIE, "accountName": "x" * 201})
    assert answer.status_code == 400
    assert answer.json()["error"].startswith("accountName: longer than 200 characters")
    assert await stored(daemon) is None
    schemas = (await daemon.get("/openapi.json")).json()["components"]["schemas"]
    told, _ = schemas["SyncCookieRequest"]["properties"]["accountName"]["anyOf"]
    assert told == {"type": "string", "maxLength": 200}


async def test_it_outlives_its_actor(
    daemon: Daemon, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    before = (await daemon.post(SYNC, {"cookie": COOKIE, "accountName": "mine"})).json()
    with monkeypatch.context() as broken:

        def fault(self: _Vault) -> None:
            raise ZeroDivisionError

        broken.setattr(_Vault, "current", fault)
        answer = await daemon.get(SYNC)
        assert answer.status_code == 503
        assert "vault" in answer.json()["error"]
    # This one waits in the mailbox for the next instance.
    assert (await daemon.get(SYNC)).json() == before | {"cookie": COOKIE}
    assert "vault failed" in caplog.text
    assert ".a/b+c==" not in caplog.text


async def test_it_is_on_no_disk(daemon: Daemon) -> None:
    await daemon.post(SYNC, {"cookie": COOKIE, "accountName": "mine"})
    files = [path for path in daemon.state.iterdir() if path.is_file()]
    assert files
    assert not [path for path in files if b".a/b+c==" in path.read_bytes()]
