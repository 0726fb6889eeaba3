"""What the daemon does for a crew that asks for it by `tool_call`.

The problem: a crew needs affiliate links, and must not hold what makes them: the cookie, or a
session token. The choice: the daemon does it for the crew, with the cookie that is stored, and the
crew sees the entries alone. Which crew may call what is its configuration's, so the executor's,
business; here a name only has to mean something.

A client is told at once that a part is being restarted, Chromium above all, and comes again. A crew
may be half an hour of somebody's work, and would fail: so here that is waited for.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Final

import trio
from pydantic import ConfigDict, JsonValue, TypeAdapter, ValidationError

from smartlinkd.conversion.request import PASSING
from smartlinkd.conversion.schemas import FailureEntry, LinksRequest, SuccessEntry, mapping
from smartlinkd.conversion.service import Desk
from smartlinkd.errors import Invalid, NotNow
from smartlinkd.patience import patience
from smartlinkd.validation import describe_errors
from smartlinkd.vault.actor import Vault

CONVERT_LINKS: Final = "convert_links"

TOOL_NAMES: Final = frozenset({CONVERT_LINKS})
"""All there are, for whoever checks a configuration and has no desk."""

TOOL_PATIENCE: Final = 60.0
"""Seconds that a crew's links wait for what is being restarted: then is the last try."""
RETRY: Final = 2
"""Seconds, where the refusal does not say when to try again."""

Tool = Callable[[str, dict[str, JsonValue]], Awaitable[JsonValue]]
"""The crew's name and the arguments of a `tool_call` → its result. Raises `Refused`, whose text is
for the crew."""

_MAPPING = TypeAdapter(dict[str, SuccessEntry | FailureEntry], config=ConfigDict(defer_build=True))


class _Arguments(LinksRequest):
    """Of `convert_links`. What it does not know it refuses: a cookie, say, would not be used."""

    model_config = ConfigDict(extra="forbid")


def tools(desk: Desk, vault: Vault) -> Mapping[str, Tool]:
    """The tools by their names."""

    async def convert_links(crew: str, arguments: dict[str, JsonValue]) -> JsonValue:
        """{"links": […], "subIds"?: […]} → {"mapping": {link: entry}}, as `/api/convert` has them.

        Raises `Invalid` for wrong arguments and when no cookie is stored, and what the desk raises.
        """
        wanted = _arguments(arguments)
        latest = trio.current_time() + TOOL_PATIENCE
        while True:
            is_last = trio.current_time() >= latest
            try:
                return await convert(crew, wanted, whole_or_again=not is_last)
            except PASSING as passing:
                if is_last:
                    raise
                wait = passing.retry_after if isinstance(passing, NotNow) else RETRY
            await trio.sleep(max(0.0, min(wait, latest - trio.current_time())))

    async def convert(crew: str, wanted: _Arguments, *, whole_or_again: bool) -> JsonValue:
        with patience():
            record = await vault.current()
        if record is None and desk.needs_cookie:
            desk.cookie_is_missing()
            raise Invalid(
                "no affiliate cookie is stored, so no link can be made; sync one with the browser "
                "extension or POST /api/sync-cookie, then start the crew again"
            )
        order = wanted.order(
            record.cookie if record else None,
            client=f"crew:{crew}",
            whole_or_again=whole_or_again,
        )
        return {"mapping": _MAPPING.dump_python(mapping(await desk.convert(order)), mode="json")}

    return {CONVERT_LINKS: convert_links}


def _arguments(given: dict[str, JsonValue]) -> _Arguments:
    try:
        return _Arguments.model_validate(given)
    except ValidationError as error:
        text = f"{CONVERT_LINKS}: {describe_errors(error, whole='its arguments')}"
    raise Invalid(text)  # out here it has no context, which would hold the values
