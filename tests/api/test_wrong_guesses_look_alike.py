"""Nobody learns from the answer to a wrong guess how wrong it was: status, headers, body and time.

Kinds of guesses take turns, so that whatever else the machine does meets all of them, and what is
compared is the middle of the differences within a turn. Nothing is measured a second time.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Awaitable, Callable
from statistics import median
from typing import TYPE_CHECKING

import httpx
import pytest

if TYPE_CHECKING:
    from trio.testing import MockClock

    from tests.api.conftest import Daemon, Phone, Start

logger = logging.getLogger(__name__)

TRIES = 200
MAY_DIFFER = 0.005  # seconds, in the middle
PASSWORD = "correct horse battery staple"
PROXY = {"server": {"trusted_proxies": ["127.0.0.1"]}}
WRONG_CODES_AN_HOUR = 20

Prepare = Callable[[int], Awaitable[None]]
Guess = Callable[[str, int], Awaitable[httpx.Response]]


async def nothing(turn: int) -> None:
    """No turn needs anything."""


async def compare(guess: Guess, kinds: list[str], prepare: Prepare = nothing) -> dict[str, float]:
    """Guess in turns. By how many seconds each kind takes longer than the first."""
    seen = set()
    longer: dict[str, list[float]] = {kind: [] for kind in kinds[1:]}
    for turn in range(TRIES // len(kinds)):
        await prepare(turn)
        took = {}
        # Another one is the first each time: what the turn before leaves behind is nobody's fault.
        for kind in kinds[turn % len(kinds) :] + kinds[: turn % len(kinds)]:
            began = time.perf_counter()
            answer = await guess(kind, turn)
            took[kind] = time.perf_counter() - began
            headers = {name: text for name, text in answer.headers.items() if name != "date"}
            seen.add((answer.status_code, answer.text, str(headers)))
        for kind, each in longer.items():
            each.append(took[kind] - took[kinds[0]])
    assert len(seen) == 1
    assert next(iter(seen))[0] == 401
    logger.info("longer than %s, in seconds: %s", kinds[0], {k: median(v) for k, v in longer.items()})
    return {kind: median(each) for kind, each in longer.items()}


def address(number: int) -> str:
    """One of its own for each guess, so that none has to wait."""
    return f"100.64.{number // 250}.{number % 250}"


async def test_all_wrong_passwords_get_the_same_answer_in_the_same_time(start: Start) -> None:
    daemon = await start(**PROXY)
    guesses = {
        "short": lambda turn: f"{turn}",
        "almost right": lambda turn: f"{PASSWORD}{turn}",
        "long": lambda turn: f"{turn:04}" * 256,
        "of another alphabet": lambda turn: f"{turn} лошадь",
    }

    async def guess(kind: str, turn: int) -> httpx.Response:
        origin = address(turn * len(guesses) + list(guesses).index(kind))
        body = {"password": guesses[kind](turn)}
        return await daemon.post("/api/auth/login", body, X_Forwarded_For=origin)

    longer = await compare(guess, list(guesses))
    assert {kind: each for kind, each in longer.items() if abs(each) >= MAY_DIFFER} == {}


async def test_all_wrong_codes_get_the_same_answer_in_the_same_time(
    mock_clock: MockClock, start: Start, phone: Phone
) -> None:
    daemon = await start(**PROXY)
    secret = await phone.enable(daemon, await daemon.login())
    used = phone.shows(secret)
    first = {"tempToken": await daemon.begin_login(), "code": used}
    assert (await daemon.post("/api/auth/verify-mfa", first)).status_code == 200
    codes = {"wrong": phone.wrong(secret), "used": used, "stale": phone.shows(secret, ahead=-90)}
    temporary = ""

    async def prepare(turn: int) -> None:
        nonlocal temporary
        if turn % (WRONG_CODES_AN_HOUR // len(codes)) == 0:
            mock_clock.jump(3600)  # only so many wrong codes are looked at in an hour
        temporary = await daemon.begin_login()

    async def guess(kind: str, turn: int) -> httpx.Response:
        body = {"tempToken": temporary, "code": codes[kind]}
        return await daemon.post("/api/auth/verify-mfa", body, X_Forwarded_For=address(turn))

    longer = await compare(guess, list(codes), prepare)
    assert {kind: each for kind, each in longer.items() if abs(each) >= MAY_DIFFER} == {}
