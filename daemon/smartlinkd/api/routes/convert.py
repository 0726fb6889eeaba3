"""Convert links, find the links in a text, and convert a whole text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import inf

from smartlinkd.api.auth_guards import Client, Guards
from smartlinkd.api.operations import Api
from smartlinkd.api.routes.cookies import read_cookie
from smartlinkd.api.schemas import (
    ConvertRequest,
    ConvertResponse,
    ConvertTextRequest,
    ConvertTextResponse,
    ExtractedLink,
    ExtractRequest,
    ExtractResponse,
)
from smartlinkd.conversion.request import conversion_request
from smartlinkd.conversion.schemas import MAX_LINKS, LinkResult, SuccessEntry
from smartlinkd.conversion.service import ConversionService
from smartlinkd.errors import Invalid
from smartlinkd.marketplace.links import FoundLink, find_links
from smartlinkd.supervision.calls import actor_deadline
from smartlinkd.threads import on_thread
from smartlinkd.vault.actor import Vault
from smartlinkd.vault.cookie import Cookie, parse_cookie


def add(api: Api, guards: Guards, conversion: ConversionService, vault: Vault) -> None:
    """Add these operations to `api`."""

    @api.operation(
        "POST",
        "/api/convert",
        access=guards.scoped("convert"),
        body=ConvertRequest,
        ok=ConvertResponse,
        errors=(502,),
        seconds=inf,  # the service keeps the deadline, and answers with what it has by then
    )
    async def convert(client: Client, body: ConvertRequest) -> ConvertResponse:
        """Turn product or short links into affiliate links, with product data.

        `mapping` has an entry for each link, keyed by the link exactly as it was sent. A link that
        fails does not fail the others.
        """
        cookie = await _cookie(body)
        request = conversion_request(body.links, body.sub_ids, cookie, client=client.name)
        return ConvertResponse(mapping=await conversion.convert(request))

    @api.operation(
        "POST",
        "/api/extract",
        access=guards.scoped("convert"),
        body=ExtractRequest,
        ok=ExtractResponse,
    )
    async def extract(_: Client, body: ExtractRequest) -> ExtractResponse:
        """Find the marketplace links in a text. Nothing is sent to the marketplace."""
        found = await on_thread(find_links, body.text, conversion.market)
        links = [
            ExtractedLink(link=body.text[each.start : each.end], start=each.start, end=each.end)
            for each in found
        ]
        return ExtractResponse(links=links)

    @api.operation(
        "POST",
        "/api/convert-text",
        access=guards.scoped("convert"),
        body=ConvertTextRequest,
        ok=ConvertTextResponse,
        errors=(502,),
        seconds=inf,  # as for /api/convert
    )
    async def convert_text(client: Client, body: ConvertTextRequest) -> ConvertTextResponse:
        """Replace each marketplace link of a text by its affiliate short link.

        A link that could not be converted stays in the text. `mapping` has an entry for each link,
        keyed by the link as it stands in the text.
        """
        cookie = await _cookie(body)
        found = await on_thread(find_links, body.text, conversion.market)
        links = list(dict.fromkeys(body.text[each.start : each.end] for each in found))
        if len(links) > MAX_LINKS:
            raise Invalid(
                f"text: has {len(links)} different links, and at most {MAX_LINKS} are converted "
                "at once; send it in pieces"
            )
        results: dict[str, LinkResult] = {}
        if links:
            request = conversion_request(links, body.sub_ids, cookie, client=client.name)
            results = await conversion.convert(request)
        text = _replaced(body.text, found, results)
        return ConvertTextResponse(text=text, mapping=results)

    async def _cookie(body: ConvertRequest | ConvertTextRequest) -> Cookie | None:
        """Return the request's own cookie, else the stored one or None. Raises `Invalid`."""
        if body.cookie:  # neither null nor empty
            if not conversion.needs_cookie:
                raise Invalid(
                    'cookie: links are made by the Open API here (links.source = "open_api"), '
                    "which takes none; leave it out"
                )
            return parse_cookie(await read_cookie(body.cookie, conversion.market))
        with actor_deadline():
            record = await vault.current()
        return record.cookie if record is not None else None


def _replaced(text: str, found: Sequence[FoundLink], results: Mapping[str, LinkResult]) -> str:
    """Return the text with each link that was converted replaced by its short link."""
    pieces: list[str] = []
    end = 0
    for each in found:
        link = text[each.start : each.end]
        result = results[link]
        pieces += [
            text[end : each.start],
            result.short_link if isinstance(result, SuccessEntry) else link,
        ]
        end = each.end
    return "".join([*pieces, text[end:]])
