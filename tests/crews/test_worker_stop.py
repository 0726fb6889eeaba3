"""A worker is stopped, or its user leaves: nothing of it is left, however it behaves."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager

import pytest
import trio

from smartlinkd.crews.protocol import MAX_LINE, Inputs
from smartlinkd.crews.worker import Stopped, Worker
from tests.processes.family import alive, parent

Begin = Callable[..., AbstractAsyncContextManager[Worker]]
Until = Callable[[Callable[[], bool]], Awaitable[None]]

pytestmark = pytest.mark.usefixtures("nothing_left")

SHELL = """
say() { printf '%s\\n' "$1" >&3; }
say '{"type":"started"}'
"""
# A child, a child in a session of its own, and one whose parent has gone; none minds SIGTERM.
FAMILY = """
trap '' TERM
sleep 1000 & echo $!
setsid sh -c 'echo $$; exec sleep 1000' &
( setsid sh -c 'sh -c "echo \\$\\$; exec sleep 1000" & ' & )
while :; do sleep 1000; done
"""


def shell(script: str) -> tuple[str, ...]:
    """A worker that says `started` and runs the script."""
    return ("/bin/sh", "-c", SHELL + script)


def python(program: str) -> tuple[str, ...]:
    return (sys.executable, "-I", "-S", "-c", program)


def family(worker: Worker) -> list[int]:
    return [int(word) for word in worker.stdout_tail.split()]


async def test_one_that_reads_stop_ends_by_itself(begin: Begin) -> None:
    script = 'read -r inputs <&3; read -r line <&3; echo "$line"'
    async with begin(*shell(script)) as worker:
        assert await worker.stop() == Stopped.WITHOUT_SIGNAL
        assert worker.stdout_tail == '{"type":"stop"}\n'


async def test_one_that_does_not_read_gets_sigterm(begin: Begin) -> None:
    script = "trap 'echo bye; exit' TERM; while :; do sleep 0.01; done"
    async with begin(*shell(script), grace=5.0) as worker:
        await anext(worker.messages)
        assert await worker.stop() == Stopped.BY_SIGTERM
        assert worker.stdout_tail == "bye\n"


async def test_sigterm_goes_to_its_group(begin: Begin) -> None:
    # The shell itself only sees the signal when its child has ended.
    async with begin(*shell("sleep 1000; echo not"), grace=5.0) as worker:
        await anext(worker.messages)
        assert await worker.stop() == Stopped.BY_SIGTERM


async def test_one_that_ignores_it_all_is_killed_within_its_grace(
    begin: Begin, until: Until, caplog: pytest.LogCaptureFixture
) -> None:
    async with begin(*shell(FAMILY), grace=0.3) as worker:
        await until(lambda: len(family(worker)) == 3)
        with trio.fail_after(3):
            assert await worker.stop() == Stopped.BY_SIGKILL
        await until(lambda: not any(alive(pid) for pid in [worker.pid, *family(worker)]))
    assert "ignores SIGTERM and is killed" in caplog.text


async def test_stop_of_a_worker_whose_reaper_is_killed_does_not_say_that_it_ended(
    begin: Begin, until: Until
) -> None:
    async with begin(*shell(FAMILY), grace=5.0) as worker:
        await until(lambda: len(family(worker)) == 3)
        os.kill(parent(worker.pid), signal.SIGKILL)
        with trio.fail_after(3):
            assert await worker.stop() == Stopped.OUT_OF_SIGHT


async def test_stop_of_a_worker_whose_reaper_does_not_kill_it_does_not_say_so(
    begin: Begin, until: Until, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("smartlinkd.crews.worker.KILL_LIMIT", 0.1)
    async with begin(*shell(FAMILY), grace=0.3) as worker:
        await until(lambda: len(family(worker)) == 3)
        reaper = parent(worker.pid)
        os.kill(reaper, signal.SIGSTOP)
        try:
            assert await worker.stop() == Stopped.NOT_EVEN_BY_SIGKILL
            assert alive(worker.pid)
        finally:
            os.kill(reaper, signal.SIGCONT)


async def test_one_that_has_not_read_its_inputs_can_be_stopped(begin: Begin) -> None:
    inputs = Inputs(inputs={"text": "x" * MAX_LINE})
    async with begin("/bin/sleep", "1000", inputs=inputs, grace=5.0) as worker:
        assert await worker.stop() == Stopped.BY_SIGTERM


async def test_one_that_waits_to_be_heard_can_obey(begin: Begin) -> None:
    program = """
import socket, sys
line = socket.socket(fileno=3).makefile("rwb")
line.readline()
for n in range(100):
    line.write(b"x" * 50_000)
line.flush()
assert b"stop" in line.readline()
"""
    async with begin(*python(program)) as worker:
        with trio.fail_after(5):
            assert await worker.stop() == Stopped.WITHOUT_SIGNAL


async def test_one_that_has_ended_is_stopped_at_once(begin: Begin) -> None:
    async with begin(*shell("")) as worker:
        await worker.exit_reason()
        with trio.fail_after(3):
            assert await worker.stop() == Stopped.WITHOUT_SIGNAL


async def test_one_that_broke_the_protocol_can_be_stopped(begin: Begin) -> None:
    async with begin(*shell("say x; sleep 1000"), grace=5.0) as worker:
        await worker.exit_reason()
        assert await worker.stop() == Stopped.BY_SIGTERM


async def test_a_stop_that_is_cancelled_leaves_nothing(begin: Begin, until: Until) -> None:
    with trio.move_on_after(5) as scope:
        async with begin(*shell(FAMILY), grace=1000.0) as worker:
            await until(lambda: len(family(worker)) == 3)
            with trio.move_on_after(0.05) as patience:
                await worker.stop()
            assert patience.cancelled_caught
    assert not scope.cancelled_caught
    assert not any(alive(pid) for pid in [worker.pid, *family(worker)])


async def test_leaving_the_block_leaves_nothing(begin: Begin, until: Until) -> None:
    async with begin(*shell(FAMILY)) as worker:
        await until(lambda: len(family(worker)) == 3)
    assert not any(alive(pid) for pid in [worker.pid, *family(worker)])


@pytest.mark.parametrize("milliseconds", [0, 1, 3, 6, 10, 14, 18, 25, 40])
async def test_cancelled_at_any_moment_it_leaves_nothing(begin: Begin, milliseconds: int) -> None:
    # What must not be left is what the fixtures look for.
    inputs = Inputs(inputs={"text": "x" * MAX_LINE})
    with trio.move_on_after(milliseconds / 1000) as scope:
        async with begin(*shell(FAMILY), inputs=inputs) as worker:
            async for _ in worker.messages:
                pass
    assert scope.cancelled_caught


async def test_many_at_once_leave_nothing(begin: Begin) -> None:
    ended = 0

    async def one() -> None:
        nonlocal ended
        async with begin(*shell("""say '{"type":"result","output":""}'""")) as worker:
            await worker.exit_reason()
            ended += 1

    async with trio.open_nursery() as nursery:
        for _ in range(20):
            nursery.start_soon(one)
    assert ended == 20
