"""A command, a worker and a Chromium in real processes, cancelled at every step.

No process, descriptor or file is left after the block. The number of steps varies with the kernel,
so a scenario ends at the first run that is over before its strike.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Awaitable, Callable, Iterator
from contextlib import nullcontext
from pathlib import Path

import pytest
import trio

from smartlinkd.browser.chromium import LaunchSettings
from smartlinkd.browser.instance import BrowserInstance
from smartlinkd.browser.page import Page
from smartlinkd.browser.tab_pool import TabSpec
from smartlinkd.crews.protocol import Inputs
from smartlinkd.crews.worker import Stopped, WorkerSettings, start_worker
from smartlinkd.processes.process_tree import run_process_tree
from tests.browser.jobs import instance_settings, never_invalid, nothing
from tests.every_step.driver import AtEveryStep
from tests.every_step.strike import Strike
from tests.hygiene.at_once import check_unchanged, open_resources

# Prints the process ids of its children: one in its group, one in a new session.
FAMILY = "sleep 1000 & echo $!; setsid sh -c 'echo $$; exec sleep 1000' & wait"
WORKER = """
printf '{"type":"started"}\\n' >&3
read -r inputs <&3
read -r stop <&3
"""

StrikeReal = Callable[..., int]


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder that any user may enter. Each scenario must leave it empty."""
    with tempfile.TemporaryDirectory(prefix="every-step-") as name:
        Path(name).chmod(0o755)
        yield Path(name)


@pytest.fixture
def strike_real(at_every_step: AtEveryStep, folder: Path) -> StrikeReal:
    """Cancel a body at every step and check that nothing is left of it."""

    def strike(body: Callable[[], Awaitable[None]], *, stride: int = 1) -> int:
        async def scenario(strike: Strike, _: None) -> None:
            before = open_resources()
            with trio.CancelScope() as scope:
                strike.arm(scope.cancel)
                await body()
            strike.disarm()
            check_unchanged(before)
            assert os.listdir(folder) == []  # noqa: PTH208

        return at_every_step.within(nullcontext, scenario, stride=stride)

    return strike


def test_command_with_children(strike_real: StrikeReal, folder: Path) -> None:
    family: list[int] = []

    async def body() -> None:
        its = folder / "its"
        its.mkdir()
        async with run_process_tree(
            ["/bin/sh", "-c", FAMILY], environment={}, working_folder=its, remove=its
        ) as command:
            family.append(command.pid)
            while len(numbers := command.stdout_tail.split()) < 2:  # noqa: ASYNC110 - pipes
                await trio.sleep(0.001)
            family.extend(map(int, numbers))

    assert strike_real(body) > 10
    assert not [pid for pid in family if Path(f"/proc/{pid}").exists()]


def test_worker_that_is_stopped(strike_real: StrikeReal, folder: Path) -> None:
    settings = WorkerSettings(("/bin/sh", "-c", WORKER), {}, memory=256 << 20, grace=2.0)

    async def body() -> None:
        async with start_worker(settings, "some-id", Inputs(inputs={}), runs=folder) as worker:
            await anext(worker.channel)
            assert await worker.stop() is Stopped.WITHOUT_SIGNAL

    assert strike_real(body) > 15


@pytest.mark.chromium
def test_chromium_that_is_used(strike_real: StrikeReal, folder: Path) -> None:
    settings = instance_settings(LaunchSettings(profiles=folder))
    spec = TabSpec("key", tuple, "tab", nothing, never_invalid)

    async def look(page: Page) -> object:
        return await page.evaluate("() => 7")

    async def body() -> None:
        instance = BrowserInstance(settings)
        async with trio.open_nursery() as nursery:
            await nursery.start(instance.run)
            assert await instance.use(spec, look) == 7
            instance.drain()

    assert strike_real(body, stride=23) > 50
