"""Where guardians come from: one server for many, and what becomes of them without it."""

from __future__ import annotations

import errno
import os
import resource
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import trio

from daemon.processes import guarded as guarded_module
from daemon.processes.guarded import ExitStatus, Guarded, guarded
from daemon.processes.guardians import HERE, Guardians, guardians, shared_guardians
from tests.hygiene.processes import children
from tests.processes.family import alive, parent

Until = Callable[[Callable[[], bool]], Awaitable[None]]

pytestmark = pytest.mark.usefixtures("nothing_left")

SLEEP = ("/bin/sleep", "1000")
AT_ONCE = 30


@asynccontextmanager
async def sleeping() -> AsyncIterator[Guarded]:
    async with guarded(SLEEP, environment={}, working_folder=Path("/")) as process:
        yield process


def server_of(process: Guarded) -> int:
    return parent(parent(process.pid))


async def test_one_server_is_for_all_in_the_block_and_is_gone_after_it() -> None:
    before = children()
    async with shared_guardians():
        assert children() == before  # nobody has needed it yet
        async with sleeping() as one, sleeping() as another:
            (server,) = children() - before
            assert server_of(one) == server_of(another) == server
            assert parent(one.pid) != parent(another.pid)
    assert not alive(server)


async def test_tasks_that_begin_in_the_block_share_it_too() -> None:
    servers = set[int]()

    async def one() -> None:
        async with sleeping() as process:
            servers.add(server_of(process))

    async with shared_guardians(), trio.open_nursery() as nursery:
        for _ in range(AT_ONCE):
            nursery.start_soon(one)
    assert len(servers) == 1


async def test_outside_of_such_a_block_each_has_its_own_for_as_long_as_it_runs() -> None:
    async with sleeping() as one, sleeping() as another:
        servers = {server_of(one), server_of(another)}
        assert len(servers) == 2
    assert not any(alive(server) for server in servers)


async def test_it_has_nothing_of_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SMARTLINKD_SECRET", "secret")
    async with sleeping() as process:
        of_server = Path(f"/proc/{server_of(process)}")
        assert (of_server / "environ").read_bytes() == b""
        assert (of_server / "cwd").readlink() == Path("/")
        opened = {int(entry.name) for entry in (of_server / "fd").iterdir()}
        assert {0, 1, 2} < opened
        assert len(opened) == 4  # and the socket; nothing of what it has handed on


async def test_signals_do_not_end_it() -> None:
    async with shared_guardians(), sleeping() as one:
        server = server_of(one)
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT):
            os.kill(server, number)
        async with sleeping() as another:
            assert server_of(another) == server


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
    assert [each.getMessage() for each in caplog.records] == [
        "the server of guardians ended with -9, another is started"
    ]


async def test_one_that_is_stopped_is_killed_by_whom_it_keeps_waiting(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(guarded_module, "LEAVE_LIMIT", 0.1)
    async with shared_guardians(), sleeping() as one:
        os.kill(server_of(one), signal.SIGSTOP)
        with trio.move_on_after(0.1) as patience:
            async with sleeping():
                raise AssertionError("it was started")
        assert patience.cancelled_caught
        async with sleeping() as another:
            assert server_of(another) != os.getpid()
    assert "sleep: its guardian does not end and is killed" in caplog.messages
    assert "the server of guardians ended with -9, another is started" in caplog.messages


async def test_one_that_is_stopped_does_not_outlive_the_block(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with shared_guardians():
        async with sleeping() as process:
            server = server_of(process)
        os.kill(server, signal.SIGSTOP)
    assert not alive(server)
    assert "the server of guardians does not end and is killed" in caplog.messages


async def test_a_guardian_that_is_stopped_is_killed_and_the_server_stays(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(guarded_module, "LEAVE_LIMIT", 0.1)
    async with shared_guardians(), sleeping() as one:
        async with sleeping() as another:
            os.kill(parent(another.pid), signal.SIGSTOP)
        async with sleeping() as third:
            assert server_of(third) == server_of(one)
    assert "sleep: its guardian does not end and is killed" in caplog.messages
    assert "sleep: something may be left over: its guardian was killed" in caplog.messages


async def test_a_server_without_descriptors_says_so(caplog: pytest.LogCaptureFixture) -> None:
    async with shared_guardians(), sleeping() as one:
        server = server_of(one)
        _, most = resource.prlimit(server, resource.RLIMIT_NOFILE)
        resource.prlimit(server, resource.RLIMIT_NOFILE, (6, most))
        with pytest.raises(OSError, match=r"sleep \(receive\)") as raised:
            async with sleeping():
                raise AssertionError("it was started")
        assert raised.value.errno == errno.EMFILE
        resource.prlimit(server, resource.RLIMIT_NOFILE, (64, most))
        async with sleeping() as another:
            assert server_of(another) == server
    assert caplog.messages == []  # nothing is left over


CANNOT_FORK = """
import errno, os, sys
sys.path.append(sys.argv[1])
import fork_server
def fork():
    raise OSError(errno.EAGAIN, "no")
os.fork = fork
fork_server.serve(int(sys.argv[2]), print)
"""


async def test_a_server_that_cannot_fork_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("daemon.processes.guardians.RUN_SERVER", CANNOT_FORK)
    with pytest.raises(BlockingIOError, match=r"sleep \(fork\)"):
        async with sleeping():
            raise AssertionError("it was started")


async def test_none_at_all_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/no/such/python")
    async with shared_guardians():
        with pytest.raises(FileNotFoundError):
            async with sleeping():
                raise AssertionError("it was started")
        monkeypatch.undo()
        async with sleeping() as process:
            assert process.pid


async def test_an_order_that_is_none_ends_that_guardian_only() -> None:
    async with shared_guardians(), guardians() as source:
        status, status_end = os.pipe()
        others = [os.open(os.devnull, os.O_RDWR) for _ in range(4)]
        source.start(b"garbage", status_end, *others)
        for each in (status_end, *others):
            os.close(each)
        said = b""
        with os.fdopen(status, "rb") as reports:
            await trio.lowlevel.wait_readable(reports)
            said = await trio.to_thread.run_sync(reports.read)
        assert said == b""  # which is a guardian that died before the start
        async with sleeping() as process:
            assert process.pid


async def test_a_closed_one_was_never_started() -> None:
    source = Guardians()
    await source.close()
    source.give_up()  # of no effect
    await source.close()


def test_the_program_needs_nothing_but_python() -> None:
    """Else its start would take several times as long; it is in front of the first command's."""
    script = (
        "import sys; sys.path.append(sys.argv[1]); import fork_server, guardian;"
        "print(*sorted({'enum', 're', 'signal', 'socket', 'typing', 'trio'} & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", script, str(HERE)], capture_output=True, check=True
    )
    assert done.stdout == b"\n"
