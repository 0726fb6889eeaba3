"""The browser is killed during a conversion.

The client gets an answer before its deadline, health reports no browser until there is one again,
the next conversion works, and the old browser leaves nothing. The tests check what happened and in
which order.
"""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING

import httpx
import pytest
import trio

from tests.e2e.conftest import until_met

if TYPE_CHECKING:
    from tests.e2e.conftest import Portal, Running

pytestmark = pytest.mark.chromium

JOB_TIMEOUT = 8.0
CLOSE = 5.0
"""Seconds that an answer may come after its deadline on a busy machine."""


async def test_killed_browser_is_replaced_and_leaves_nothing(
    running: Running, portal: Portal
) -> None:
    account, lost, item = portal.account(), portal.item(), portal.item()
    answers: list[httpx.Response] = []
    events: list[str] = []
    with running(browser={"job_timeout": JOB_TIMEOUT}, products={"source": "none"}) as daemon:
        daemon.wait_for_browser()
        at_rest = daemon.descriptors()

        async def convert() -> None:
            with trio.fail_after(JOB_TIMEOUT + CLOSE):
                answers.append(await daemon.convert(portal.link(lost), account=account))
            events.append("answered")

        async def watch() -> None:
            await daemon.until_not_ready()
            events.append("not ready")
            await daemon.until_ready()
            events.append("ready")

        pid = int((await daemon.status())["browser"]["pid"])
        await portal.arm("submit_slow", account)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(convert)
            await portal.submitting(account)
            before = daemon.processes()
            nursery.start_soon(watch)
            os.kill(pid, signal.SIGKILL)
        assert answers[0].status_code == 502, answers[0].text
        assert "try again" in answers[0].json()["error"]
        # The client does not wait for the next browser.
        assert events in (["answered", "not ready", "ready"], ["not ready", "answered", "ready"])
        answer = await daemon.convert(portal.link(item), account=account)
        entry = portal.entry(item, account, product=False)
        assert answer.json().get("mapping") == {portal.link(item): entry}
        await until_met(lambda: not before & daemon.processes(), within=CLOSE)
        await until_met(lambda: daemon.descriptors() == at_rest, within=CLOSE)
        assert len(daemon.profiles()) == 1
        browser = (await daemon.status())["browser"]
        assert "signal 9" in browser["lastRestartReason"]
