"""The answer to a wrong guess does not show how wrong it was: status, headers, body and time.

Kinds of guesses take turns, so that whatever else the machine does meets all of them, and what is
compared is the middle of the differences within a turn. Nothing is measured a second time. There
are two clocks. That of the process says how much work a guess is, and a busy machine does not
change it; daemon and client are one process here. The one on the wall says what a guesser sees:
there a difference counts as far as it is surely one, which on an idle machine is to a fraction of a
millisecond.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Awaitable, Callable
from statistics import median
from typing import TYPE_CHECKING, NamedTuple

import httpx

if TYPE_CHECKING:
    from trio.testing import MockClock

    from tests.api.conftest import Phone, Start

logger = logging.getLogger(__name__)

TRIES = 200
MAY_DIFFER = 0.005  # seconds, in the middle
PASSWORD = "correct horse battery staple"
PROXY = {"server": {"trusted_proxies": ["127.0.0.1"]}}
WRONG_CODES_AN_HOUR = 20
OF_EACH = ("date", "x-request-id")
"""Headers that are another in every answer, whatever it says."""


class Took(NamedTuple):
    """Seconds by two clocks."""

    wall: float
    work: float


Prepare = Callable[[int], Awaitable[None]]
Guess = Callable[[str, int], Awaitable[httpx.Response]]


async def nothing(turn: int) -> None:
    """No turn needs anything."""


async def compare(guess: Guess, kinds: list[str], prepare: Prepare = nothing) -> None:
    """Guess in turns, and fail where a kind can be told from the first."""
    seen = set()
    longer: dict[str, list[Took]] = {kind: [] for kind in kinds[1:]}
    for turn in range(TRIES // len(kinds)):
        await prepare(turn)
        took = {}
        # Another one is the first each time: what the turn before leaves behind is nobody's fault.
        for kind in kinds[turn % len(kinds) :] + kinds[: turn % len(kinds)]:
            began = Took(time.perf_counter(), time.process_time())
            answer = await guess(kind, turn)
            took[kind] = Took(time.perf_counter() - began.wall, time.process_time() - began.work)
            headers = {name: text for name, text in answer.headers.items() if name not in OF_EACH}
            seen.add((answer.status_code, answer.text, str(headers)))
        first = took[kinds[0]]
        for kind, each in longer.items():
            each.append(Took(took[kind].wall - first.wall, took[kind].work - first.work))
    assert len(seen) == 1
    assert next(iter(seen))[0] == 401
    for kind, differences in longer.items():
        wall, work = [each.wall for each in differences], [each.work for each in differences]
        logger.info("%s: %.6f s longer, %.6f s of work", kind, median(wall), median(work))
        assert abs(median(work)) < MAY_DIFFER, kind
        assert abs(median(wall)) - doubt(wall) < MAY_DIFFER, kind


def doubt(differences: list[float]) -> float:
    """By how much their middle may be off by chance: three standard errors of a median, from the
    middle of the distances to it.
    """
    middle = median(differences)
    spread = 1.4826 * median(abs(each - middle) for each in differences)
    return 3 * 1.2533 * spread / math.sqrt(len(differences))


def address(number: int) -> str:
    """Return an address of its own for each guess, so that none has to wait."""
    return f"100.64.{number // 250}.{number % 250}"


async def test_wrong_passwords_get_the_same_answer_in_the_same_time(start: Start) -> None:
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

    await compare(guess, list(guesses))


async def test_wrong_codes_get_the_same_answer_in_the_same_time(
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

    await compare(guess, list(codes), prepare)
