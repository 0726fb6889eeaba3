"""The life of one generation on a browser that is played: its start, its ends, and who says so."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from smartlinkd.browser import instance as module
from smartlinkd.browser.chromium import LaunchSettings
from smartlinkd.browser.errors import BrowserFailed, Disconnected, LaunchFailed
from smartlinkd.browser.instance import (
    BEAT_DEADLINE,
    BEAT_EVERY,
    EXIT_PATIENCE,
    FRESH,
    MEASURE_EVERY,
    SANDBOX_PATIENCE,
    VERDICT,
    End,
    EndKind,
    Generation,
    GenerationSettings,
)
from smartlinkd.browser.tab_pool import DISPOSE_PATIENCE, Place
from smartlinkd.errors import Refused
from smartlinkd.threads import NoThread
from tests.browser.errands import goes_anywhere

if TYPE_CHECKING:
    from tests.browser.played import PlayedChromium, PlayedChromiums

SETTINGS = GenerationSettings(
    launch=LaunchSettings(),
    contexts=2,
    idle=10_000,
    recycle_after=100_000,
    recycle_memory=1 << 30,
)
A_MOMENT = 0.001
MISS = BEAT_EVERY + BEAT_DEADLINE  # the longest that a hang can go unnoticed


async def nothing(_: object) -> None:
    pass


PLACE = Place("key", list, "tab", nothing, goes_anywhere)


class Life:
    """A generation that runs in the background, and what became of it."""

    def __init__(self, settings: GenerationSettings) -> None:
        self.generation = Generation(settings)
        self.over = trio.Event()

    async def run(self, task_status: trio.TaskStatus[None]) -> None:
        await self.generation.run(task_status)
        self.over.set()

    def ready(self) -> bool:
        return self.generation.ready

    def end(self) -> End | None:
        return self.generation.end


async def born(nursery: trio.Nursery, settings: GenerationSettings = SETTINGS) -> Life:
    life = Life(settings)
    await nursery.start(life.run)
    return life


class Work:
    """A piece of work that goes on until it is told to end."""

    def __init__(self) -> None:
        self.end = trio.Event()
        self.done = trio.Event()
        self.error: Exception | None = None

    async def run(self, generation: Generation) -> None:
        try:
            await generation.use(PLACE, self._work)
        except BrowserFailed as failure:
            self.error = failure
        self.done.set()

    async def _work(self, page: Any) -> None:
        await self.end.wait()
        await page.evaluate("")


async def working(generation: Generation, nursery: trio.Nursery) -> Work:
    work = Work()
    nursery.start_soon(work.run, generation)
    await wait_all_tasks_blocked()
    return work


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


async def test_it_starts_with_a_beat(
    chromiums: PlayedChromiums, nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    life = Life(SETTINGS)
    assert not life.ready()
    await nursery.start(life.run)
    assert life.ready()
    assert (life.generation.version, life.generation.pid) == ("Chromium 1", 1)
    assert life.end() is None
    nursery.cancel_scope.cancel()


async def test_one_that_runs_no_script_does_not_start(
    chromiums: PlayedChromiums,
    nursery: trio.Nursery,
    fall_silent: Callable[[PlayedChromium], None],
    autojump_clock: MockClock,
) -> None:
    chromiums.prepare = fall_silent
    with pytest.raises(Refused, match="did not answer"), trio.fail_after(30):
        await nursery.start(Generation(SETTINGS).run)
    assert chromiums.running == []


async def test_one_without_its_sandbox_does_not_start_and_says_what_to_do(
    chromiums: PlayedChromiums, nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    chromiums.confined = False
    with pytest.raises(LaunchFailed, match=r"user namespaces.*browser\.no_sandbox"):
        await nursery.start(Generation(SETTINGS).run)
    assert chromiums.running == []


async def test_renderers_may_take_a_moment_until_they_are_confined(
    chromiums: PlayedChromiums, nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    chromiums.confined = False

    async def confine() -> None:
        await trio.sleep(chromiums.launch_takes + SANDBOX_PATIENCE / 2)
        chromiums.confined = True

    nursery.start_soon(confine)
    await born(nursery)
    nursery.cancel_scope.cancel()


async def test_without_a_sandbox_it_starts_where_the_configuration_says_so(
    chromiums: PlayedChromiums, nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    chromiums.confined = False
    await born(nursery, replace(SETTINGS, launch=LaunchSettings(no_sandbox=True)))
    nursery.cancel_scope.cancel()


async def test_cancelled_it_leaves_no_browser(
    chromiums: PlayedChromiums, autojump_clock: MockClock
) -> None:
    async with trio.open_nursery() as nursery:
        await born(nursery)
        assert len(chromiums.running) == 1
        nursery.cancel_scope.cancel()
    assert chromiums.running == []


# Its ends


async def test_the_exit_of_its_process_is_a_crash(
    chromiums: PlayedChromiums, nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    life = await born(nursery)
    chromiums.launched[0].exit()
    with trio.fail_after(A_MOMENT):
        assert await life.generation.wait_ended() == End(
            EndKind.CRASHED, "Chromium ended: signal 9"
        )
        assert not life.ready()
        await life.over.wait()
    assert chromiums.running == []


async def test_a_process_that_ends_a_moment_after_its_socket_has_crashed(
    chromiums: PlayedChromiums, nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    life = await born(nursery)
    chromiums.launched[0].close()
    await trio.sleep(EXIT_PATIENCE * 0.8)
    chromiums.launched[0].exit()
    assert (await life.generation.wait_ended()).kind is EndKind.CRASHED


async def test_the_end_of_its_socket_alone_is_a_disconnection(
    chromiums: PlayedChromiums, nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    life = await born(nursery)
    chromiums.launched[0].close()
    await wait_all_tasks_blocked()
    assert not life.ready()
    with trio.fail_after(EXIT_PATIENCE + A_MOMENT):
        assert await life.generation.wait_ended() == End(EndKind.DISCONNECTED, "it was closed")
        await life.over.wait()
    assert chromiums.running == []


async def test_one_missed_beat_makes_it_unready_and_two_unresponsive(
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


async def test_after_one_missed_beat_the_next_makes_it_ready_again(
    chromiums: PlayedChromiums, nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    life = await born(nursery)
    for _ in range(3):
        chromiums.launched[0].mute = True
        await trio.sleep(MISS + A_MOMENT)
        assert not life.ready()
        chromiums.launched[0].mute = False
        await trio.sleep(BEAT_EVERY)
        assert life.ready()
    assert life.end() is None
    nursery.cancel_scope.cancel()


async def test_no_beat_vouches_for_it_for_longer_than_it_is_fresh(
    chromiums: PlayedChromiums,
    nursery: trio.Nursery,
    monkeypatch: pytest.MonkeyPatch,
    autojump_clock: MockClock,
) -> None:
    life = await born(nursery)
    monkeypatch.setattr(module, "BEAT_DEADLINE", 1_000)  # and so no beat is ever missed
    chromiums.launched[0].mute = True
    await trio.sleep(FRESH * 0.9)
    assert life.ready()
    await trio.sleep(FRESH * 0.1 + BEAT_EVERY)
    assert not life.ready()
    nursery.cancel_scope.cancel()


async def test_the_first_to_notice_its_end_says_what_it_was(
    chromiums: PlayedChromiums, nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    life = await born(nursery)
    chromiums.launched[0].mute = True
    end = await life.generation.wait_ended()
    chromiums.launched[0].exit()
    await life.over.wait()
    assert life.end() == end == End(EndKind.UNRESPONSIVE, "no script ran for 2 beats")


async def test_work_under_way_fails_when_it_ends(
    chromiums: PlayedChromiums, nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    life = await born(nursery)
    work = await working(life.generation, nursery)
    hang(chromiums.launched[0])
    work.end.set()
    await life.over.wait()
    with trio.fail_after(A_MOMENT):
        await work.done.wait()
    assert isinstance(work.error, Disconnected)


# Its recycling


async def aged(nursery: trio.Nursery) -> Life:
    life = await born(nursery, replace(SETTINGS, recycle_after=100))
    await trio.sleep(100 - A_MOMENT)
    assert life.end() is None
    return life


async def grown(nursery: trio.Nursery, chromium: Callable[[], PlayedChromium]) -> Life:
    life = await born(nursery)
    await trio.sleep(MEASURE_EVERY + A_MOMENT)
    chromium().megabytes = 1024
    return life


async def recycled(nursery: trio.Nursery) -> Life:
    """One that waits to be let go."""
    life = await aged(nursery)
    await life.generation.wait_ended()
    return life


async def test_age_ends_it_by_choice(
    chromiums: PlayedChromiums, nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    life = await aged(nursery)
    with trio.fail_after(MEASURE_EVERY):
        end = await life.generation.wait_ended()
    assert end.kind is EndKind.RECYCLED
    assert "browser.recycle_after" in end.detail
    nursery.cancel_scope.cancel()


async def test_memory_ends_it_by_choice(
    chromiums: PlayedChromiums, nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    life = await grown(nursery, lambda: chromiums.launched[0])
    assert life.end() is None
    with trio.fail_after(MEASURE_EVERY):
        end = await life.generation.wait_ended()
    assert end == End(EndKind.RECYCLED, "1024 MiB in use (browser.recycle_memory)")
    nursery.cancel_scope.cancel()


@pytest.mark.parametrize(
    "fault",
    [
        pytest.param(OSError(errno.EMFILE, os.strerror(errno.EMFILE)), id="no descriptor"),
        pytest.param(NoThread("no thread is left", retry_after=1), id="no thread"),
    ],
)
async def test_memory_that_cannot_be_measured_ends_nothing(
    chromiums: PlayedChromiums,
    nursery: trio.Nursery,
    autojump_clock: MockClock,
    caplog: pytest.LogCaptureFixture,
    *,
    fault: Exception,
) -> None:
    life = await grown(nursery, lambda: chromiums.launched[0])
    chromiums.launched[0].unmeasured = fault
    await trio.sleep(2 * MEASURE_EVERY)
    assert life.ready()
    assert caplog.messages == [f"the browser's memory cannot be measured: {fault}"] * 2
    chromiums.launched[0].unmeasured = None
    with trio.fail_after(MEASURE_EVERY):
        assert (await life.generation.wait_ended()).kind is EndKind.RECYCLED
    nursery.cancel_scope.cancel()


async def test_recycled_it_serves_until_it_is_let_go(
    chromiums: PlayedChromiums, nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    life = await recycled(nursery)
    await trio.sleep(1_000)
    assert life.ready()
    await life.generation.use(PLACE, nothing)
    assert len(chromiums.running) == 1
    life.generation.retire()
    with trio.fail_after(A_MOMENT):
        await life.over.wait()
    assert chromiums.running == []


async def test_let_go_it_ends_with_its_last_piece_of_work(
    chromiums: PlayedChromiums, nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    life = await recycled(nursery)
    pieces = [await working(life.generation, nursery) for _ in range(2)]
    life.generation.retire()
    for work in pieces:
        await trio.sleep(100)
        assert not life.over.is_set()
        work.end.set()
    with trio.fail_after(A_MOMENT):
        await life.over.wait()
    assert [work.error for work in pieces] == [None, None]


@pytest.mark.parametrize("let_go", [False, True])
async def test_a_death_after_its_recycling_began_ends_it_at_once(
    let_go: bool, chromiums: PlayedChromiums, nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    life = await recycled(nursery)
    work = await working(life.generation, nursery)
    if let_go:
        life.generation.retire()
    hang(chromiums.launched[0])
    work.end.set()
    with trio.fail_after(2 * MISS + A_MOMENT):
        await life.over.wait()
        await work.done.wait()
    assert life.end() == End(EndKind.UNRESPONSIVE, "no script ran for 2 beats")
    assert not life.ready()
    assert chromiums.running == []


async def test_the_reason_for_its_recycling_is_the_first_one(
    chromiums: PlayedChromiums, nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    life = await recycled(nursery)
    end = life.end()
    chromiums.launched[0].megabytes = 4096
    await trio.sleep(10 * MEASURE_EVERY)
    assert life.end() == end
    nursery.cancel_scope.cancel()


# A browser that does not forget


async def cancelled_work(generation: Generation) -> None:
    with trio.move_on_after(1):
        await Work().run(generation)


async def test_one_that_keeps_a_context_is_recycled(
    chromiums: PlayedChromiums, nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    life = await born(nursery)
    chromiums.launched[0].hoards = True
    await cancelled_work(life.generation)
    with trio.fail_after(DISPOSE_PATIENCE + VERDICT + A_MOMENT):
        end = await life.generation.wait_ended()
    assert end == End(EndKind.RECYCLED, "it did not dispose of a context")
    nursery.cancel_scope.cancel()


async def test_one_that_hangs_and_so_keeps_a_context_is_unresponsive(
    chromiums: PlayedChromiums, nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    life = await born(nursery)
    async with trio.open_nursery() as others:
        others.start_soon(cancelled_work, life.generation)
        await wait_all_tasks_blocked()
        hang(chromiums.launched[0])
    assert (await life.generation.wait_ended()).kind is EndKind.UNRESPONSIVE


async def test_the_first_script_may_take_longer_than_any_beat_after_it(
    chromiums: PlayedChromiums, nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    def slow(chromium: PlayedChromium) -> None:
        chromium.call_takes = 2 * BEAT_DEADLINE

    chromiums.prepare = slow
    life = await born(nursery)
    assert life.ready()
    nursery.cancel_scope.cancel()


async def test_a_context_that_nobody_uses_any_more_goes(
    chromiums: PlayedChromiums, nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    life = await born(nursery, replace(SETTINGS, idle=60))
    await life.generation.use(PLACE, nothing)
    assert life.generation.warm_contexts == 1
    await trio.sleep(2 * 60)
    assert life.generation.warm_contexts == 0
    [canary] = chromiums.launched[0].pages
    assert chromiums.launched[0].contexts == [canary.context]
    nursery.cancel_scope.cancel()
