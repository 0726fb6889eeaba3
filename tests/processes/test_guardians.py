"""Where guardians come from: one server for many, and what becomes of them without it."""

from __future__ import annotations

import errno
import os
import resource
import signal
import socket
import subprocess
import sys
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path

import pytest
import trio

import smartlinkd
from smartlinkd.processes import guarded as guarded_module
from smartlinkd.processes import guardians as guardians_module
from smartlinkd.processes.guarded import guarded
from smartlinkd.processes.guardian import Order
from smartlinkd.processes.guardians import (
    PACKAGES,
    Guardian,
    Kind,
    Server,
    guardians,
    shared_guardians,
)
from tests.hygiene.processes import children
from tests.processes.family import SLEEP, alive, parent, running, server_of, sleeping

Until = Callable[[Callable[[], bool]], Awaitable[None]]

pytestmark = pytest.mark.usefixtures("nothing_left")

AT_ONCE = 30
ROOT = Path(smartlinkd.__file__).parents[1]
KILLED = "sleep: something may be left over: its guardian was killed"


def descriptors(process: Path) -> set[int]:
    """Those that it has opened. Some builds of libffi, which ctypes uses, keep their file open."""
    links = (process / "fd").iterdir()
    return {int(link.name) for link in links if "libffi" not in str(link.readlink())}


async def everything_of(status: int) -> str:
    """What a guardian reports, to its end."""
    with os.fdopen(status) as reports:
        return await trio.to_thread.run_sync(reports.read)


async def test_one_server_is_for_all_in_the_block_and_is_gone_after_it() -> None:
    before = children()
    async with shared_guardians():
        assert children() == before  # nobody has needed it yet
        async with sleeping() as one, sleeping() as another:
            (server,) = children() - before
            assert server_of(one) == server_of(another) == server
            assert parent(one.pid) != parent(another.pid)
    assert not alive(server)


async def test_it_is_gone_after_a_block_that_was_cancelled_too() -> None:
    with trio.CancelScope() as scope:
        async with shared_guardians(), sleeping() as process:
            server = server_of(process)
            scope.cancel()
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


async def test_it_has_nothing_of_ours(monkeypatch: pytest.MonkeyPatch, until: Until) -> None:
    monkeypatch.setenv("SMARTLINKD_SECRET", "secret")
    async with sleeping() as process:
        of_server = Path(f"/proc/{server_of(process)}")
        assert (of_server / "environ").read_bytes() == b""
        # The socket and a pipe of its own, and nothing of what it has handed on.
        await until(lambda: len(descriptors(of_server)) == 6)
        assert {0, 1, 2} < descriptors(of_server)


async def test_signals_do_not_end_it() -> None:
    async with shared_guardians(), sleeping() as one:
        server = server_of(one)
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT):
            os.kill(server, number)
        async with sleeping() as another:
            assert server_of(another) == server


async def test_a_guardian_that_is_stopped_is_killed_and_the_server_stays(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, until: Until
) -> None:
    async with shared_guardians(), sleeping() as one:
        with monkeypatch.context() as patch:
            patch.setattr(guarded_module, "LEAVE_LIMIT", 0.1)
            async with sleeping() as another:
                guardian = parent(another.pid)
                os.kill(guardian, signal.SIGSTOP)
        await until(lambda: not running(guardian) and not running(another.pid))
        async with sleeping() as third:
            assert server_of(third) == server_of(one)
    assert caplog.messages == [
        "sleep: its guardian does not end and is killed",
        KILLED,
    ]


async def test_it_has_no_child_that_has_ended(until: Until) -> None:
    async with shared_guardians(), sleeping() as one:
        async with sleeping() as another:
            guardian = parent(another.pid)
        os.kill(guardian, signal.SIGKILL)
        await until(lambda: not alive(guardian))
        assert children(str(server_of(one))) == {parent(one.pid)}


HELD_BACK = """
import os, sys, time
sys.path.append(sys.argv[1])
from processes import fork_server, guardian
def enter(folder):
    os.mkdir(folder + b"/entered")
    time.sleep(1000)
guardian.enter = enter
fork_server.serve(int(sys.argv[2]), guardian.main)
"""


async def test_a_guardian_that_does_not_come_to_its_command_is_killed(
    open_folder: Path,
    until: Until,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Its working folder, or its program, is on a network that hangs."""
    monkeypatch.setattr(guarded_module, "LEAVE_LIMIT", 0.1)
    monkeypatch.setattr(guardians_module, "RUN_SERVER", HELD_BACK)
    before = children()

    async def start() -> None:
        async with guarded(SLEEP, environment={}, working_folder=open_folder):
            raise AssertionError("it was started")

    async with shared_guardians():
        async with trio.open_nursery() as nursery:
            nursery.start_soon(start)
            await until((open_folder / "entered").exists)
            (server,) = children() - before
            (guardian,) = children(str(server))
            nursery.cancel_scope.cancel()
        await until(lambda: not running(guardian))
        assert alive(server)
    assert caplog.messages == [
        "sleep: its guardian does not end and is killed",
        KILLED,
    ]


async def test_what_was_asked_for_by_one_who_has_gone_is_not_run(tmp_path: Path) -> None:
    """Its lifeline is closed by then. So a restarted daemon's program is not run beside it."""
    trace = tmp_path / "trace"
    order = Order(
        [b"/bin/sh", b"-c", b"echo x > " + os.fsencode(trace)],
        {},
        b"/",
        user=None,
        limits=None,
        remove=None,
    )
    async with guardians() as source:
        status, status_end = os.pipe()
        lifeline_end, lifeline = os.pipe()
        os.close(lifeline)
        others = [os.open(os.devnull, os.O_RDWR) for _ in range(3)]
        guardian = source.start(order, status_end, lifeline_end, *others)
        for each in (status_end, lifeline_end, *others):
            os.close(each)
        said = await everything_of(status)
        guardian.dismiss()
    first, last = said.splitlines()
    assert first.startswith("guardian ")
    assert last == "gone"
    assert not trace.exists()


async def test_a_fault_of_a_guardians_own_is_told(caplog: pytest.LogCaptureFixture) -> None:
    async with sleeping() as process:
        guardian = parent(process.pid)
        _, most = resource.prlimit(guardian, resource.RLIMIT_NOFILE)
        resource.prlimit(guardian, resource.RLIMIT_NOFILE, (3, most))
        process.kill()
        await process.wait()
    (told,) = caplog.messages
    assert told.startswith("sleep: something may be left over: OSError(24, ")


async def test_a_daemon_without_descriptors_is_not_held_up(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """It cannot kill a guardian then, and says so."""

    def no_descriptor(_: int) -> int:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    async with shared_guardians(), sleeping():
        with monkeypatch.context() as patch, trio.fail_after(5):
            patch.setattr(guarded_module, "LEAVE_LIMIT", 0.1)
            patch.setattr(guarded_module, "KILLED_GUARDIAN_LIMIT", 0.1)
            async with sleeping() as process:
                guardian = parent(process.pid)
                os.kill(guardian, signal.SIGSTOP)
                patch.setattr(os, "pidfd_open", no_descriptor)
        os.kill(guardian, signal.SIGKILL)
    assert caplog.messages == [
        "sleep: its guardian does not end and is killed",
        "sleep: its guardian cannot be killed: [Errno 24] Too many open files",
        KILLED,
    ]


def test_who_has_the_number_of_a_guardian_that_has_ended_is_not_killed() -> None:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    guardian = Guardian(Kind([], None, None), ours, Server.__new__(Server))
    theirs.close()
    with subprocess.Popen(SLEEP) as another:
        guardian.pid = another.pid
        guardian.give_up("sleep")
        guardian.dismiss()
        another.terminate()
    assert another.returncode == -signal.SIGTERM


WITHOUT_STREAMS = """
import os, sys, trio
from pathlib import Path
from smartlinkd.processes.guarded import guarded

async def main():
    command = ["/bin/sh", "-c", "echo it ran"]
    async with guarded(command, environment={}, working_folder=Path("/")) as process:
        await process.wait()
        return process.stdout_tail

told = os.dup(1)
for each in range(3):
    os.close(each)
os.write(told, trio.run(main).encode())
"""


def test_a_daemon_may_have_no_standard_streams() -> None:
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_STREAMS], cwd=ROOT, capture_output=True, check=True
    )
    assert done.stdout == b"it ran\n"


def holds_an_order(server: int) -> bool:
    """It has not let go yet of what the guardian has that it forked."""
    for each in Path(f"/proc/{server}/fd").iterdir():
        with suppress(FileNotFoundError):  # let go of just now
            if "memfd:" in str(each.readlink()):
                return True
    return False


async def test_a_server_without_descriptors_says_so(
    until: Until, caplog: pytest.LogCaptureFixture
) -> None:
    async with shared_guardians(), sleeping() as one:
        server = server_of(one)
        await until(lambda: not holds_an_order(server))  # nor what came with it
        _, most = resource.prlimit(server, resource.RLIMIT_NOFILE)
        used = {int(name) for name in os.listdir(f"/proc/{server}/fd")}  # noqa: PTH208 - numbers
        free = next(number for number in range(len(used) + 1) if number not in used)
        resource.prlimit(server, resource.RLIMIT_NOFILE, (free + 1, most))
        with pytest.raises(OSError, match=r"sleep \(receive\)") as raised:
            async with sleeping():
                raise AssertionError("it was started")
        assert raised.value.errno == errno.EMFILE
        guardian = parent(one.pid)
        resource.prlimit(server, resource.RLIMIT_NOFILE, (free, most))  # not one is free
        os.kill(guardian, signal.SIGKILL)
        await until(lambda: not alive(guardian))  # it is reaped, and what it left looked for
        resource.prlimit(server, resource.RLIMIT_NOFILE, (64, most))
        async with sleeping() as another:
            assert server_of(another) == server
    assert caplog.messages == [KILLED]  # and nothing is left over of what was not started


CANNOT_FORK = """
import errno, os, sys
sys.path.append(sys.argv[1])
from processes import fork_server
def fork():
    raise OSError(errno.EAGAIN, "no")
os.fork = fork
fork_server.serve(int(sys.argv[2]), print)
"""


async def test_a_server_that_cannot_fork_says_so(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(guardians_module, "RUN_SERVER", CANNOT_FORK)
    with pytest.raises(BlockingIOError, match=r"sleep \(fork\)"):
        async with sleeping():
            raise AssertionError("it was started")
    assert caplog.messages == []  # nothing is left over, and the server has ended by itself


CANNOT_ADOPT = """
import errno, os, sys
sys.path.append(sys.argv[1])
from processes import fork_server, guardian
server, adopt = os.getpid(), fork_server.adopt
def only_in_the_server():
    if os.getpid() != server:
        raise OSError(errno.EMFILE, "no")
    return adopt()
fork_server.adopt = only_in_the_server
fork_server.serve(int(sys.argv[2]), guardian.main)
"""


async def test_a_guardian_that_cannot_take_children_in_says_so(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(guardians_module, "RUN_SERVER", CANNOT_ADOPT)
    with pytest.raises(OSError, match=r"sleep \(adopt\)") as raised:
        async with sleeping():
            raise AssertionError("it was started")
    assert raised.value.errno == errno.EMFILE
    assert caplog.messages == []  # nothing is left over of what was not started


async def test_none_at_all_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/no/such/python")
    async with shared_guardians():
        with pytest.raises(FileNotFoundError):
            async with sleeping():
                raise AssertionError("it was started")
        monkeypatch.undo()
        async with sleeping() as process:
            assert process.pid


class NoOrder(Order):
    def written(self) -> bytes:
        return b"garbage"


async def test_an_order_that_is_none_ends_that_guardian_only() -> None:
    order = NoOrder([], {}, b"", user=None, limits=None, remove=None)
    async with shared_guardians(), guardians() as source:
        status, status_end = os.pipe()
        others = [os.open(os.devnull, os.O_RDWR) for _ in range(4)]
        source.start(order, status_end, *others).dismiss()
        for each in (status_end, *others):
            os.close(each)
        _, last = (await everything_of(status)).splitlines()
        assert last.startswith("left ValueError(")
        async with sleeping() as process:
            assert process.pid


def test_the_program_needs_nothing_but_python() -> None:
    """Else its start would take several times as long; it is in front of the first command's."""
    script = (
        "import sys; sys.path.append(sys.argv[1]); from processes import fork_server, guardian;"
        "print(*sorted({'enum', 're', 'signal', 'socket', 'typing', 'trio'} & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", script, str(PACKAGES)], capture_output=True, check=True
    )
    assert done.stdout == b"\n"
