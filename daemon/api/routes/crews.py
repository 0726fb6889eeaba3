"""What only the owner may ask about crews: which there are, and their tokens.

Everything else is asked of a crew itself, at its base address and with one of its tokens, by the
dashboard as by any other client.
"""

from __future__ import annotations

from daemon.api.guards import Guards
from daemon.api.openapi import Api
from daemon.api.schemas import (
    CrewEntry,
    CrewsResponse,
    CrewTokenRequest,
    CrewTokenResponse,
    InputEntry,
)
from daemon.api.services import CrewServices
from daemon.auth.actor import Session
from daemon.crews.crew import BrokenCrew, Crew, CrewLoad, Input


def add(api: Api, guards: Guards, services: CrewServices) -> None:
    """Add these operations to `api`."""
    catalog, tokens, executor = services.catalog, services.tokens, services.executor

    @api.operation("GET", "/api/crews", access=guards.session, ok=CrewsResponse)
    async def crews(_: Session) -> CrewsResponse:
        """All crews of the configuration, with what they have in hand.

        First those that can run, then the broken ones, each in the configuration's order.
        """
        load = executor.load()
        return CrewsResponse(
            crews=[
                *(
                    _runnable(crew, services, load.get(crew.name, CrewLoad()))
                    for crew in catalog.crews.values()
                ),
                *(_broken(crew, services) for crew in catalog.broken),
            ]
        )

    # Both are POST, so that no address, and with it no log or history, says whose token was seen.

    @api.operation(
        "POST",
        "/api/crews/token",
        access=guards.session,
        body=CrewTokenRequest,
        ok=CrewTokenResponse,
        errors=(404,),
    )
    async def crew_token(_: Session, body: CrewTokenRequest) -> CrewTokenResponse:
        """Show the organization's token of a crew, or a user's."""
        token = await tokens.show(body.crew, body.user or "")
        return CrewTokenResponse(token=token.get_secret_value())

    @api.operation(
        "POST",
        "/api/crews/token/rotate",
        access=guards.session,
        body=CrewTokenRequest,
        ok=CrewTokenResponse,
        errors=(404,),
    )
    async def rotate_crew_token(_: Session, body: CrewTokenRequest) -> CrewTokenResponse:
        """Replace a token. The one so far is refused from then on; all others stay as they are."""
        token = await tokens.rotate(body.crew, body.user or "")
        return CrewTokenResponse(token=token.get_secret_value())


def _base_urls(name: str, services: CrewServices) -> list[str]:
    """Where a crew answers: first the address that every crew has."""
    own = services.own_addresses
    return [*services.catalog.paths(name), *([own[name]] if name in own else [])]


def _runnable(crew: Crew, services: CrewServices, load: CrewLoad) -> CrewEntry:
    return CrewEntry(
        name=crew.name,
        default=crew.name == services.catalog.default,
        base_urls=_base_urls(crew.name, services),
        inputs=[_input(each) for each in crew.inputs],
        users=list(crew.users),
        problems=[],
        running=load.running,
        queued=load.waiting,
    )


def _broken(crew: BrokenCrew, services: CrewServices) -> CrewEntry:
    return CrewEntry(
        name=crew.name,
        default=crew.name is not None and crew.name == services.catalog.default,
        base_urls=[] if crew.name is None else _base_urls(crew.name, services),
        inputs=[],
        users=list(crew.users),
        problems=[str(problem) for problem in crew.problems],
        running=0,
        queued=0,
    )


def _input(each: Input) -> InputEntry:
    return InputEntry(
        name=each.name,
        required=each.required,
        default=each.default,
        description=each.description,
    )
