"""Each operation of both APIs with each credential that is not meant for it.

The operations come from the daemon's own document, so a new operation is tested, too. An operation
without a credential has to be listed here. `tests/auth/test_tokens.py` and
`tests/contract/test_failures.py` test the claims of tokens.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

import httpx
import jwt
import pyotp
import pytest
import trio

if TYPE_CHECKING:
    from tests.security.conftest import Daemon, Start

Json = dict[str, Any]

FOR_EVERYBODY = {
    "POST /api/auth/login",
    "POST /api/auth/verify-mfa",
    "GET /api/health",
    "GET /livez",
    "GET /readyz",
}
WITH_THE_SYNC_KEY = {
    "POST /api/sync-cookie",
    "POST /api/sync-cookie-local",
    "GET /api/sync-cookie",
}


@dataclass(frozen=True)
class Credentials:
    """All kinds of credentials."""

    session: str
    temporary: str
    sync_key: str
    alpha: str
    ann: str
    beta: str
    beta_ann: str
    rotated: str
    ended: str

    def forged(self) -> dict[str, str]:
        """Return credentials that somebody without the secret can forge."""
        claims = jwt.decode(self.session, options={"verify_signature": False})
        head, payload, _ = self.session.split(".")
        return {
            "nothing": "",
            "no token": "x",
            "unsigned": f"{head}.{payload}.",
            "alg none": jwt.encode(claims, "", "none"),
            "signed with the sync key": jwt.encode(claims, self.sync_key, "HS256"),
            "with another key id": jwt.encode(
                claims, self.sync_key, "HS256", headers={"kid": "/dev/null"}
            ),
            "with its own key": jwt.encode(
                claims, self.sync_key, "HS256", headers={"jwk": {"kty": "oct", "k": "c3luYw"}}
            ),
            "cut short": self.session[:-1],
            "longer": self.session + "A" * 5000,
            "another's signature": f"{head}.{payload}.{self.temporary.split('.')[2]}",
            "a crew's, cut short": self.alpha[:-1],
            "a crew's, as a user's": "slu_" + self.alpha.removeprefix("slc_"),
        }


@dataclass(frozen=True)
class GuardedDaemon:
    daemon: Daemon
    given: Credentials
    security: dict[str, list[Json]]
    """The credentials that the document names, by operation."""

    @property
    def operations(self) -> set[str]:
        """All that need a credential."""
        return self.security.keys() - FOR_EVERYBODY

    async def status(self, operation: str, token: str) -> int:
        """Call an operation without its body and return the status."""
        method, _, path = operation.partition(" ")
        path = re.sub(r"\{(\w+)\}", lambda name: {"crew": "alpha"}.get(name[1], "x"), path)
        answer = await self.daemon.ask(method, path, token=token)
        assert answer.headers["content-type"] == "application/json", (operation, answer.text)
        return answer.status_code

    async def check_refused(self, operation: str, token: str) -> None:
        """Check that a call is refused before its body is read."""
        refused = 401 if is_crew_operation(operation) else 403
        assert await self.status(operation, token) == refused, operation


@pytest.fixture(scope="module")
def running(start: Start) -> Iterator[Daemon]:
    """A daemon with the second factor; no client counts as local, else three operations need no
    token."""
    with start(cookie={"open_to": []}) as daemon:
        yield daemon


@pytest.fixture(scope="module")
def guarded(running: Daemon) -> GuardedDaemon:
    return trio.run(start_guarded, running)


async def start_guarded(daemon: Daemon) -> GuardedDaemon:
    ended = await daemon.login()
    daemon.token = ""
    session = await daemon.login()
    setup = (await daemon.ask("GET", "/api/auth/2fa/setup", token=session)).json()
    body = {"secret": setup["secret"], "code": pyotp.TOTP(setup["secret"]).now()}
    answer = await daemon.ask("POST", "/api/auth/2fa/enable", body, token=session)
    assert answer.status_code == 200, answer.text
    password = {"password": "correct horse battery staple"}
    begun = (await daemon.ask("POST", "/api/auth/login", password)).json()
    rotated = await daemon.crew_token("alpha", "bob")
    await daemon.crew_token("alpha", "bob", rotate=True)
    given = Credentials(
        session=session,
        temporary=begun["tempToken"],
        sync_key="sync-key-of-the-extension-0123456789",
        alpha=await daemon.crew_token("alpha"),
        ann=await daemon.crew_token("alpha", "ann"),
        beta=await daemon.crew_token("beta"),
        beta_ann=await daemon.crew_token("beta", "ann"),
        rotated=rotated,
        ended=ended,
    )
    security = {
        f"{method.upper()} {path}": operation["security"]
        for path, methods in (await daemon.document())["paths"].items()
        for method, operation in methods.items()
    }
    return GuardedDaemon(daemon, given, security)


def is_crew_operation(operation: str) -> bool:
    return "/crews/{crew}" in operation


async def test_operations_without_a_credential_are_the_known_ones(guarded: GuardedDaemon) -> None:
    """A new operation without a credential has to be added here."""
    assert {
        name for name, each in guarded.security.items() if {"bearer": []} not in each
    } == FOR_EVERYBODY
    optional = {name for name, each in guarded.security.items() if {} in each}
    assert optional == {*WITH_THE_SYNC_KEY, "GET /metrics"}


async def test_forged_credential_opens_nothing(guarded: GuardedDaemon) -> None:
    for operation in guarded.operations:
        for token in guarded.given.forged().values():
            await guarded.check_refused(operation, token)


@pytest.mark.parametrize("kind", [field.name for field in fields(Credentials)])
async def test_credential_opens_only_what_it_is_for(guarded: GuardedDaemon, kind: str) -> None:
    token = getattr(guarded.given, kind)
    for operation in guarded.operations:
        if operation in WITH_THE_SYNC_KEY and kind in ("session", "sync_key"):
            assert await guarded.status(operation, token) in (200, 400)  # let in
        elif kind not in (("alpha", "ann") if is_crew_operation(operation) else ("session",)):
            await guarded.check_refused(operation, token)


async def test_each_credential_opens_what_it_is_for(guarded: GuardedDaemon) -> None:
    """Each credential is valid, so the refusals in the other tests have the right reason."""
    daemon, given = guarded.daemon, guarded.given
    for token in (given.alpha, given.ann):
        assert (await daemon.ask("GET", "/crews/alpha/inputs", token=token)).status_code == 200
    for token in (given.beta, given.beta_ann):
        assert (await daemon.ask("GET", "/crews/beta/inputs", token=token)).status_code == 200
    assert (await daemon.ask("GET", "/api/status", token=given.session)).status_code == 200


@pytest.mark.parametrize("place", ["under", "root", "own"])
async def test_other_addresses_of_a_crew_ask_for_the_same_token(
    guarded: GuardedDaemon, place: str
) -> None:
    daemon = guarded.daemon
    base = {"under": f"{daemon.url}/crews/alpha", "root": daemon.url, "own": daemon.own_url}[place]

    async def ask(token: str) -> httpx.Response:
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        async with httpx.AsyncClient(trust_env=False) as client:
            return await client.get(f"{base}/inputs", headers=headers)

    for token in ("", guarded.given.session, guarded.given.beta, guarded.given.rotated):
        answer = await ask(token)
        assert (answer.status_code, "WWW-Authenticate" in answer.headers) == (401, True)
    answer = await ask(guarded.given.ann)
    assert answer.json() == {"inputs": ["topic"]}
