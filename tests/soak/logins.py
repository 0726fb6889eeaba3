"""The logins of a soak."""

from __future__ import annotations

from typing import Final

import httpx

from tests.programs import PASSWORD
from tests.soak.jobs import Kind, Login
from tests.soak.world import UnexpectedAnswer, World, describe, expect_ok

LOGIN: Final = "/api/auth/login"


async def log_in(world: World, http: httpx.AsyncClient, job: Login) -> None:
    """Send wrong passwords, then the right one, and use the session.

    Raises:
        UnexpectedAnswer: An answer was wrong.
    """
    headers = {"X-Forwarded-For": job.address}
    async with world.login_lock:
        for attempt in range(job.wrong):
            body = {"password": f"wrong {attempt}"}
            refused = await world.ask(http, "POST", LOGIN, body, token="", headers=headers)
            if refused.status_code != 401:
                raise UnexpectedAnswer(describe(refused))
        body = {"password": PASSWORD}
        found = expect_ok(await world.ask(http, "POST", LOGIN, body, token="", headers=headers))
    expect_ok(await world.ask(http, "GET", "/api/status", token=found["token"]))
    world.results.jobs_done[Kind.LOGIN] += 1
