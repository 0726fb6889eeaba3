"""The guards in front of operations: each says who the caller is, or refuses.

They run before a body is read, so that nobody without access learns what a body should be; and
again when it is there, since a token can be ended in the half minute that it may take.
"""

from __future__ import annotations

import hmac
from dataclasses import dataclass
from typing import Final

import trio
from pydantic import SecretStr
from quart import request

from daemon.api.access import Caller, identify
from daemon.api.openapi import Access, bearer
from daemon.api.services import Services
from daemon.api.wrong_keys import WrongKeys
from daemon.auth.actor import Session
from daemon.errors import NotAllowed

REFUSALS: Final = (403, 503)


@dataclass(frozen=True)
class Visitor:
    """Somebody with a session, and the address that throttling goes by."""

    session: Session
    address: str


class Guards:
    """The kinds of access that the affiliate service knows."""

    def __init__(self, services: Services) -> None:
        self._auth = services.auth
        self._neighbourhood = services.rules.neighbourhood
        self._sync_key = services.sync_key
        self._wrong_keys = WrongKeys(trio.current_time)
        self.anyone = Access(self._caller, bearer="none")
        self.session = Access(self._session, bearer="required", refusals=REFUSALS)
        self.visitor = Access(self._visitor, bearer="required", refusals=REFUSALS)
        self.local_or_session = Access(self._local_or_session, bearer="optional", refusals=REFUSALS)
        self.local_or_key = Access(self._local_or_key, bearer="optional", refusals=REFUSALS)

    async def _caller(self) -> Caller:
        return identify(request.remote_addr, request.headers, self._neighbourhood)

    async def _session(self) -> Session:
        return await self._auth.check_session(bearer())

    async def _visitor(self) -> Visitor:
        return Visitor(await self._session(), (await self._caller()).address)

    async def _local_or_session(self) -> None:
        if not (await self._caller()).local:
            await self._session()

    async def _local_or_key(self) -> None:
        caller, given = await self._caller(), bearer()
        if caller.local or _same(given, self._sync_key):
            return
        try:
            await self._session()
        except NotAllowed:
            if given is not None and self._sync_key:
                self._wrong_keys.note(caller.address)
            raise NotAllowed(
                f"this is open to local requests only, and yours is none: {caller.strange}; send "
                "a session token or the sync key as `Authorization: Bearer …`"
            ) from None


def _same(given: str | None, key: SecretStr) -> bool:
    expected = key.get_secret_value()
    if given is None or not expected:
        return False
    return hmac.compare_digest(given.encode("utf-8", "surrogatepass"), expected.encode())
