"""Links in, affiliate links out (seed, POST /api/convert)."""

from __future__ import annotations

from math import inf

from daemon.api.guards import Guards
from daemon.api.openapi import Api
from daemon.api.schemas import ConvertRequest, ConvertResponse
from daemon.auth.actor import Session
from daemon.conversion.desk import Desk
from daemon.conversion.shapes import mapping
from daemon.errors import Invalid
from daemon.patience import patience
from daemon.vault.actor import Vault
from daemon.vault.cookie import Cookie, parse_cookie


def add(api: Api, guards: Guards, desk: Desk, vault: Vault) -> None:
    """Add the operation to `api`."""

    @api.operation(
        "POST",
        "/api/convert",
        access=guards.session,
        body=ConvertRequest,
        ok=ConvertResponse,
        errors=(502, 503),
        seconds=inf,  # the desk keeps the time: it has something to say at the deadline
    )
    async def convert(_: Session, body: ConvertRequest) -> ConvertResponse:
        """Turn product or short links into affiliate links, with product data.

        `mapping` has an entry for each link, keyed by the link exactly as it was sent. A link that
        fails does not fail the others.
        """
        entries = await desk.convert(body.order(await _cookie(body)))
        return ConvertResponse(mapping=mapping(entries))

    async def _cookie(body: ConvertRequest) -> Cookie | None:
        """The request's own cookie, else the stored one. Raises `Invalid`."""
        given = body.cookie.get_secret_value() if body.cookie is not None else ""
        if given and not desk.needs_cookie:
            raise Invalid(
                'cookie: links are made by the Open API here (links.source = "open_api"), which '
                "takes none; leave it out"
            )
        if given:
            return parse_cookie(given)
        with patience():
            record = await vault.current()
        return record.cookie if record is not None else None
