"""A conversion of which upstream takes its time."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import trio
from trio.testing import MockClock

from smartlinkd.deadlines import ACTOR_TIMEOUT_S
from tests.api.client import answer_in_time

if TYPE_CHECKING:
    from tests.api.conftest import Start


async def test_upstream_that_is_too_slow_is_502_after_the_job_timeout(
    start: Start, mock_clock: MockClock
) -> None:
    """The time is `browser.job_timeout`, which is longer than that of other answers."""
    timeout_s = int(ACTOR_TIMEOUT_S) + 4
    with trio.socket.socket() as silent:  # takes calls, and answers none
        await silent.bind(("127.0.0.1", 0))
        silent.listen()
        url = f"http://127.0.0.1:{silent.getsockname()[1]}/graphql"
        daemon = await start(open_api={"url": url}, browser={"job_timeout": timeout_s})
        token = await daemon.login()
        began = trio.current_time()
        converted = partial(daemon.convert, token, "https://shopee.vn/product/1/2")
        answer = await answer_in_time(mock_clock, converted)
    assert trio.current_time() - began >= timeout_s
    assert answer.status_code == 502
    assert "did not answer in time" in answer.json()["error"]
