"""The guards in front of operations: each says who the caller is, or refuses.

They run before a body is read, so that nobody without access learns what a body should be; and
again when it is there, since a token can be ended in the half minute that it may take.
"""

from __future__ import annotations

import hmac
from dataclasses import dataclass
from functools import partial
from typing import Final

import trio
from pydantic import SecretStr
from quart import request

from daemon.api.access import Caller, identify
from daemon.api.openapi import Access, bearer
from daemon.api.services import Services
from daemon.api.wrong_keys import WrongKeys
from daemon.auth.actor import ApiKey, Session
from daemon.auth.keys import PREFIX, Scope, WrongKey
from daemon.crews.crew import Caller as CrewCaller
from daemon.errors import NotAllowed, WrongCredential

REFUSALS: Final = (403, 503)
OWNER: Final = "owner"
LOCAL: Final = "local"


@dataclass(frozen=True)
class Visitor:
    """Somebody with a session, and the address that throttling goes by."""

    session: Session
    address: str


@dataclass(frozen=True)
class Client:
    """Who calls an operation that API keys may open, too.

    `name` is "owner" for a session, "local" for open access, "sync key", or an API key's name.
    `key_id` is None unless an API key was sent.
    """

    name: str
    address: str
    key_id: str | None = None


@dataclass(frozen=True)
class Credential:
    """What a request to a crew shows of its sender. It outlives the request: streams ask again."""

    token: str | None
    address: str


class Guards:
    """The kinds of access that the affiliate service and the crews know."""

    def __init__(self, services: Services) -> None:
        self._auth = services.auth
        self._crew_tokens = services.crews.tokens
        self._neighbourhood = services.rules.neighbourhood
        self._sync_key = services.sync_key
        self._wrong_keys = WrongKeys(trio.current_time)
        self.anyone = Access(self._caller, bearer="none")
        self.session = Access(self._session, bearer="required", refusals=REFUSALS)
        self.visitor = Access(self._visitor, bearer="required", refusals=REFUSALS)
        self.any_key = Access(self._any_key, bearer="required", refusals=REFUSALS)

    def scoped(self, scope: Scope) -> Access[Client]:
        """Return the access of sessions, and of API keys with this scope."""
        admit = partial(self._scoped, scope)
        return Access(admit, bearer="required", refusals=REFUSALS, scope=scope)

    def local_or_scoped(self, scope: Scope) -> Access[Client]:
        """Return the access of local clients, sessions, and API keys with this scope.

        A key that was sent is what counts, also from a local client.
        """
        admit = partial(self._local_or_scoped, scope)
        return Access(admit, bearer="optional", refusals=REFUSALS, scope=scope)

    def local_or_key(self, scope: Scope) -> Access[Client]:
        """Return the same access, which the sync key opens as well."""
        admit = partial(self._local_or_key, scope)
        return Access(admit, bearer="optional", refusals=REFUSALS, scope=scope)

    async def _caller(self) -> Caller:
        return identify(request.remote_addr, request.headers, self._neighbourhood)

    async def _session(self) -> Session:
        given = bearer()
        if given is not None and given.startswith(PREFIX):
            await self._check_key(given, (await self._caller()).address)
            raise NotAllowed(
                "no API key opens this; log in at /api/auth/login and send the session token"
            )
        return await self._auth.check_session(given)

    async def _visitor(self) -> Visitor:
        return Visitor(await self._session(), (await self._caller()).address)

    async def _any_key(self) -> Client:
        given, address = bearer(), (await self._caller()).address
        if given is None or not given.startswith(PREFIX):
            raise NotAllowed(
                "this is about the API key that is sent; send one as `Authorization: Bearer …`"
            )
        key = await self._check_key(given, address)
        return Client(key.name, address, key.id)

    async def _scoped(self, scope: Scope) -> Client:
        given, address = bearer(), (await self._caller()).address
        if given is not None and given.startswith(PREFIX):
            return await self._with_scope(given, scope, address)
        await self._auth.check_session(given)
        return Client(OWNER, address)

    async def _local_or_scoped(self, scope: Scope) -> Client:
        given, caller = bearer(), await self._caller()
        if caller.local and not (given is not None and given.startswith(PREFIX)):
            return Client(LOCAL, caller.address)
        return await self._scoped(scope)

    async def _local_or_key(self, scope: Scope) -> Client:
        given, caller = bearer(), await self._caller()
        if _same(given, self._sync_key):
            return Client("sync key", caller.address)
        if given is not None and given.startswith(PREFIX):
            return await self._with_scope(given, scope, caller.address)
        if caller.local:
            return Client(LOCAL, caller.address)
        try:
            return await self._scoped(scope)
        except NotAllowed:
            if given is not None and self._sync_key:
                self._wrong_keys.note(caller.address)
            raise NotAllowed(
                f"this is open to local requests only, and yours is none: {caller.strange}; send "
                f"a session token, an API key with the scope {scope} or the sync key as "
                "`Authorization: Bearer …`"
            ) from None

    async def _with_scope(self, given: str, scope: Scope, address: str) -> Client:
        key = await self._check_key(given, address)
        if scope not in key.scopes:
            raise NotAllowed(
                f"the API key does not have the scope {scope}; make one that has it on the page "
                "under Security, or with `smartlinkd keys create`"
            )
        return Client(key.name, address, key.id)

    async def _check_key(self, given: str, address: str) -> ApiKey:
        """Return the key that was sent. Raises `WrongKey`, which is counted."""
        try:
            return await self._auth.check_key(given)
        except WrongKey:
            self._wrong_keys.note(address)
            raise

    # Crews

    def credential(self) -> Credential:
        """Return what the current request shows of its sender."""
        caller = identify(request.remote_addr, request.headers, self._neighbourhood)
        return Credential(bearer(), caller.address)

    async def crew_caller(self, crew: str, shown: Credential) -> CrewCaller:
        """Return who calls a crew. Raises `WrongCredential`, or `NotAllowed` for a key's scope."""
        if shown.token is None or not shown.token.startswith(PREFIX):
            return await self._crew_tokens.caller(crew, shown.token)
        try:
            await self._with_scope(shown.token, "crews", shown.address)
        except WrongKey as wrong:
            raise WrongCredential(str(wrong)) from None
        return await self._crew_tokens.organization(crew)


def _same(given: str | None, key: SecretStr) -> bool:
    expected = key.get_secret_value()
    if given is None or not expected:
        return False
    return hmac.compare_digest(given.encode("utf-8", "surrogatepass"), expected.encode())
