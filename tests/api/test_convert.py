"""Conversions with a slow upstream, and texts that take long to search."""

from __future__ import annotations

from collections.abc import AsyncIterator
from functools import partial
from typing import TYPE_CHECKING

import pytest
import trio
from trio.testing import MockClock

from smartlinkd.supervision.calls import ACTOR_TIMEOUT_S
from tests.api.client import answer_in_time

if TYPE_CHECKING:
    from tests.api.conftest import Daemon, Start
    from tests.shortage import Shortage

LINK = "https://shopee.vn/product/1/2"


@pytest.fixture
async def silent_api() -> AsyncIterator[str]:
    """The address of an Open API that accepts calls and never answers."""
    with trio.socket.socket() as listening:
        await listening.bind(("127.0.0.1", 0))
        listening.listen()
        yield f"http://127.0.0.1:{listening.getsockname()[1]}/graphql"


async def test_upstream_that_is_too_slow_is_502_after_the_job_timeout(
    start: Start, silent_api: str, mock_clock: MockClock
) -> None:
    """The deadline is `browser.job_timeout`, longer than that of other answers."""
    timeout_s = int(ACTOR_TIMEOUT_S) + 4
    daemon = await start(open_api={"url": silent_api}, browser={"job_timeout": timeout_s})
    token = await daemon.login()
    began = trio.current_time()
    answer = await answer_in_time(mock_clock, partial(daemon.convert, token, LINK))
    assert trio.current_time() - began >= timeout_s
    assert answer.status_code == 502
    assert "did not answer in time" in answer.json()["error"]


async def wait_for_status(daemon: Daemon, token: str, **wanted: int) -> None:
    """Wait until the status shows these numbers."""
    with trio.fail_after(5):
        while True:
            status = (await daemon.get("/api/status", token=token)).json()
            if wanted.items() <= status["conversion"].items():
                return


async def test_conversion_ends_when_its_client_leaves(start: Start, silent_api: str) -> None:
    daemon = await start(open_api={"url": silent_api})
    token = await daemon.login()
    async with trio.open_nursery() as clients:
        clients.start_soon(daemon.convert, token, LINK)
        await wait_for_status(daemon, token, requestsWaiting=1)
        clients.cancel_scope.cancel()
    await wait_for_status(daemon, token, requestsWaiting=0)


@pytest.mark.parametrize("path", ["/api/extract", "/api/convert-text"])
async def test_text_is_searched_on_a_thread(start: Start, no_thread: Shortage, path: str) -> None:
    """Other clients are served while a long text is searched."""
    daemon = await start()
    token = await daemon.login()
    with no_thread():
        answer = await daemon.post(path, {"text": "none"}, token=token)
    assert answer.status_code == 503
    assert "cannot start a thread" in answer.json()["error"]
