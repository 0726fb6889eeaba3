"""API keys over HTTP: what each scope opens, what ends a key, and cookies that a key sends."""

from __future__ import annotations

import hashlib
import json
import re
import time
from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx
import pyotp
import pytest
from argon2 import PasswordHasher

from tests.config_file import WITHOUT_BROWSER
from tests.contract.keys import key_for, make_key
from tests.e2e.conftest import until

if TYPE_CHECKING:
    from tests.contract.conftest import Daemon, Portal
    from tests.e2e.conftest import Account, Running

pytestmark = pytest.mark.chromium

Json = dict[str, Any]

SCOPES = [
    "convert", "cookie:write", "cookie:read", "history", "status", "account", "metrics", "crews",
]  # fmt: skip
SYNC_KEY = "key-of-an-older-client-0123456789"
OPEN, SESSION, ANY_KEY = "open", "session", "any key"

OPENED_BY = {
    "POST /api/auth/login": OPEN,
    "POST /api/auth/verify-mfa": OPEN,
    "POST /api/auth/logout": SESSION,
    "POST /api/auth/revoke": SESSION,
    "GET /api/auth/2fa/setup": SESSION,
    "POST /api/auth/2fa/enable": SESSION,
    "POST /api/auth/2fa/disable": SESSION,
    "POST /api/keys": SESSION,
    "GET /api/keys": SESSION,
    "DELETE /api/keys/self": ANY_KEY,
    "DELETE /api/keys/{id}": SESSION,
    "POST /api/sync-cookie": "cookie:write",
    "POST /api/sync-cookie-local": "cookie:write",
    "GET /api/sync-cookie": "cookie:read",
    "POST /api/convert": "convert",
    "POST /api/extract": "convert",
    "POST /api/convert-text": "convert",
    "GET /api/history": "history",
    "GET /api/history.csv": "history",
    "GET /api/history-days": "history",
    "DELETE /api/history": SESSION,
    "DELETE /api/history/{id}": SESSION,
    "GET /api/account": "status",
    "POST /api/account/clear": "account",
    "GET /api/status": "status",
    "GET /readyz": "status",  # asked with ?account=1
    "GET /metrics": "metrics",
    "GET /api/log": SESSION,
    "GET /api/series": SESSION,
    "GET /api/health": OPEN,
    "GET /livez": OPEN,
    "GET /api/crews": "crews",
    "POST /api/crews/token": SESSION,
    "POST /api/crews/token/rotate": SESSION,
    "GET /crews/{crew}": "crews",
    "GET /crews/{crew}/": "crews",
    "GET /crews/{crew}/inputs": "crews",
    "POST /crews/{crew}/kickoff": "crews",
    "GET /crews/{crew}/status/{kickoff_id}": "crews",
    "GET /crews/{crew}/executions": "crews",
    "POST /crews/{crew}/stop/{kickoff_id}": "crews",
    "GET /crews/{crew}/events/{kickoff_id}": "crews",
    "POST /crews/{crew}/resume": "crews",
}
"""The credential that opens each operation (contract section 4). Each operation has an entry."""


@pytest.fixture(scope="module")
def closed(running: Running) -> Iterator[Daemon]:
    """A daemon without a browser, with a crew, behind a proxy; no client counts as local."""
    with running(
        **WITHOUT_BROWSER,
        cookie={"open_to": []},
        server={"trusted_proxies": ["127.0.0.1"]},
        crews=[{"name": "echo", "runner": "command", "command": ["/bin/echo"], "default": True}],
    ) as daemon:
        yield daemon


@pytest.fixture(scope="module")
def syncing(running: Running) -> Iterator[Daemon]:
    """A daemon with a browser; no client counts as local."""
    cookie = {"open_to": [], "sync_key": SYNC_KEY}
    with running(products={"source": "none"}, cookie=cookie) as daemon:
        daemon.wait_for_browser()
        daemon.secrets.add(SYNC_KEY)
        yield daemon


async def listed(daemon: Daemon) -> list[Json]:
    answer = await daemon.ask("GET", "/api/keys", token=await daemon.login())
    assert (answer.status_code, answer.json()["ok"]) == (200, True)
    found: list[Json] = answer.json()["keys"]
    return found


async def call(
    daemon: Daemon, operation: str, token: str, headers: dict[str, str] | None = None
) -> httpx.Response:
    """Call an operation in a way that changes nothing."""
    method, path = operation.split()
    path = re.sub(r"\{crew\}", "echo", path)
    path = re.sub(r"\{\w+\}", "3f1e2d0c-6a5b-4c8d-9e7f-0a1b2c3d4e5f", path)
    query = "?account=1" if path == "/readyz" else ""
    body: object = [] if method == "POST" else None  # no operation takes an array
    return await daemon.ask(method, path + query, body, token=token, headers=headers)


async def documented(daemon: Daemon) -> list[str]:
    """Return all operations of `/openapi.json`, as method and path."""
    paths = (await daemon.ask("GET", "/openapi.json")).json()["paths"]
    return [f"{method.upper()} {path}" for path, methods in paths.items() for method in methods]


def is_refused(answer: httpx.Response) -> bool:
    return answer.status_code in (401, 403)


# Scopes


@pytest.mark.parametrize("scope", SCOPES)
async def test_key_opens_what_its_scope_is_for_and_nothing_else(closed: Daemon, scope: str) -> None:
    operations, token = await documented(closed), await key_for(closed, scope)
    assert [each for each in operations if each not in OPENED_BY] == []
    opened = set()
    for operation in sorted(operations, key=lambda each: OPENED_BY[each] == ANY_KEY):
        answer = await call(closed, operation, token)
        if not is_refused(answer):
            opened.add(operation)
        elif OPENED_BY[operation] in SCOPES:
            assert answer.status_code == 403, operation
            text = answer.json().get("message") or answer.json()["error"]
            assert f"does not have the scope {OPENED_BY[operation]}" in text, operation
            assert set(answer.json()) in ({"ok", "error"}, {"error", "message"})
    expected = {each for each in operations if OPENED_BY[each] in (OPEN, ANY_KEY, scope)}
    assert opened == expected


async def test_key_with_every_scope_opens_neither_keys_nor_second_factor_nor_crews_tokens(
    closed: Daemon,
) -> None:
    token = await key_for(closed, *SCOPES)
    for operation in await documented(closed):
        if OPENED_BY[operation] == SESSION:
            answer = await call(closed, operation, token)
            assert answer.status_code == 403, operation
            assert answer.json()["error"].startswith("no API key opens this"), operation


async def test_operation_without_a_credential_is_refused_unless_it_is_open(closed: Daemon) -> None:
    for operation in await documented(closed):
        is_open = OPENED_BY[operation] == OPEN
        assert is_refused(await call(closed, operation, "")) is not is_open, operation


@pytest.mark.parametrize("way", ["page", "bearer"])
async def test_session_opens_every_operation_and_crews_only_for_the_page(
    closed: Daemon, way: str
) -> None:
    name, token = await closed.page_session()
    page = {"Cookie": f"{name}={token}", "Sec-Fetch-Site": "same-origin"}
    sent = ("", page) if way == "page" else (token, {})
    ending = {"POST /api/auth/logout", "POST /api/auth/revoke"}
    operations = set(await documented(closed)) - ending
    refused = {each for each in operations if is_refused(await call(closed, each, *sent))}
    crews = {each for each in operations if " /crews/" in each}
    assert refused == {"DELETE /api/keys/self"} | (crews if way == "bearer" else set())


@pytest.mark.parametrize("path", ["/crews/echo/inputs", "/inputs"])
async def test_key_acts_as_organization_token_of_each_crew(closed: Daemon, path: str) -> None:
    answer = await closed.ask("GET", path, token=await key_for(closed, "crews"))
    assert (answer.status_code, answer.json()) == (200, {"inputs": []})
    refused = await closed.ask("GET", path, token=await key_for(closed, "status"))
    assert (refused.status_code, refused.json()["error"]) == (403, "Forbidden")
    unknown = await closed.ask("GET", path, token="slk_unknown")
    assert (unknown.status_code, unknown.json()["error"]) == (401, "Unauthorized")
    assert unknown.headers["WWW-Authenticate"] == "Bearer"


async def test_key_with_crews_at_unknown_crew_is_401(closed: Daemon) -> None:
    answer = await closed.ask("GET", "/crews/nobody/inputs", token=await key_for(closed, "crews"))
    assert answer.status_code == 401


async def test_key_without_scope_is_refused_to_local_client_too(
    running: Running,
) -> None:
    with running(
        **WITHOUT_BROWSER,
    ) as daemon:
        assert (await daemon.ask("GET", "/metrics")).status_code == 200
        token = await key_for(daemon, "convert")
        for path in ("/metrics", "/readyz?account=1", "/api/sync-cookie"):
            assert (await daemon.ask("GET", path, token=token)).status_code == 403, path


async def test_with_second_factor_on_client_with_key_converts(
    syncing: Daemon, portal: Portal
) -> None:
    token, account, item = await key_for(syncing, "convert"), portal.account(), portal.item()
    answer = await syncing.ask("GET", "/api/auth/2fa/setup", token=await syncing.login())
    secret = answer.json()["secret"]
    syncing.secrets |= {secret, *account.secrets}
    code = pyotp.TOTP(secret).now()
    body = {"secret": secret, "code": code}
    answer = await syncing.ask("POST", "/api/auth/2fa/enable", body, token=await syncing.login())
    assert answer.status_code == 200, answer.text
    try:
        body = {"links": [portal.link(item)], "cookie": account.cookie}
        answer = await syncing.ask("POST", "/api/convert", body, token=token)
        assert answer.status_code == 200, answer.text
        entry = portal.entry(item, account, product=False)
        assert answer.json()["mapping"] == {portal.link(item): entry}

        wanted = {"name": "another", "scopes": ["convert"]}
        session = await syncing.login()
        for given, status in ((None, 400), (code, 401)):
            asked = wanted if given is None else {**wanted, "code": given}
            answer = await syncing.ask("POST", "/api/keys", asked, token=session)
            assert (answer.status_code, answer.json()["error"][:5]) == (status, "code:")
        later = {**wanted, "code": pyotp.TOTP(secret).at(int(time.time()) + 30)}
        answer = await syncing.ask("POST", "/api/keys", later, token=session)
        assert answer.status_code == 200, answer.text
        syncing.secrets.add(answer.json()["key"])
    finally:
        await syncing.run("2fa", "off")


# Creation and revocation


async def test_key_is_made_shown_once_listed_and_revoked(closed: Daemon) -> None:
    made = await make_key(closed, "status", "convert", name="Máy tính", expiresInDays=30)
    assert made.keys() == {"ok", "id", "key", "name", "scopes", "createdAt", "expiresAt"}
    assert re.fullmatch(r"slk_[\w-]{43}", made["key"])
    (entry,) = [each for each in await listed(closed) if each["id"] == made["id"]]
    assert entry == {
        "id": made["id"],
        "name": "Máy tính",
        "scopes": ["convert", "status"],
        "createdAt": made["createdAt"],
        "expiresAt": made["expiresAt"],
        "lastUsedAt": None,
        "hint": made["key"][-4:],
    }
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT[\d:]{8}\.\d{3}Z", made["expiresAt"])
    assert (await closed.ask("GET", "/api/status", token=made["key"])).status_code == 200
    (entry,) = [each for each in await listed(closed) if each["id"] == made["id"]]
    assert entry["lastUsedAt"] >= made["createdAt"]

    path, session = f"/api/keys/{made['id']}", await closed.login()
    answer = await closed.ask("DELETE", path, token=session)
    assert (answer.status_code, answer.json()) == (200, {"ok": True})
    assert (await closed.ask("GET", "/api/status", token=made["key"])).status_code == 403
    assert (await closed.ask("DELETE", path, token=session)).status_code == 404
    assert made["id"] not in [each["id"] for each in await listed(closed)]


async def test_key_without_expiry_has_null(closed: Daemon) -> None:
    assert (await make_key(closed, "status"))["expiresAt"] is None


@pytest.mark.parametrize(
    ("wrong", "field"),
    [
        ({"name": ""}, "name"),
        ({"name": "x" * 61}, "name"),
        ({"name": "a\nb"}, "name"),
        ({"name": 5}, "name"),
        ({"scopes": []}, "scopes"),
        ({"scopes": ["everything"]}, "scopes.0"),
        ({"scopes": "convert"}, "scopes"),
        ({"expiresInDays": 0}, "expiresInDays"),
        ({"expiresInDays": 3651}, "expiresInDays"),
        ({"expiresInDays": 1.5}, "expiresInDays"),
    ],
)
async def test_key_with_wrong_field_is_400_that_names_it(
    closed: Daemon, wrong: Json, field: str
) -> None:
    body = {"name": "a bot", "scopes": ["convert"], **wrong}
    answer = await closed.ask("POST", "/api/keys", body, token=await closed.login())
    assert (answer.status_code, answer.json()["ok"]) == (400, False)
    assert answer.json()["error"].startswith(f"{field}: ")


@pytest.mark.parametrize("days", [1, 3650])
async def test_key_with_longest_name_and_allowed_days_is_made(closed: Daemon, days: int) -> None:
    made = await make_key(closed, "status", name="ố" * 60, expiresInDays=days)
    begin, end = (datetime.fromisoformat(made[name]) for name in ("createdAt", "expiresAt"))
    assert end - begin == timedelta(days=days)


async def test_fifty_first_key_is_400_until_one_is_revoked(closed: Daemon) -> None:
    session = await closed.login()
    made = [await make_key(closed, "status") for _ in range(50 - len(await listed(closed)))]
    body = {"name": "one too many", "scopes": ["status"]}
    try:
        answer = await closed.ask("POST", "/api/keys", body, token=session)
        assert (answer.status_code, "50 API keys" in answer.json()["error"]) == (400, True)
        assert len(await listed(closed)) == 50
    finally:
        for each in made:
            await closed.ask("DELETE", f"/api/keys/{each['id']}", token=session)
    await make_key(closed, "status")


async def test_key_ends_itself_and_no_other(closed: Daemon) -> None:
    mine, other = await key_for(closed, "metrics"), await key_for(closed, "metrics")
    answer = await closed.ask("DELETE", "/api/keys/self", token=mine)
    assert (answer.status_code, answer.json()) == (200, {"ok": True})
    assert (await closed.ask("DELETE", "/api/keys/self", token=mine)).status_code == 403
    assert (await closed.ask("GET", "/metrics", token=other)).status_code == 200
    session = await closed.login()
    assert (await closed.ask("DELETE", "/api/keys/self", token=session)).status_code == 403


async def test_shell_makes_lists_and_revokes_keys(closed: Daemon) -> None:
    options = ("--scope", "status", "--scope", "metrics", "--expires-in-days", "7")
    token = (await closed.run("keys", "create", "in the shell", *options)).strip()
    closed.secrets.add(token)
    assert (await closed.ask("GET", "/api/status", token=token)).status_code == 200
    (entry,) = [each for each in await listed(closed) if each["name"] == "in the shell"]
    assert entry["scopes"] == ["status", "metrics"]
    said = await closed.run("keys", "list")
    assert (entry["id"] in said, "in the shell" in said, token in said) == (True, True, False)
    await closed.run("keys", "revoke", entry["id"])
    assert (await closed.ask("GET", "/api/status", token=token)).status_code == 403


async def test_keys_survive_kill_and_wrong_ones_delay_nobody(running: Running) -> None:
    with running(
        **WITHOUT_BROWSER,
        cookie={"open_to": []},
    ) as daemon:
        token = await key_for(daemon, "status")
        for number in range(30):
            answer = await daemon.ask("GET", "/api/status", token=f"slk_wrong-{number}")
            assert answer.status_code == 403
        await daemon.kill()
        daemon.start()
        assert (await daemon.ask("GET", "/api/status", token=token)).status_code == 200
        for options, status in (((), 200), (("--keys",), 403)):
            await daemon.run("tokens", "revoke", *options)
            assert (await daemon.ask("GET", "/api/status", token=token)).status_code == status
        said = daemon.program.log.read_text()
        assert said.count("10 wrong keys came within an hour from 127.0.0.1") == 1
        assert "slk_" not in said


async def test_key_survives_new_password_which_ends_sessions(running: Running) -> None:
    with running(**WITHOUT_BROWSER) as daemon:
        key, session = await key_for(daemon, "status"), await daemon.login()
        assert daemon.program.stop() == 0
        new = PasswordHasher(time_cost=2, memory_cost=19 * 1024, parallelism=1).hash("another one")
        config = re.sub(r'(password_hash = )"[^"]*"', rf'\1"{new}"', daemon.config.read_text())
        daemon.config.write_text(config)
        daemon.start()
        assert (await daemon.ask("GET", "/api/status", token=session)).status_code == 403
        assert (await daemon.ask("GET", "/api/status", token=key)).status_code == 200


async def test_key_file_of_the_first_release_holds_hashes_and_is_read(running: Running) -> None:
    now, keys = time.time(), {"slk_still-good": 3600.0, "slk_expired": -3600.0}
    with running(**WITHOUT_BROWSER) as daemon:
        made = await make_key(daemon, "status")
        assert daemon.program.stop() == 0
        file = daemon.state / "api-keys.json"
        assert hashlib.sha256(made["key"].encode()).hexdigest() in file.read_text()
        for each in daemon.state.glob("*"):
            assert each.is_dir() or made["key"].encode() not in each.read_bytes(), each
        file.write_text(
            json.dumps({"version": 1, "keys": [saved(*each, now) for each in keys.items()]})
        )
        daemon.start()
        statuses = [(await daemon.ask("GET", "/api/status", token=key)).status_code for key in keys]
        assert statuses == [200, 403]


def saved(key: str, ends_in_s: float, now: float) -> Json:
    """Return an entry of the file as the first release with keys wrote it."""
    return {
        "id": hashlib.md5(key.encode()).hexdigest()[:16],
        "name": "from before",
        "scopes": ["status"],
        "created_at": now - 7200,
        "expires_at": now + ends_in_s,
        "last_used_at": None,
        "hint": key[-4:],
        "digest": hashlib.sha256(key.encode()).hexdigest(),
    }


async def test_right_key_resets_neither_failed_logins_nor_count_of_wrong_keys(
    closed: Daemon,
) -> None:
    sent = {"X-Forwarded-For": "192.0.2.77"}
    right = await key_for(closed, "status")

    async def status(key: str) -> int:
        return (await closed.ask("GET", "/api/status", token=key, headers=sent)).status_code

    async def log_in() -> int:
        body = {"password": "wrong"}
        return (await closed.ask("POST", "/api/auth/login", body, headers=sent)).status_code

    assert [await log_in() for _ in range(9)] == [401] * 9
    assert [await status(f"slk_wrong-{number}") for number in range(9)] == [403] * 9
    assert await status(right) == 200
    log = closed.program.log
    assert "10 wrong keys came within an hour from 192.0.2.77" not in log.read_text()
    assert (await status("slk_wrong-10"), await status(right)) == (403, 200)
    assert "10 wrong keys came within an hour from 192.0.2.77" in log.read_text()
    assert [await log_in(), await log_in()] == [401, 429]


# Cookies that a key sends


async def sync(
    daemon: Daemon, account: Account, token: str, *, replace: bool | None = None
) -> tuple[int, Json]:
    daemon.secrets |= account.secrets
    body = {"cookie": account.cookie, "replaceAccount": replace}
    answer = await daemon.ask("POST", "/api/sync-cookie", body, token=token)
    return answer.status_code, answer.json()


async def states(daemon: Daemon, accounts: Sequence[Account]) -> list[str]:
    found = (await daemon.ask("GET", "/api/account", token=await daemon.login())).json()
    of_each = {entry["name"]: entry["state"] for entry in found["accounts"]}
    return [of_each.get(account.number, "") for account in accounts]


async def test_cookie_with_key_never_ends_pause(syncing: Daemon, portal: Portal) -> None:
    session, token = await syncing.login(), await key_for(syncing, "cookie:write")
    account = portal.account()
    status, answer = await sync(syncing, account, session)
    assert (status, set(answer)) == (200, {"ok", "accountName", "syncedAt"})
    await portal.arm("human_check", account)
    assert (await syncing.convert(portal.link(portal.item()), account=None)).status_code == 502
    assert await states(syncing, [account]) == ["paused"]

    account.renew()
    status, answer = await sync(syncing, account, token)
    assert (status, answer["paused"]) == (200, True)
    assert await states(syncing, [account]) == ["paused"]
    submits = len(await portal.submits(account))
    assert (await syncing.convert(portal.link(portal.item()), account=None)).status_code == 502
    assert len(await portal.submits(account)) == submits

    assert (await sync(syncing, account, session))[0] == 200
    assert await states(syncing, [account]) == ["active"]
    account.renew()
    status, answer = await sync(syncing, account, token)
    assert (status, set(answer)) == (200, {"ok", "accountName", "syncedAt"})


@pytest.mark.parametrize("by", ["sync key", "loopback"])
async def test_sync_with_sync_key_or_from_loopback_ends_pause(
    syncing: Daemon, linking: Daemon, portal: Portal, by: str
) -> None:
    daemon, token = (syncing, SYNC_KEY) if by == "sync key" else (linking, "")
    account = portal.account()
    await portal.arm("human_check", account)
    assert (await daemon.convert(portal.link(portal.item()), account=account)).status_code == 502
    assert await states(daemon, [account]) == ["paused"]
    account.renew()
    status, answer = await sync(daemon, account, token)
    assert (status, "paused" in answer) == (200, False)
    assert await states(daemon, [account]) == ["active"]


async def test_other_accounts_cookie_with_key_is_409_unless_it_replaces(
    syncing: Daemon, portal: Portal
) -> None:
    session, token = await syncing.login(), await key_for(syncing, "cookie:write", "cookie:read")
    first, second = portal.account(), portal.account()
    assert (await sync(syncing, first, session))[0] == 200
    status, answer = await sync(syncing, second, token)
    assert (status, answer["ok"]) == (409, False)
    assert "replaceAccount" in answer["error"]
    stored = await syncing.ask("GET", "/api/sync-cookie", token=token)
    assert stored.json()["cookie"] == first.cookie
    assert (await sync(syncing, second, token, replace=False))[0] == 409
    assert (await sync(syncing, second, token, replace=True))[0] == 200
    stored = await syncing.ask("GET", "/api/sync-cookie", token=token)
    assert stored.json()["cookie"] == second.cookie
    assert (await sync(syncing, first, session))[0] == 200
    log = syncing.program.log.read_text()
    text = "the stored cookie is another account's now: {}, which was {}"
    assert text.format(second.number, first.number) in log
    assert text.format(first.number, second.number) in log


async def test_owner_is_told_of_new_key_and_other_account(
    running: Running, portal: Portal, tmp_path: Path
) -> None:
    told = tmp_path / "told"
    with running(
        **WITHOUT_BROWSER, notify={"command": ["/usr/bin/tee", "-a", str(told)]}
    ) as daemon:
        made = await make_key(daemon, "status", name="a bot")
        first, second = portal.account(), portal.account()
        for account in (first, second):
            daemon.secrets |= account.secrets
            await daemon.ask("POST", "/api/sync-cookie", {"cookie": account.cookie})

        async def notices() -> list[Json]:
            lines = told.read_text().splitlines() if told.exists() else []
            return [json.loads(line) for line in lines] if len(lines) == 2 else []

        key_made, replaced = await until("both notices", notices)
        assert (key_made["event"], replaced["event"]) == ("key_made", "account_replaced")
        assert f"the API key a bot ({made['id']}) was made, for: status" in key_made["text"]
        assert (replaced["account"], first.number in replaced["text"]) == (second.number, True)
        assert not daemon.secrets_in(told.read_text())
