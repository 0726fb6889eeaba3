"""Those who hold tokens of some crews, for the tests of tokens and of their rotation."""

from __future__ import annotations

from smartlinkd.crews.model import CrewUser
from smartlinkd.crews.tokens import CrewTokens
from smartlinkd.errors import WrongCredential

USERS: dict[str, tuple[str, ...]] = {"post": ("ann", "bob"), "mail": ("ann",), "quiet": ()}
EVERYBODY = [CrewUser(crew, user) for crew, users in USERS.items() for user in ("", *users)]


async def shown(tokens: CrewTokens, crew: str, user: str = "") -> str:
    return (await tokens.show(crew, user)).get_secret_value()


async def all_shown(tokens: CrewTokens) -> dict[CrewUser, str]:
    return {who: await shown(tokens, who.crew, who.user) for who in EVERYBODY}


async def is_valid(tokens: CrewTokens, crew: str, token: str) -> bool:
    try:
        await tokens.caller(crew, token)
    except WrongCredential:
        return False
    return True
