"""A guardian that is done waits for more of the same: who may ask it, and what it still holds."""

from __future__ import annotations

import errno
import os
import signal
import socket
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing

from smartlinkd.processes import fork_server
from smartlinkd.processes import guarded as guarded_module
from smartlinkd.processes import guardians as guardians_module
from smartlinkd.processes.guarded import ExitStatus, Limits, User, guarded, user_named
from smartlinkd.processes.guardians import MOST_IDLE, shared_guardians
from tests.hygiene.processes import children
from tests.processes.family import SLEEP, alive, parent, running, server_of, sleeping

Until = Callable[[Callable[[], bool]], Awaitable[None]]

pytestmark = pytest.mark.usefixtures("nothing_left")
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can drop to a user")

LIMITS = Limits(memory=1 << 30, file_size=1 << 20)


async def once(*, user: User | None = None, limits: Limits | None = None) -> int:
    """Run something to its end; the process id of its guardian."""
    async with sleeping(user=user, limits=limits) as process:
        guardian = parent(process.pid)
        process.kill()
        assert await process.wait() == ExitStatus(signal=signal.SIGKILL)
        return guardian


async def test_the_same_again_has_the_same_guardian() -> None:
    async with shared_guardians():
        assert len({await once(limits=LIMITS) for _ in range(5)}) == 1


async def test_one_that_was_not_waited_for_has_it_too() -> None:
    async with shared_guardians():
        async with sleeping() as process:
            guardian = parent(process.pid)
        assert not alive(process.pid)
        assert await once() == guardian


async def test_two_at_once_have_two() -> None:
    async with shared_guardians():
        async with sleeping() as one, sleeping() as another:
            both = {parent(one.pid), parent(another.pid)}
            assert len(both) == 2
        async with sleeping() as one, sleeping() as another:
            assert {parent(one.pid), parent(another.pid)} == both


async def test_another_command_has_another() -> None:
    """What is left of the keys in its memory is what this one is given, too."""
    async with shared_guardians():
        first = await once()
        async with guarded(
            ["/bin/sleep", "2000"], environment={}, working_folder=Path("/")
        ) as process:
            assert parent(process.pid) != first


async def test_for_what_is_not_run_again_nobody_waits(until: Until) -> None:
    async with shared_guardians():
        async with guarded(SLEEP, environment={}, working_folder=Path("/")) as process:
            guardian = parent(process.pid)
        await until(lambda: not alive(guardian))


async def test_other_limits_have_another() -> None:
    async with shared_guardians():
        first = await once(limits=LIMITS)
        assert await once(limits=Limits(LIMITS.memory, LIMITS.file_size * 2)) != first
        assert await once(limits=Limits(LIMITS.memory * 2, LIMITS.file_size)) != first
        assert await once() != first


@as_root
async def test_another_user_has_another() -> None:
    nobody = user_named("nobody")
    async with shared_guardians():
        first = await once()
        second = await once(user=nobody)
        assert first != second
        async with sleeping(user=nobody) as process:
            assert parent(process.pid) == second
            assert os.stat(f"/proc/{process.pid}").st_uid == nobody.uid  # noqa: PTH116


async def test_each_time_it_is_begun_anew(open_folder: Path) -> None:
    """Its folder, environment, streams and channel are its own."""
    script = 'read -r word; echo "$PWD $NAME $word $(ls /proc/self/fd | tr "\\n" " ")"; echo x >&3'
    guardians = set[int]()
    async with shared_guardians():
        for name in ("one", "two"):
            folder = open_folder / name
            folder.mkdir()
            stdin_end, stdin = os.pipe()
            ours, theirs = socket.socketpair()
            async with guarded(
                ["/bin/sh", "-c", script],
                environment={"PATH": "/usr/bin:/bin", "NAME": name},
                working_folder=folder,
                remove=folder,
                stdin=stdin_end,
                channel=theirs.fileno(),
                again=True,
            ) as process:
                guardians.add(parent(process.pid))
                os.close(stdin_end)
                theirs.close()
                os.write(stdin, name.encode() + b"\n")
                os.close(stdin)
                assert await process.wait() == ExitStatus(code=0)
                assert process.stdout_tail == f"{folder} {name} {name} 0 1 2 3 4 \n"
                assert ours.recv(8) == b"x\n"
                assert ours.recv(8) == b""
            ours.close()
            assert not folder.exists()
    assert len(guardians) == 1


async def test_while_it_waits_it_has_nothing_of_what_it_did(until: Until) -> None:
    async with shared_guardians():
        async with sleeping() as process:
            of_guardian = Path(f"/proc/{parent(process.pid)}")
            before = opened(of_guardian)
        # Two less: the status pipe, which it closes last, and the lifeline.
        await until(lambda: len(numbers(of_guardian)) == len(before) - 2)
        after = opened(of_guardian)
        assert {after[each] for each in "012"} == {os.devnull}
        assert (of_guardian / "cwd").readlink() == Path("/")
        assert of_guardian == Path(f"/proc/{await once()}")
        await until(lambda: numbers(of_guardian) == after.keys())  # and of what it did then


def numbers(process: Path) -> set[str]:
    """Those of what it has open. What each is may not be told while it closes some."""
    return {each.name for each in (process / "fd").iterdir()}


def opened(process: Path) -> dict[str, str]:
    """What it has open, by number."""
    return {number: str((process / "fd" / number).readlink()) for number in numbers(process)}


async def test_whoever_could_not_start_something_does_nothing_else(until: Until) -> None:
    """It may be half-way to it: another user's, or in another folder."""
    async with shared_guardians(), sleeping() as process:
        with pytest.raises(FileNotFoundError):
            async with guarded(["/no/such"], environment={}, working_folder=Path("/"), again=True):
                raise AssertionError("it was started")
        await until(lambda: children(str(server_of(process))) == {parent(process.pid)})


async def test_only_so_many_wait(until: Until) -> None:
    async with shared_guardians(), sleeping() as process:
        server = str(server_of(process))
        everybody = set[int]()

        async def one(*, task_status: trio.TaskStatus[None]) -> None:
            async with sleeping() as process:
                everybody.add(parent(process.pid))
                task_status.started()
                await trio.sleep_forever()

        async with trio.open_nursery() as nursery:
            for _ in range(MOST_IDLE + 5):
                await nursery.start(one)
            nursery.cancel_scope.cancel()
        await until(lambda: len(children(server)) == 1 + MOST_IDLE)
        assert children(server) <= everybody | {parent(process.pid)}


async def test_of_too_many_that_wait_the_one_that_has_waited_longest_goes() -> None:
    """What was run last is the likeliest to be run again."""
    async with shared_guardians():
        for number in range(MOST_IDLE):
            await once(limits=Limits(LIMITS.memory, LIMITS.file_size + number))
        last = await once()
        assert await once() == last


async def test_nobody_waits_after_the_block() -> None:
    async with shared_guardians():
        guardian = await once()
        assert running(guardian)
    assert not alive(guardian)


async def test_one_that_was_killed_is_not_missed(
    until: Until, caplog: pytest.LogCaptureFixture
) -> None:
    async with shared_guardians():
        guardian = await once()
        os.kill(guardian, signal.SIGKILL)
        await until(lambda: not alive(guardian))
        assert await once() != guardian
    assert caplog.messages == []


async def test_one_that_is_stopped_is_killed_and_not_its_server(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, until: Until
) -> None:
    async with shared_guardians():
        async with sleeping() as process:
            guardian, server = parent(process.pid), server_of(process)
        os.kill(guardian, signal.SIGSTOP)
        with monkeypatch.context() as patch, trio.move_on_after(0.1) as patience:
            patch.setattr(guarded_module, "LEAVE_LIMIT", 0.1)
            async with sleeping():
                raise AssertionError("it was started")
        assert patience.cancelled_caught
        await until(lambda: not alive(guardian))
        async with sleeping() as process:
            assert server_of(process) == server
    assert caplog.messages == ["sleep: its guardian does not end and is killed"]


async def test_one_that_dies_with_an_order_is_told(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """It was killed in the moment in which it was asked."""
    async with shared_guardians():
        guardian = await once()
        os.kill(guardian, signal.SIGSTOP)

        async def kill() -> None:
            await trio.testing.wait_all_tasks_blocked()
            os.kill(guardian, signal.SIGKILL)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(kill)
            with pytest.raises(ChildProcessError, match="its guardian died before the start"):
                await once()
        assert await once() != guardian
    assert caplog.messages == []


async def test_one_that_cannot_be_asked_is_let_go(
    monkeypatch: pytest.MonkeyPatch, until: Until
) -> None:
    def too_many(*_: object) -> None:
        raise OSError(errno.ETOOMANYREFS, os.strerror(errno.ETOOMANYREFS))

    async with shared_guardians():
        guardian = await once()
        with monkeypatch.context() as patch:
            patch.setattr(guardians_module, "hand_over", too_many)
            with pytest.raises(OSError, match="Too many references"):
                await once()
        await until(lambda: not alive(guardian))
        assert await once() != guardian


async def test_without_its_server_it_does_nothing_else(until: Until) -> None:
    """Nobody would end what it leaves when it is killed."""
    async with shared_guardians():
        async with sleeping() as process:
            guardian, server = parent(process.pid), server_of(process)
        os.kill(server, signal.SIGKILL)
        await until(lambda: parent(guardian) != server)
        heir = parent(guardian)  # now: the next start is its end
        async with sleeping() as process:
            assert server_of(process) not in (server, heir)
            await until(lambda: not running(guardian))


BRIEF = """
import sys
sys.path.append(sys.argv[1])
from processes import fork_server, guardian
fork_server.IDLE_LIMIT = 0.01
fork_server.serve(int(sys.argv[2]), guardian.main)
"""


async def test_it_does_not_wait_for_ever(monkeypatch: pytest.MonkeyPatch, until: Until) -> None:
    monkeypatch.setattr(guardians_module, "RUN_SERVER", BRIEF)
    async with shared_guardians():
        guardian = await once()
        await until(lambda: not alive(guardian))
        async with sleeping() as process:
            assert parent(process.pid) != guardian


def test_who_asks_in_the_moment_in_which_it_stops_waiting_is_heard_or_told() -> None:
    """There is no third: an order that is neither done nor refused."""
    theirs, ours = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)

    class JustInTime:
        def __getattr__(self, name: str) -> Any:
            return getattr(theirs, name)

        def shutdown(self, how: int) -> None:
            guardians_module.hand_over(ours, [theirs.fileno()])
            theirs.shutdown(how)

    asked: Any = JustInTime()
    with theirs, ours, pytest.MonkeyPatch.context() as patch:
        patch.setattr(fork_server, "IDLE_LIMIT", 0.0)
        received = fork_server.receive_in_time(asked)
        assert received is not None
        (descriptor,) = received
        os.close(descriptor)
        with pytest.raises(BrokenPipeError):
            guardians_module.hand_over(ours, [theirs.fileno()])
        assert fork_server.receive_in_time(theirs) is None
