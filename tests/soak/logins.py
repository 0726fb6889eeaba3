"""Doing the logins of a soak."""

from __future__ import annotations

from typing import Final

import httpx

from tests.programs import PASSWORD
from tests.soak.jobs import Kind, Login
from tests.soak.world import World, Wrong, right, told

LOGIN: Final = "/api/auth/login"


async def log_in(world: World, http: httpx.AsyncClient, job: Login) -> None:
    """Wrong tries, then the right password, whose session is used. Raises `Wrong`."""
    headers = {"X-Forwarded-For": job.address}
    async with world.logging_in:
        for attempt in range(job.wrong):
            body = {"password": f"wrong {attempt}"}
            refused = await world.ask(http, "POST", LOGIN, body, token="", headers=headers)
            if refused.status_code != 401:
                raise Wrong(told(refused))
        body = {"password": PASSWORD}
        found = right(await world.ask(http, "POST", LOGIN, body, token="", headers=headers))
    right(await world.ask(http, "GET", "/api/status", token=found["token"]))
    world.book.done[Kind.LOGIN] += 1
