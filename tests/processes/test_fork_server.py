"""The fork server: one for many commands, and what happens when it or a reaper is lost or hangs."""

from __future__ import annotations

import errno
import os
import resource
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import trio

import smartlinkd
from smartlinkd.processes.process_tree import ExitStatus, Limits, fork_server
from smartlinkd.processes.reaper import CommandSpec
from tests.hygiene.processes import children
from tests.processes.family import Until, alive, parent, running, server_of, sleeping

pytestmark = pytest.mark.usefixtures("nothing_left")

ROOT = Path(smartlinkd.__file__).parents[1]
REPLACED = "the fork server has ended (signal 9 (Killed)), another is started"
NOT_ANSWERING = "sleep: the fork server does not answer and is killed"
REAPER_KILLED = "sleep: its reaper does not end and is killed"
LEFT_OVER = "sleep: something may be left over: its reaper was killed"

# Root may have any number of processes. The other user keeps the right to read all files, since
# Python may be in a folder of root's.
OTHER_USER = (
    "setpriv --reuid=54321 --clear-groups --inh-caps=-all,+dac_read_search"
    " --ambient-caps=+dac_read_search --bounding-set=-all,+dac_read_search"
    if os.geteuid() == 0
    else ""
)


def descriptors(process: Path) -> set[int]:
    """Return its open ones. Some builds of libffi, which ctypes uses, keep their file open."""
    links = (process / "fd").iterdir()
    return {int(link.name) for link in links if "libffi" not in str(link.readlink())}


# One server


async def test_one_server_is_for_all_in_the_block_and_gone_after_it() -> None:
    before = children()
    async with fork_server():
        assert children() == before  # it is started at first use
        async with sleeping() as one, sleeping() as another:
            (server,) = children() - before
            assert server_of(one) == server_of(another) == server
            assert parent(one.pid) != parent(another.pid)
    assert not alive(server)


async def test_server_has_nothing_of_the_daemons(
    monkeypatch: pytest.MonkeyPatch, until: Until
) -> None:
    monkeypatch.setenv("SMARTLINKD_SECRET", "secret")
    async with sleeping() as tree:
        of_server = Path(f"/proc/{server_of(tree)}")
        assert (of_server / "environ").read_bytes() == b""
        # Those reserved for streams and the channel, the socket, and a pipe of its own.
        await until(lambda: len(descriptors(of_server)) == 7)
        assert {0, 1, 2, 3} < descriptors(of_server)


async def test_reaper_is_ended_and_reaped_with_its_command(until: Until) -> None:
    async with fork_server(), sleeping() as one:
        async with sleeping() as another:
            reaper = parent(another.pid)
        await until(lambda: not alive(reaper))
        assert children(str(server_of(one))) == {parent(one.pid)}


async def test_signals_end_neither_the_server_nor_a_reaper() -> None:
    async with fork_server(), sleeping() as one:
        server, reaper = server_of(one), parent(one.pid)
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT):
            os.kill(server, number)
            os.kill(reaper, number)
        async with sleeping() as another:
            assert server_of(another) == server
        # It is still there to do its work: it passes on this, and tells of it.
        one.kill()
        assert await one.wait() == ExitStatus(signal=signal.SIGKILL)
        one.kill()  # of no effect, and no error


WITHOUT_STREAMS = """
import os, sys, trio
from pathlib import Path
from smartlinkd.processes.process_tree import run_process_tree

async def main():
    command = ["/bin/sh", "-c", "echo it ran"]
    async with run_process_tree(command, environment={}, working_folder=Path("/")) as tree:
        await tree.wait()
        return tree.stdout_tail

out = os.dup(1)
for each in range(3):
    os.close(each)
os.write(out, trio.run(main).encode())
"""


def test_daemon_may_have_no_standard_streams() -> None:
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_STREAMS], cwd=ROOT, capture_output=True, check=True
    )
    assert done.stdout == b"it ran\n"


# A server that is lost


async def test_killed_server_is_replaced_and_its_commands_go_on(
    until: Until, caplog: pytest.LogCaptureFixture
) -> None:
    async with fork_server(), sleeping() as one:
        server = server_of(one)
        os.kill(server, signal.SIGKILL)
        await until(lambda: server_of(one) != server)
        async with sleeping() as another:
            assert server_of(another) not in (server, os.getpid())
        one.kill()
        assert await one.wait() == ExitStatus(signal=signal.SIGKILL)
    assert caplog.messages == [REPLACED]


async def test_stopped_server_is_killed_by_a_cancelled_start_and_replaced(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with fork_server(Limits(leave=0.1)), sleeping() as one:
        server = server_of(one)
        os.kill(server, signal.SIGSTOP)
        with trio.move_on_after(0.1) as patience:
            async with sleeping():
                raise AssertionError("it was started")
        assert patience.cancelled_caught
        async with sleeping() as another:
            assert server_of(another) != server
        assert not alive(server)
    assert caplog.messages == [NOT_ANSWERING, REPLACED]


async def test_start_that_a_stopped_server_delays_for_too_long_is_an_error(until: Until) -> None:
    limits = Limits(start=0.5, leave=0.1)
    async with fork_server(limits), sleeping() as one:
        server = server_of(one)
        os.kill(server, signal.SIGSTOP)
        with pytest.raises(OSError, match=r"it did not start within 0\.5 s: 'sleep'$"):
            async with sleeping():
                raise AssertionError("it was started")
        await until(lambda: not running(server))


async def test_stopped_server_does_not_outlive_the_block(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with fork_server():
        async with sleeping() as tree:
            server = server_of(tree)
        os.kill(server, signal.SIGSTOP)
    assert not alive(server)
    assert "the fork server does not end and is killed" in caplog.messages


async def test_server_that_cannot_be_started_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/no/such/python")
    async with fork_server():
        with pytest.raises(FileNotFoundError):
            async with sleeping():
                raise AssertionError("it was started")
        monkeypatch.undo()
        async with sleeping() as tree:
            assert tree.pid


async def test_server_that_cannot_fork_is_an_error(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    program = tmp_path / "python"
    program.write_text(f'#!/bin/sh\nexec prlimit --nproc=1 {OTHER_USER} {sys.executable} "$@"\n')
    program.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(program))
    async with fork_server():
        with pytest.raises(BlockingIOError, match=r"sleep \(fork\)"):
            async with sleeping():
                raise AssertionError("it was started")
    assert caplog.messages == []  # nothing is left over


# A reaper that is lost


async def test_stopped_reaper_is_killed_and_the_server_ends_its_tree(
    caplog: pytest.LogCaptureFixture, until: Until
) -> None:
    async with fork_server(Limits(leave=0.1)), sleeping() as one:
        async with sleeping() as another:
            reaper = parent(another.pid)
            os.kill(reaper, signal.SIGSTOP)
        await until(lambda: not running(reaper) and not running(another.pid))
        async with sleeping() as third:
            assert server_of(third) == server_of(one)
    assert caplog.messages == [REAPER_KILLED, LEFT_OVER]


async def test_command_is_not_run_for_a_daemon_that_has_gone(tmp_path: Path) -> None:
    """So a restarted daemon's program does not run beside it."""
    trace = tmp_path / "trace"
    spec = CommandSpec([b"/bin/sh", b"-c", b"echo x > " + os.fsencode(trace)], {}, b"/")
    status, status_end = os.pipe()
    control_end, control = os.pipe()
    os.close(control)
    others = [control_end, *(os.open(os.devnull, os.O_RDWR) for _ in range(3))]
    async with fork_server() as server:
        server.fork_reaper(spec, status_end, *others)
        for each in (status_end, *others):
            os.close(each)
        with os.fdopen(status) as reports:
            first, last = await trio.to_thread.run_sync(reports.readlines)
    assert first.startswith("reaper ")
    assert last == "gone\n"
    assert not trace.exists()


async def test_reaper_without_a_descriptor_reports_what_may_be_left(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with sleeping() as tree:
        reaper = parent(tree.pid)
        _, hard = resource.prlimit(reaper, resource.RLIMIT_NOFILE)
        resource.prlimit(reaper, resource.RLIMIT_NOFILE, (3, hard))
        tree.kill()
        await tree.wait()
    (message,) = caplog.messages
    assert message.startswith(f"sleep: something may be left over: OSError({errno.EMFILE}, ")
