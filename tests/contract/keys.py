"""API keys of a daemon under test."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tests.contract.conftest import Daemon

Json = dict[str, Any]


async def make_key(daemon: Daemon, *scopes: str, name: str = "a bot", **more: object) -> Json:
    """Make a key. Return the daemon's answer, in which the key itself is `key`."""
    body = {"name": name, "scopes": scopes, **more}
    answer = await daemon.ask("POST", "/api/keys", body, token=await daemon.login())
    assert answer.status_code == 200, answer.text
    made: Json = answer.json()
    daemon.secrets.add(made["key"])
    return made


async def key_for(daemon: Daemon, *scopes: str) -> str:
    """Make a key of these scopes. Return the key itself."""
    return str((await make_key(daemon, *scopes))["key"])
