"""API keys: made, listed and revoked by the owner; one can end itself."""

from __future__ import annotations

from typing import Annotated

from smartlinkd.admin.status import Operator, key_report
from smartlinkd.api.auth_guards import Client, Guards, Visitor
from smartlinkd.api.operations import Api
from smartlinkd.api.schemas import DoneResponse, KeyRequest, KeyResponse, KeysResponse
from smartlinkd.auth.actor import Auth, KeySpec
from smartlinkd.wire import In, Parameters


class OneKey(Parameters):
    id: Annotated[str, In("path")]


def add(api: Api, guards: Guards, auth: Auth, operator: Operator) -> None:
    """Add these operations to `api`."""

    @api.operation(
        "POST",
        "/api/keys",
        access=guards.session,
        body=KeyRequest,
        ok=KeyResponse,
        errors=(401,),
    )
    async def create_key(visitor: Visitor, body: KeyRequest) -> KeyResponse:
        """Make an API key, for a program. The answer is the only one that shows it.

        With the second factor on, a current code is needed, too. There may be 50 keys.
        """
        made = await auth.create_key(
            KeySpec(body.name, body.scopes, body.expires_in_days),
            visitor.session,
            body.code.get_secret_value() if body.code is not None else None,
            visitor.address,
        )
        report = key_report(made.entry)
        return KeyResponse(**dict(report), key=made.key.get_secret_value())

    @api.operation("GET", "/api/keys", access=guards.session, ok=KeysResponse)
    async def keys(_: Visitor) -> KeysResponse:
        """List the API keys, those that have expired among them."""
        return KeysResponse(keys=await operator.keys())

    @api.operation(
        "DELETE", "/api/keys/self", access=guards.any_key, ok=DoneResponse, errors=(404,)
    )
    async def revoke_own_key(client: Client) -> DoneResponse:
        """Revoke the API key that is sent. Any key may do this."""
        assert client.key_id is not None  # noqa: S101 - for the type checker: any_key sees to it
        await auth.revoke_key(client.key_id)
        return DoneResponse()

    @api.operation(
        "DELETE",
        "/api/keys/{id}",
        access=guards.session,
        asks=OneKey,
        ok=DoneResponse,
        errors=(404,),
    )
    async def revoke_key(_: Visitor, asked: OneKey) -> DoneResponse:
        """Revoke an API key. It is refused from then on."""
        await auth.revoke_key(asked.id)
        return DoneResponse()
