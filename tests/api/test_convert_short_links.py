"""Short links, over HTTP, against every way in which the sandbox's behave.

| promised (contract 1, "Short links") | test |
|---|---|
| resolved, whatever form the way on has | `test_it_leads_to_its_product[…]` |
| without the cookie | `test_no_cookie_goes_there` |
| not found, a loop, too many hops, a foreign hop: 10 | `test_it_leads_to_no_product[…]` |
| a timeout, 5xx, an unknown page, a login or check: -1 | `test_nothing_is_known_of_it[…]` |
| a login link is never opened | `test_a_login_link_is_never_opened` |
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import pytest
import trio
from httpx import Response
from trio.testing import MockClock, wait_all_tasks_blocked

from smartlinkd.conversion import api_sources
from smartlinkd.marketplace.shortlinks import resolve
from smartlinkd.sandbox.server import Sandbox

if TYPE_CHECKING:
    from tests.api.conftest import Daemon

GATHER_S = 0.5


@pytest.fixture
async def token(selling: Daemon) -> str:
    return await selling.login()


async def code_of(selling: Daemon, token: str, link: str) -> int:
    answer = await selling.convert(token, link)
    assert answer.status_code == 200
    return int(answer.json()["mapping"][link]["failCode"])


@pytest.mark.parametrize(
    "code",
    ["direct", "moved", "relative", "meta", "script", "refresh", "variable", "canonical", "ogurl",
     "chain2", "chain5", "p7i12345", "direct?uls_trackid=1&smtt=0.0.9"],
)  # fmt: skip
async def test_it_leads_to_its_product(
    selling: Daemon, token: str, sandbox: Sandbox, code: str
) -> None:
    assert await code_of(selling, token, f"{sandbox.short_url}/{code}") == 0


async def test_it_is_the_link_of_the_product(selling: Daemon, token: str, sandbox: Sandbox) -> None:
    links = [f"{sandbox.short_url}/direct", f"{sandbox.shop_url}/product/88201679/23456789012"]
    mapping = (await selling.convert(token, *links)).json()["mapping"]
    assert mapping[links[0]] == mapping[links[1]]


@pytest.mark.parametrize(
    "code",
    ["gone", "unheard-of", "loop", "chain6", "chain9", "foreign", "lookalike", "scheme", "nowhere",
     "home"],
)  # fmt: skip
async def test_it_leads_to_no_product(
    selling: Daemon, token: str, sandbox: Sandbox, code: str
) -> None:
    assert await code_of(selling, token, f"{sandbox.short_url}/{code}") == 10
    assert sandbox.state.counters["open api"] == 0


@pytest.mark.parametrize("code", ["broken", "slow", "big", "unknown", "signin", "check"])
async def test_nothing_is_known_of_it(
    selling: Daemon,
    token: str,
    sandbox: Sandbox,
    monkeypatch: pytest.MonkeyPatch,
    code: str,
) -> None:
    monkeypatch.setattr(api_sources, "resolve", partial(resolve, hop_deadline=0.1))
    assert await code_of(selling, token, f"{sandbox.short_url}/{code}") == -1
    assert sandbox.state.counters["open api"] == 0


async def test_a_login_link_is_never_opened(selling: Daemon, token: str, sandbox: Sandbox) -> None:
    for path in ("dlink7Qx", "DLINK7Qx", "dlink/7Qx", "%64link7Qx"):
        assert await code_of(selling, token, f"{sandbox.short_url}/{path}") == 10
    assert sandbox.state.counters["short link"] == 0


async def test_no_cookie_goes_there(selling: Daemon, token: str, sandbox: Sandbox) -> None:
    await selling.post("/api/sync-cookie", {"cookie": "SPC_U=4711; SPC_EC=.ec-of-4711"})
    await code_of(selling, token, f"{sandbox.short_url}/chain3")
    assert sandbox.state.counters["short link"] > 0
    assert sandbox.state.counters["short link with cookie"] == 0


async def test_one_that_is_slow_does_not_hold_up_the_others(
    mock_clock: MockClock, selling: Daemon, token: str, sandbox: Sandbox
) -> None:
    sandbox.state.hold = 2 * GATHER_S
    links = [f"{sandbox.short_url}/{code}" for code in ("slow", "direct", "broken")]
    answers: list[Response] = []

    async def convert() -> None:
        answers.append(await selling.convert(token, *links))

    async with trio.open_nursery() as client:
        client.start_soon(convert)
        await come_to(sandbox, "short link slow", "short link direct", "short link broken")
        mock_clock.jump(GATHER_S)
        await come_to(sandbox, "open api links")
        assert answers == []
        mock_clock.jump(GATHER_S)
    mapping = answers[0].json()["mapping"]
    # the slow one says in the end that there is nothing
    assert [mapping[link]["failCode"] for link in links] == [10, 0, -1]


async def come_to(sandbox: Sandbox, *counters: str) -> None:
    """Wait until each of these has happened."""
    while not all(sandbox.state.counters[name] for name in counters):
        await wait_all_tasks_blocked(0.001)
