"""The server that guardians come from ends, or hangs: who needs it is not held up for long."""

from __future__ import annotations

import os
import signal
from collections.abc import Awaitable, Callable

import pytest
import trio

from smartlinkd.processes import guarded as guarded_module
from smartlinkd.processes.guarded import ExitStatus
from smartlinkd.processes.guardians import shared_guardians
from tests.processes.family import alive, running, server_of, sleeping

Until = Callable[[Callable[[], bool]], Awaitable[None]]

pytestmark = pytest.mark.usefixtures("nothing_left")

REPLACED = "the server of guardians has ended (signal 9), another is started"


async def test_a_killed_one_is_replaced_and_what_runs_goes_on(
    until: Until, caplog: pytest.LogCaptureFixture
) -> None:
    async with shared_guardians(), sleeping() as one:
        server = server_of(one)
        os.kill(server, signal.SIGKILL)
        await until(lambda: server_of(one) != server)
        async with sleeping() as another:
            assert server_of(another) not in (server, os.getpid())
        one.kill()
        assert await one.wait() == ExitStatus(signal=signal.SIGKILL)
    assert caplog.messages == [REPLACED]


async def test_one_that_is_stopped_is_killed_by_whom_it_keeps_waiting(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async with shared_guardians(), sleeping() as one:
        server = server_of(one)
        os.kill(server, signal.SIGSTOP)
        with monkeypatch.context() as patch, trio.move_on_after(0.1) as patience:
            patch.setattr(guarded_module, "LEAVE_LIMIT", 0.1)
            async with sleeping():
                raise AssertionError("it was started")
        assert patience.cancelled_caught
        async with sleeping() as another:
            assert server_of(another) != server
        assert not alive(server)
    assert caplog.messages == [
        "sleep: the server of guardians does not answer and is killed",
        REPLACED,
    ]


async def test_what_it_does_not_start_in_time_is_not_waited_for(
    monkeypatch: pytest.MonkeyPatch, until: Until
) -> None:
    monkeypatch.setattr(guarded_module, "LEAVE_LIMIT", 0.1)
    async with shared_guardians(), sleeping() as one:
        server = server_of(one)
        os.kill(server, signal.SIGSTOP)
        monkeypatch.setattr(guarded_module, "START_LIMIT", 0.1)
        with pytest.RaisesGroup(
            pytest.RaisesExc(OSError, match=r"it did not start within 0\.1 s: 'sleep'$"),
            allow_unwrapped=True,
        ):
            async with sleeping():
                raise AssertionError("it was started")
        monkeypatch.undo()
        # Its end of the pipe is what was waited for, which the kernel closes before it has ended.
        await until(lambda: not running(server))
        async with sleeping() as another:
            assert server_of(another) != server


async def test_one_that_is_stopped_does_not_outlive_the_block(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with shared_guardians():
        async with sleeping() as process:
            server = server_of(process)
        os.kill(server, signal.SIGSTOP)
    assert not alive(server)
    assert "the server of guardians does not end and is killed" in caplog.messages
