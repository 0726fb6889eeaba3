"""The life of one instance on a browser that is played: its start, its ends, and who says so."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest
import trio
from trio.testing import MockClock

from smartlinkd.browser.chromium import LaunchSettings
from smartlinkd.browser.errors import LaunchFailed
from smartlinkd.browser.instance import BrowserInstance, End, EndKind, InstanceSettings
from smartlinkd.errors import Refused
from smartlinkd.threads import NoThread
from tests.browser.jobs import LIMITS, Job, begin_job, instance_settings, tab_spec

if TYPE_CHECKING:
    from tests.browser.played import PlayedChromium, PlayedChromiums

A_MOMENT = 0.001
MISS = LIMITS.probe_interval_s + LIMITS.probe_timeout_s  # the longest that a hang can go unnoticed


class RunningInstance:
    """An instance that runs in the background."""

    def __init__(self, settings: InstanceSettings) -> None:
        self.instance = BrowserInstance(settings)
        self.over = trio.Event()

    async def run(self, task_status: trio.TaskStatus[None]) -> None:
        await self.instance.run(task_status)
        self.over.set()

    def ready(self) -> bool:
        return self.instance.is_ready

    def end(self) -> End | None:
        return self.instance.end


async def born(nursery: trio.Nursery, settings: InstanceSettings | None = None) -> RunningInstance:
    life = RunningInstance(settings or instance_settings())
    await nursery.start(life.run)
    return life


def hang(chromium: PlayedChromium) -> None:
    chromium.hung = True


def run_no_script(chromium: PlayedChromium) -> None:
    chromium.mute = True


@pytest.fixture(params=[hang, run_no_script])
def fall_silent(request: pytest.FixtureRequest) -> Callable[[PlayedChromium], None]:
    """A way in which a browser stays up and is of no use."""
    silence: Callable[[PlayedChromium], None] = request.param
    return silence


# Its start


async def test_browser_that_runs_no_script_does_not_start(
    chromiums: PlayedChromiums,
    nursery: trio.Nursery,
    fall_silent: Callable[[PlayedChromium], None],
    autojump_clock: MockClock,
) -> None:
    chromiums.prepare = fall_silent
    with pytest.raises(Refused, match="did not answer"), trio.fail_after(30):
        await nursery.start(BrowserInstance(instance_settings()).run)
    assert chromiums.running == []


async def test_browser_that_is_slow_in_each_call_does_not_start(
    chromiums: PlayedChromiums, nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    def slow_down(chromium: PlayedChromium) -> None:
        chromium.call_takes = 9.0  # each call is in time

    chromiums.prepare = slow_down
    with (
        trio.fail_after(chromiums.launch_takes + LIMITS.first_steps_s + A_MOMENT),
        pytest.raises(LaunchFailed, match=r"did not answer its first calls within 45 s"),
    ):
        await nursery.start(BrowserInstance(instance_settings()).run)
    assert chromiums.running == []


@pytest.mark.parametrize("no_sandbox", [False, True])
async def test_browser_without_sandbox_starts_only_where_that_is_configured(
    no_sandbox: bool, chromiums: PlayedChromiums, nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    chromiums.confined = False
    settings = instance_settings(LaunchSettings(no_sandbox=no_sandbox))
    if no_sandbox:
        await born(nursery, settings)
    else:
        with pytest.raises(LaunchFailed, match=r"user namespaces.*browser\.no_sandbox"):
            await born(nursery, settings)
    assert len(chromiums.running) == no_sandbox
    nursery.cancel_scope.cancel()


async def test_renderers_that_are_confined_late_are_waited_for(
    chromiums: PlayedChromiums, nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    chromiums.confined = False

    async def confine() -> None:
        await trio.sleep(chromiums.launch_takes + LIMITS.sandbox_timeout_s / 2)
        chromiums.confined = True

    nursery.start_soon(confine)
    await born(nursery)
    nursery.cancel_scope.cancel()


# Its ends


@pytest.mark.parametrize(
    ("closes", "exits_after", "end"),
    [
        (False, 0, End(EndKind.CRASHED, "Chromium ended: signal 9")),
        (True, LIMITS.exit_wait_s * 0.8, End(EndKind.CRASHED, "Chromium ended: signal 9")),
        (True, math.inf, End(EndKind.DISCONNECTED, "it was closed")),
    ],
    ids=["exit", "exit after its socket", "end of its socket"],
)
async def test_end_of_process_or_socket_has_its_kind(
    chromiums: PlayedChromiums,
    nursery: trio.Nursery,
    autojump_clock: MockClock,
    *,
    closes: bool,
    exits_after: float,
    end: End,
) -> None:
    life = await born(nursery)
    chromium = chromiums.launched[0]
    if closes:
        chromium.close()
    with trio.move_on_after(LIMITS.exit_wait_s + A_MOMENT):
        await trio.sleep(exits_after)
        chromium.exit()
    assert await life.instance.wait_ended() == end
    assert not life.ready()
    await life.over.wait()
    assert chromiums.running == []


async def test_one_failed_probe_makes_it_unready_and_two_unresponsive(
    chromiums: PlayedChromiums,
    nursery: trio.Nursery,
    fall_silent: Callable[[PlayedChromium], None],
    autojump_clock: MockClock,
) -> None:
    life = await born(nursery)
    fall_silent(chromiums.launched[0])
    await trio.sleep(MISS + A_MOMENT)
    assert not life.ready()
    assert life.end() is None
    await trio.sleep(MISS + A_MOMENT)
    assert life.end() == End(EndKind.UNRESPONSIVE, "no script ran for 2 beats")
    assert life.over.is_set()
    assert chromiums.running == []


async def test_probe_after_a_failed_one_makes_it_ready_again(
    chromiums: PlayedChromiums, nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    life = await born(nursery)
    for _ in range(3):
        chromiums.launched[0].mute = True
        await trio.sleep(MISS + A_MOMENT)
        assert not life.ready()
        chromiums.launched[0].mute = False
        await trio.sleep(LIMITS.probe_interval_s)
        assert life.ready()
    assert life.end() is None
    nursery.cancel_scope.cancel()


# Its recycling


async def aged(nursery: trio.Nursery) -> RunningInstance:
    life = await born(nursery, instance_settings(recycle_after_s=100))
    await trio.sleep(100 - A_MOMENT)
    assert life.end() is None
    return life


async def grown(nursery: trio.Nursery, chromium: Callable[[], PlayedChromium]) -> RunningInstance:
    life = await born(nursery)
    await trio.sleep(LIMITS.measure_interval_s + A_MOMENT)
    chromium().megabytes = 1024
    return life


async def recycled(nursery: trio.Nursery) -> RunningInstance:
    life = await aged(nursery)
    await life.instance.wait_ended()
    return life


async def test_age_or_memory_over_its_limit_recycles_the_browser(
    chromiums: PlayedChromiums, nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    old = await aged(nursery)
    with trio.fail_after(LIMITS.measure_interval_s):
        end = await old.instance.wait_ended()
    assert end.kind is EndKind.RECYCLED
    assert "browser.recycle_after" in end.detail
    large = await grown(nursery, lambda: chromiums.launched[1])
    assert large.end() is None
    with trio.fail_after(LIMITS.measure_interval_s):
        end = await large.instance.wait_ended()
    assert end == End(EndKind.RECYCLED, "1024 MiB in use (browser.recycle_memory)")
    nursery.cancel_scope.cancel()


@pytest.mark.parametrize("has_thread", [True, False])
async def test_memory_that_cannot_be_measured_ends_nothing(
    chromiums: PlayedChromiums,
    nursery: trio.Nursery,
    autojump_clock: MockClock,
    caplog: pytest.LogCaptureFixture,
    *,
    has_thread: bool,
) -> None:
    life = await grown(nursery, lambda: chromiums.launched[0])
    if has_thread:
        chromiums.launched[0].megabytes = 0  # without a descriptor nothing can be read
    else:
        chromiums.launched[0].unmeasured = NoThread("no thread is left", retry_after=1)
    await trio.sleep(2 * LIMITS.measure_interval_s)
    assert life.ready()
    assert "the browser's memory cannot be measured" in caplog.text
    chromiums.launched[0].unmeasured = None
    chromiums.launched[0].megabytes = 1024
    with trio.fail_after(LIMITS.measure_interval_s):
        assert (await life.instance.wait_ended()).kind is EndKind.RECYCLED
    nursery.cancel_scope.cancel()


@pytest.mark.parametrize("let_go", [False, True])
async def test_hang_of_a_recycled_browser_ends_it_at_once(
    let_go: bool, chromiums: PlayedChromiums, nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    life = await recycled(nursery)
    work = await begin_job(life.instance, tab_spec(), nursery, calls_at_end=True)
    if let_go:
        life.instance.drain()
    hang(chromiums.launched[0])
    work.end.set()
    with trio.fail_after(2 * MISS + A_MOMENT):
        await life.over.wait()
        await work.done.wait()
    assert life.end() == End(EndKind.UNRESPONSIVE, "no script ran for 2 beats")
    assert not life.ready()
    assert chromiums.running == []


# A browser that does not forget


async def test_browser_that_keeps_a_context_is_recycled(
    chromiums: PlayedChromiums, nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    life = await born(nursery)
    chromiums.launched[0].hoards = True
    with trio.move_on_after(1):
        await Job(life.instance, tab_spec()).run()
    with trio.fail_after(LIMITS.dispose_timeout_s + LIMITS.unresponsive_after_s + A_MOMENT):
        end = await life.instance.wait_ended()
    assert end == End(EndKind.RECYCLED, "it did not dispose of a context")
    nursery.cancel_scope.cancel()
