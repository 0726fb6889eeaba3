"""Sessions over restarts, and what ends them before their time."""

from __future__ import annotations

import stat
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

from smartlinkd.admin.control_socket import call

if TYPE_CHECKING:
    from tests.api.conftest import Conformity, Daemon, Phone, Start

COOKIE = "SPC_U=4711; SPC_EC=.ec-of-4711"

BODIES: dict[str, dict[str, Any]] = {
    "/api/auth/2fa/enable": {"secret": "s", "code": "123456"},
    "/api/auth/2fa/disable": {"code": "123456"},
    "/api/auth/revoke": {"keys": True},
    "/api/sync-cookie": {"cookie": COOKIE},
    "/api/sync-cookie-local": {"cookie": COOKIE},
    "/api/convert": {"links": ["https://example.org/"]},
    "/api/extract": {"text": ""},
    "/api/convert-text": {"text": ""},
    "/api/keys": {"name": "a program", "scopes": ["convert"]},
    "/api/crews/token": {"crew": "echo"},
    "/api/crews/token/rotate": {"crew": "echo"},
}
"""A request body for each operation that has one and takes a session."""


async def is_good(daemon: Daemon, token: str) -> bool:
    return (await daemon.get("/api/status", token=token)).status_code == 200


async def test_restart_ends_no_session(start: Start) -> None:
    first = await start()
    token = await first.login()
    await first.stop()
    assert await is_good(await start(), token)


async def test_restart_without_systemd_forgets_the_cookie(start: Start) -> None:
    first = await start()
    await first.post("/api/sync-cookie", {"cookie": COOKIE})
    await first.stop()
    assert (await (await start()).get("/api/sync-cookie")).json()["ok"] is False


@pytest.mark.parametrize("path", BODIES)
async def test_session_that_ends_while_the_body_arrives_is_403(start: Start, path: str) -> None:
    crew = {"name": "echo", "runner": "command", "command": ["/bin/echo"]}
    daemon = await start(cookie={"open_to": []}, crews=[crew])
    token = await daemon.login()
    revoke = partial(call, daemon.state, "tokens revoke")
    answer = await daemon.post_late(path, token, BODIES[path], revoke)
    assert answer.startswith(b"HTTP/1.1 403 ")
    token = await daemon.login()
    assert (await daemon.get("/api/sync-cookie", token=token)).json()["ok"] is False


async def test_every_operation_with_a_body_and_a_session_is_tried(
    daemon: Daemon, conformity: Conformity
) -> None:
    taking = {
        path
        for _, path, operation in conformity.operations()
        if "requestBody" in operation and operation["security"] and not path.startswith("/crews/")
    }
    assert taking == set(BODIES)


async def test_operator_ends_the_session_that_enable_spared(
    daemon: Daemon, token: str, phone: Phone
) -> None:
    secret = await phone.enable(daemon, token)
    waiting = {"tempToken": await daemon.begin_login(), "code": phone.shows(secret)}
    await call(daemon.state, "tokens revoke")
    assert not await is_good(daemon, token)
    assert (await daemon.post("/api/auth/verify-mfa", waiting)).status_code == 403


async def test_operator_switches_the_second_factor_off(
    daemon: Daemon, token: str, phone: Phone
) -> None:
    await phone.enable(daemon, token)
    assert (await call(daemon.state, "2fa off"))["ok"] is True
    assert await is_good(daemon, await daemon.login())


async def test_configured_signing_secret_is_not_written(start: Start) -> None:
    first = await start(auth={"signing_secret": "ab" * 32})
    token = await first.login()
    await first.stop()
    assert not (first.state / "signing-secret").exists()
    second = await start(auth={"signing_secret": "ab" * 32})
    assert await is_good(second, token)
    await second.stop()
    assert not await is_good(await start(auth={"signing_secret": "cd" * 32}), token)


async def test_state_files_are_private(daemon: Daemon, token: str) -> None:
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in daemon.state.iterdir()}
    assert modes.pop("runs") == 0o700
    assert {"auth.json", "signing-secret", "crew-master-secret", "journal.sqlite3"} < set(modes)
    assert set(modes.values()) == {0o600}
    assert stat.S_IMODE(daemon.state.stat().st_mode) == 0o700
