"""Doing the logins of a soak.

The second factor is switched on and off again by whoever logs in with it: a secret is good for a
code every half a minute, and a fresh one for three at once. While it is on, the password alone logs
in nobody, and switching it on ends all sessions but the one that did it. So logins go one by one,
and all else uses that one session.
"""

from __future__ import annotations

import time
from collections import deque
from typing import Final

import httpx
import pyotp
import trio

from smartlinkd.auth.throttle import WRONG_CODES, WRONG_CODES_WINDOW
from smartlinkd.auth.totp import STEP
from tests.programs import PASSWORD
from tests.soak.jobs import Kind, Login
from tests.soak.world import Json, World, Wrong, right, told

LEAST_LEFT: Final = 10.0
"""Seconds of a step that a round with the second factor may need, on a busy machine."""


async def log_in(world: World, http: httpx.AsyncClient, job: Login) -> None:
    """Raises `Wrong`."""
    async with world.logging_in:
        if job.second_factor:
            await _with_second_factor(world, http, job)
        else:
            for attempt in range(job.wrong):
                await _ask(world, http, job, "login", {"password": f"wrong {attempt}"}, status=401)
            found = await _ask(world, http, job, "login", {"password": PASSWORD})
            right(await world.ask(http, "GET", "/api/status", token=found["token"]))
    world.book.done[Kind.LOGIN] += 1


async def _with_second_factor(world: World, http: httpx.AsyncClient, job: Login) -> None:
    await trio.sleep(_until_a_fresh_step())
    setup = right(await world.ask(http, "GET", "/api/auth/2fa/setup"))
    codes, now = pyotp.TOTP(setup["secret"]), int(time.time())
    # The oldest that is good first: the step may end meanwhile.
    before, current, after = (codes.at(now, counter_offset=offset) for offset in (-1, 0, 1))
    enable = {"secret": setup["secret"], "code": before}
    await _ask(world, http, job, "2fa/enable", enable, token=world.token)
    temporary = (await _ask(world, http, job, "login", {"password": PASSWORD}))["tempToken"]
    verify = {"tempToken": temporary, "code": current}
    if job.wrong and _may_be_wrong(world.wrong_codes):
        used = {**verify, "code": before}
        await _ask(world, http, job, "verify-mfa", used, status=401)
    found = await _ask(world, http, job, "verify-mfa", verify)
    right(await world.ask(http, "GET", "/api/status", token=found["token"]))
    await _ask(world, http, job, "2fa/disable", {"code": after}, token=world.token)
    world.book.also["logins with a second factor"] += 1


async def _ask(
    world: World,
    http: httpx.AsyncClient,
    job: Login,
    what: str,
    body: Json,
    *,
    token: str = "",
    status: int = 200,
) -> Json:
    headers = {"X-Forwarded-For": job.address}
    path = f"/api/auth/{what}"
    answer = await world.ask(http, "POST", path, body, token=token, headers=headers)
    if answer.status_code != status:
        raise Wrong(f"{told(answer)}, and not {status}")
    found: Json = answer.json()
    return found


def _until_a_fresh_step() -> float:
    left = STEP - time.time() % STEP
    return left if left < LEAST_LEFT else 0.0


def _may_be_wrong(sent: deque[float]) -> bool:
    """Whether there may be one more wrong code: the daemon bounds those of all together."""
    now = time.monotonic()
    while sent and now - sent[0] >= WRONG_CODES_WINDOW:
        sent.popleft()
    if len(sent) >= WRONG_CODES // 2:
        return False
    sent.append(now)
    return True
