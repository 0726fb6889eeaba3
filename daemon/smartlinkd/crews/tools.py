"""The tools that the daemon offers to crews by `tool_call`.

A crew needs affiliate links, and must not hold the cookie that makes them. A client is told at once
that a part is being restarted, and comes again. A crew would fail, and may be half an hour of work:
so a tool waits for the part.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Final

import trio
from pydantic import ConfigDict, JsonValue, TypeAdapter, ValidationError

from smartlinkd.conversion.request import TRANSIENT, NoCookie, conversion_request
from smartlinkd.conversion.schemas import LinkResult, LinksRequest
from smartlinkd.conversion.service import ConversionService
from smartlinkd.errors import Invalid, NotNow
from smartlinkd.supervision.calls import actor_deadline
from smartlinkd.validation import describe_errors
from smartlinkd.vault.actor import Vault

CONVERT_LINKS: Final = "convert_links"

TOOL_NAMES: Final = frozenset({CONVERT_LINKS})
"""The names of all tools, for the check of a configuration."""

TOOL_PATIENCE: Final = 60.0
"""Seconds that a crew's links wait for a part that is being restarted. Then is the last try."""
RETRY: Final = 2
"""Seconds until the next try, where the refusal does not say when."""

Tool = Callable[[str, dict[str, JsonValue]], Awaitable[JsonValue]]
"""Takes the crew's name and the call's arguments, and returns the result. Raises `Refused`, whose
text is for the crew."""

_MAPPING = TypeAdapter(dict[str, LinkResult], config=ConfigDict(defer_build=True))


class _Arguments(LinksRequest):
    """The arguments of `convert_links`. Others are refused: a cookie, say, would not be used."""

    model_config = ConfigDict(extra="forbid")


def tools(conversion: ConversionService, vault: Vault) -> Mapping[str, Tool]:
    """Return the tools by their names."""

    async def convert_links(crew: str, arguments: dict[str, JsonValue]) -> JsonValue:
        """Convert {"links": […], "subIds"?: […]} to {"mapping": {link: entry}}, as `/api/convert`.

        Raises `Invalid` for wrong arguments or without a cookie, and what the conversion raises.
        """
        wanted = _arguments(arguments)
        latest = trio.current_time() + TOOL_PATIENCE
        while True:
            is_last = trio.current_time() >= latest
            try:
                return await convert(crew, wanted, fail_on_transient_error=not is_last)
            except TRANSIENT as refusal:
                if is_last:
                    raise
                wait = refusal.retry_after if isinstance(refusal, NotNow) else RETRY
            await trio.sleep(max(0.0, min(wait, latest - trio.current_time())))

    async def convert(crew: str, wanted: _Arguments, *, fail_on_transient_error: bool) -> JsonValue:
        with actor_deadline():
            record = await vault.current()
        request = conversion_request(
            wanted.links,
            wanted.sub_ids,
            record.cookie if record else None,
            client=f"crew:{crew}",
            fail_on_transient_error=fail_on_transient_error,
        )
        try:
            results = await conversion.convert(request)
        except NoCookie:
            raise Invalid(
                "no affiliate cookie is stored, so no link can be made; sync one with the browser "
                "extension or POST /api/sync-cookie, then start the crew again"
            ) from None
        return {"mapping": _MAPPING.dump_python(results, mode="json")}

    return {CONVERT_LINKS: convert_links}


def _arguments(given: dict[str, JsonValue]) -> _Arguments:
    try:
        return _Arguments.model_validate(given)
    except ValidationError as error:
        text = f"{CONVERT_LINKS}: {describe_errors(error, whole='its arguments')}"
    raise Invalid(text)  # out here it has no context, which would hold the values
