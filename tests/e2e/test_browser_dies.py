"""The browser is killed, or a tab of it hangs, while a conversion is under way.

Whoever asked is told within the request's deadline, health says that there is no browser until
there is one again, the next conversion works, and nothing of the old browser is left. What is
checked is what happened and in which order; how long it took is bounded by deadlines only.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from typing import TYPE_CHECKING

import httpx
import pytest
import trio

from tests.e2e.conftest import until_met

if TYPE_CHECKING:
    from tests.e2e.conftest import Account, Daemon, Portal, Running

pytestmark = pytest.mark.chromium

JOB_TIMEOUT = 8.0
CLOSE = 5.0
"""Seconds that an answer may come after the deadline that is its reason, on a busy machine."""


@pytest.fixture(scope="module")
def fragile(running: Running) -> Iterator[tuple[Daemon, list[str]]]:
    """A daemon whose browser may be killed, and the descriptors that it has when at rest."""
    with running(browser={"job_timeout": JOB_TIMEOUT}, products={"source": "none"}) as daemon:
        daemon.wait_for_browser()
        yield daemon, daemon.descriptors()


class Scene:
    """A daemon with a conversion under way, and what happens from then on, in its order."""

    def __init__(
        self, daemon: Daemon, at_rest: list[str], portal: Portal, nursery: trio.Nursery
    ) -> None:
        self.daemon = daemon
        self.at_rest = at_rest
        self.portal = portal
        self.account: Account = portal.account()
        self.events: list[str] = []
        self._nursery = nursery
        self._answer: httpx.Response | None = None
        self._answered = trio.Event()

    async def begin(self, fault: str) -> None:
        """Start the conversion; its submit meets `fault`."""
        await self.daemon.login()
        self.pid = int((await self.daemon.status())["browser"]["pid"])
        self.others = self.daemon.renderers()
        await self.portal.arm(fault, self.account)
        self._nursery.start_soon(self._convert)

    async def under_way(self) -> None:
        """Wait until the portal has the submit, which it never answers."""
        await self.portal.submitting(self.account)
        self.processes = self.daemon.processes()
        self.renderers = self.daemon.renderers() - self.others
        assert self.renderers

    async def answer(self) -> httpx.Response:
        """What the client is told, in time."""
        with trio.fail_after(JOB_TIMEOUT + CLOSE):
            await self._answered.wait()
        assert self._answer is not None
        assert self._answer.status_code == 502, self._answer.text
        assert "try again" in self._answer.json()["error"]
        return self._answer

    async def watch(self) -> None:
        """Note when the browser is seen to be gone, and to be there again."""
        await self.daemon.until_not_ready()
        self.events.append("not ready")
        await self.daemon.until_ready()
        self.events.append("ready")

    async def check_recovered(self, *, gone: set[int]) -> None:
        """The same account's next conversion works, and all that was there before is as it was."""
        item = self.portal.item()
        link = self.portal.link(item)
        answer = await self.daemon.convert(link, account=self.account)
        entry = self.portal.entry(item, self.account, product=False)
        assert (answer.status_code, answer.json().get("mapping")) == (200, {link: entry})
        await until_met(lambda: not gone & self.daemon.processes(), within=CLOSE)
        await until_met(lambda: self.daemon.descriptors() == self.at_rest, within=CLOSE)
        assert len(self.daemon.profiles()) == 1

    async def _convert(self) -> None:
        link = self.portal.link(self.portal.item())
        self._answer = await self.daemon.convert(link, account=self.account)
        self.events.append("answered")
        self._answered.set()


@pytest.fixture
async def scene(fragile: tuple[Daemon, list[str]], portal: Portal, nursery: trio.Nursery) -> Scene:
    return Scene(*fragile, portal, nursery)


async def test_a_killed_browser(scene: Scene) -> None:
    await scene.begin("submit_slow")
    await scene.under_way()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(scene.watch)
        os.kill(scene.pid, signal.SIGKILL)
        await scene.answer()
    # Whoever asked is not kept waiting for the next browser.
    assert scene.events in (
        ["answered", "not ready", "ready"],
        ["not ready", "answered", "ready"],
    )
    await scene.check_recovered(gone=scene.processes)
    browser = (await scene.daemon.status())["browser"]
    assert "signal 9" in browser["lastRestartReason"]


async def test_a_hung_tab(scene: Scene) -> None:
    before = (await scene.daemon.status())["browser"]
    await scene.begin("page_hang_on_submit")
    await until_met(lambda: scene.daemon.renderers() > scene.others, within=CLOSE)
    hung = scene.daemon.renderers() - scene.others
    await scene.answer()
    await scene.check_recovered(gone=hung)
    after = (await scene.daemon.status())["browser"]
    assert (after["pid"], after["restarts"]) == (before["pid"], before["restarts"])
