"""A few cells of the fault matrix (`tests/faults`) on the whole daemon and a real Chromium.

The matrix itself is played on a Chromium that is played. These are the cells whose fault is of the
kernel's making, so that it is seen to do to a real browser what the fake says that it does. Others
are in `test_browser_dies.py`, `test_not_ready.py`, `test_shutdown.py` and `test_faults.py`.
"""

from __future__ import annotations

import os
import signal
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import httpx
import pytest
import trio

from smartlinkd.browser.chromium import find_executable
from tests.e2e.conftest import until_met

if TYPE_CHECKING:
    from tests.e2e.conftest import Account, Daemon, Portal, Running

pytestmark = pytest.mark.chromium

JOB_TIMEOUT = 20.0
CLOSE = 5.0
"""Seconds that an answer may come after what is its reason, on a busy machine."""
VERDICT = 6.0
A_MOMENT = 0.5
"""Seconds in which Chromium has told that a tab crashed, or the daemon closed the connection of
who has gone; it takes twenty milliseconds."""


@pytest.fixture
def struck(running: Running) -> Iterator[Daemon]:
    """A daemon of the test's own: the second browser in a minute is waited for longer."""
    with running(browser={"job_timeout": JOB_TIMEOUT}) as daemon:
        daemon.wait_for_browser()
        yield daemon


class Scene:
    """A daemon and an account at work, and what is due whatever strikes."""

    def __init__(self, daemon: Daemon, portal: Portal, nursery: trio.Nursery) -> None:
        self.daemon = daemon
        self.portal = portal
        self.account: Account = portal.account()
        self.answer: httpx.Response | None = None
        self._nursery = nursery
        self._answered = trio.Event()

    async def begin(self) -> None:
        """Everything is well, and is looked at: that is what it has to be like again."""
        await self.daemon.until_ready()
        others = self.daemon.renderers()
        await self.works()
        self.renderers = self.daemon.renderers() - others
        self.at_rest = await self.held()
        self.restarts = int((await self.daemon.status())["browser"]["restarts"])
        self.pid = int((await self.daemon.status())["browser"]["pid"])
        self.log_read = len(self.daemon.program.log.read_text())

    async def held(self) -> list[str]:
        """The descriptors that it has throughout a moment: the last request's is still closing."""
        held = Counter(self.daemon.descriptors())
        for _ in range(10):
            await trio.sleep(A_MOMENT / 10)  # nothing tells the outside that it has closed
            held &= Counter(self.daemon.descriptors())
        return sorted(held.elements())

    def ask(self) -> None:
        """Convert something, beside the test."""
        self._nursery.start_soon(self._convert)

    async def answered(self, *statuses: int, within: float) -> httpx.Response:
        with trio.fail_after(within):
            await self._answered.wait()
        assert self.answer is not None
        assert self.answer.status_code in statuses, self.answer.text
        return self.answer

    async def works(self) -> None:
        item = self.portal.item()
        link = self.portal.link(item)
        answer = await self.daemon.convert(link, account=self.account)
        entry = self.portal.entry(item, self.account)
        assert (answer.status_code, answer.json().get("mapping")) == (200, {link: entry})

    async def check(self, *restarts: str, log: str = "", gone: bool = True) -> None:
        """It is ready again, the next request works, and nothing is left of what was."""
        await self.until_restarted(len(restarts))
        await self.works()
        browser = (await self.daemon.status())["browser"]
        assert browser["restarts"] == self.restarts + len(restarts)
        if restarts:
            assert browser["lastRestartReason"].startswith(restarts[-1])
        told = self.daemon.program.log.read_text()[self.log_read :]
        assert told.count(log) == 1 or not log, told
        await until_met(lambda: len(self.daemon.profiles()) == 1, within=CLOSE)
        await until_met(lambda: self.daemon.descriptors() == self.at_rest, within=CLOSE)
        if gone:
            await until_met(lambda: self.pid not in self.daemon.processes(), within=CLOSE)

    async def until_restarted(self, times: int) -> None:
        async def restarted() -> bool:
            status = (await self.daemon.status())["browser"]
            return bool(status["restarts"] >= self.restarts + times) and await self.daemon.ready()

        await self.daemon.until(f"{times} restarts, and ready", restarted)

    async def counted(self, what: str, before: int) -> None:
        """Wait until the portal has been asked."""

        async def more() -> bool:
            return await self.portal.counted(what) > before

        await self.daemon.until(what, more)

    def browsers(self) -> set[int]:
        """The main processes of its browsers."""
        found = set()
        for pid in self.daemon.processes():
            try:
                command = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
            except OSError:  # it has ended since it was listed
                continue
            if b"--headless" in command and not any(one.startswith(b"--type=") for one in command):
                found.add(pid)
        return found

    async def _convert(self) -> None:
        link = self.portal.link(self.portal.item())
        self.answer = await self.daemon.convert(link, account=self.account)
        self._answered.set()


@pytest.fixture
async def scene(struck: Daemon, portal: Portal, nursery: trio.Nursery) -> Scene:
    made = Scene(struck, portal, nursery)
    await made.begin()
    return made


KILLED = "the browser is restarted: crashed: Chromium ended: signal 9"


async def test_sigkill_loading(scene: Scene) -> None:
    scene.account.renew()  # another session, which has no page yet
    before = await scene.portal.counted("page custom_link")
    await scene.portal.arm("page_slow", scene.account)
    scene.ask()
    await scene.counted("page custom_link", before)
    os.kill(scene.pid, signal.SIGKILL)
    await scene.answered(502, within=CLOSE)
    await scene.check("crashed", log=KILLED)


async def test_sigkill_reading(scene: Scene) -> None:
    before = await scene.portal.counted("product read")
    await scene.portal.arm("product_slow", scene.account)
    scene.ask()
    await scene.counted("product read", before)
    os.kill(scene.pid, signal.SIGKILL)
    answer = await scene.answered(200, within=CLOSE)
    (entry,) = answer.json()["mapping"].values()
    assert entry["shortLink"]
    assert entry["product"] is None
    await scene.check("crashed", log=KILLED)


async def test_sigkill_restarting(
    running: Running, portal: Portal, open_folder: Path, nursery: trio.Nursery
) -> None:
    executable, stop = open_folder / "stopping", open_folder / "stop"
    executable.write_text(STOPPING.format(stop=stop, chromium=find_executable(None)))
    executable.chmod(0o755)
    with running(browser={"executable": str(executable)}) as daemon:
        daemon.wait_for_browser()
        scene = Scene(daemon, portal, nursery)
        await scene.begin()
        stop.touch()
        os.kill(scene.pid, signal.SIGKILL)
        await until_met(lambda: any(map(is_stopped, scene.browsers())), within=CLOSE)
        stop.unlink()
        (second,) = scene.browsers() - {scene.pid}
        os.kill(second, signal.SIGKILL)
        scene.ask()
        await scene.answered(503, within=CLOSE)
        await scene.check("crashed", "launch failed", log=KILLED)


STOPPING = """\
#!/bin/sh
# As long as that file is there, whoever starts gets no further than this.
test -e {stop} && kill -STOP $$
exec {chromium} "$@"
"""


def is_stopped(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"
    except OSError:  # it has ended since it was listed
        return False


async def test_sigstop_idle(scene: Scene) -> None:
    os.kill(scene.pid, signal.SIGSTOP)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(scene.daemon.until_not_ready)
        scene.ask()
        await scene.answered(502, 503, within=VERDICT + CLOSE)
    await scene.check("unresponsive", log="the browser is restarted: unresponsive")


async def test_renderer_killed_idle(scene: Scene) -> None:
    for renderer in scene.renderers:
        os.kill(renderer, signal.SIGKILL)
    await trio.sleep(A_MOMENT)  # nothing tells the outside that Chromium has noticed it
    scene.ask()
    await scene.answered(200, within=CLOSE)
    await scene.check(gone=False)


async def test_client_gone_submitting(scene: Scene) -> None:
    before = len(await scene.portal.submits(scene.account))
    await scene.portal.arm("submit_slow", scene.account)
    async with trio.open_nursery() as nursery:
        link = scene.portal.link(scene.portal.item())
        nursery.start_soon(leave, scene, link)
        await scene.portal.submitting(scene.account, nth=before + 1)
        nursery.cancel_scope.cancel()
    await scene.check(gone=False)


async def leave(scene: Scene, link: str) -> None:
    await scene.daemon.convert(link, account=scene.account)


async def test_executable_gone_restarting(
    running: Running, portal: Portal, open_folder: Path, nursery: trio.Nursery
) -> None:
    executable = open_folder / "browser"
    executable.symlink_to(find_executable(None))
    with running(browser={"executable": str(executable)}) as daemon:
        scene = Scene(daemon, portal, nursery)
        await scene.begin()
        executable.unlink()
        os.kill(scene.pid, signal.SIGKILL)
        await daemon.until_not_ready()
        scene.ask()
        await scene.answered(503, within=CLOSE)
        gone = "launch failed: browser.executable: there is no file"
        daemon.program.wait_for(gone, daemon.program.log)
        executable.symlink_to(find_executable(None))
        await scene.until_restarted(2)
        await scene.works()
    executable.unlink()  # who wrote to it would write to Chromium's
