"""The owner's view of the crews: their list, and their tokens.

All else is asked of a crew itself, at its base address, by the page as by any other client.
"""

from __future__ import annotations

from collections.abc import Mapping

from smartlinkd.api.auth_guards import Client, Guards, Visitor
from smartlinkd.api.operations import Api
from smartlinkd.api.schemas import (
    CrewEntry,
    CrewsResponse,
    CrewTokenRequest,
    InputEntry,
    TokenResponse,
)
from smartlinkd.api.services import CrewServices
from smartlinkd.crews.model import BrokenCrew, Crew, ListedCrew


def add(api: Api, guards: Guards, services: CrewServices) -> None:
    """Add these operations to `api`."""
    tokens, executor = services.tokens, services.executor

    @api.operation("GET", "/api/crews", access=guards.scoped("crews"), ok=CrewsResponse)
    async def crews(_: Client) -> CrewsResponse:
        """All crews of the configuration, with how many executions run and wait.

        First those that can run, then the broken ones, each in the configuration's order.
        """
        own = services.own_addresses
        return CrewsResponse(crews=[_entry(listed, own) for listed in executor.listed()])

    # Both are POST, so that no address, and with it no log or history, says whose token was seen.

    @api.operation(
        "POST",
        "/api/crews/token",
        access=guards.session,
        body=CrewTokenRequest,
        ok=TokenResponse,
        errors=(404,),
    )
    async def crew_token(_: Visitor, body: CrewTokenRequest) -> TokenResponse:
        """Show the organization's token of a crew, or a user's."""
        token = await tokens.show(body.crew, body.user or "")
        return TokenResponse(token=token.get_secret_value())

    @api.operation(
        "POST",
        "/api/crews/token/rotate",
        access=guards.session,
        body=CrewTokenRequest,
        ok=TokenResponse,
        errors=(404,),
    )
    async def rotate_crew_token(_: Visitor, body: CrewTokenRequest) -> TokenResponse:
        """Replace a token. The one so far is refused from then on; all others stay as they are."""
        token = await tokens.rotate(body.crew, body.user or "")
        return TokenResponse(token=token.get_secret_value())


def _entry(listed: ListedCrew, own_addresses: Mapping[str, str]) -> CrewEntry:
    crew = listed.crew
    inputs = crew.inputs if isinstance(crew, Crew) else ()
    problems = crew.problems if isinstance(crew, BrokenCrew) else ()
    own = own_addresses.get(crew.name or "")
    return CrewEntry(
        name=crew.name,
        default=listed.default,
        base_urls=[*listed.paths, *([own] if own is not None else [])],
        inputs=[InputEntry.model_validate(each, from_attributes=True) for each in inputs],
        users=list(crew.users),
        problems=[str(problem) for problem in problems],
        running=listed.load.running,
        waiting=listed.load.waiting,
    )
