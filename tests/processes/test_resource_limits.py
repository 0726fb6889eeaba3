"""A command's resource limits, its channel, its output and its signals."""

from __future__ import annotations

import resource
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest
import trio

import smartlinkd
from smartlinkd.processes.output import CUT, KEPT
from smartlinkd.processes.process_tree import ExitStatus
from smartlinkd.processes.reaper import LOOK_EVERY, OOM_SCORE, tree_of
from tests.processes.family import SLEEP, Until, parent, run, shell

MIB = 2**20

pytestmark = pytest.mark.usefixtures("nothing_left")


# Standard output


async def test_standard_output_is_kept_apart_from_standard_error() -> None:
    async with shell("yes 0123456 | head -c 1000000; printf THE-END; printf other >&2") as process:
        await process.wait()
        assert len(process.stdout_tail) == len(CUT) + KEPT
        assert process.stdout_tail.endswith("THE-END")
        assert process.stderr_tail == "other"


# Signals


async def test_terminate_signals_the_process_group_alone(until: Until) -> None:
    script = """
    trap '' TERM
    (trap 'echo group >&2; exit' TERM; echo . >&2; while :; do sleep 0.01; done) &
    setsid sh -c 'trap "echo other >&2" TERM; echo . >&2; while :; do sleep 0.01; done' &
    wait
    """
    async with shell(script) as process:
        await until(lambda: process.stderr_tail.count(".") == 2)
        process.terminate()
        await until(lambda: "group" in process.stderr_tail)
        assert process.status is None
        assert "other" not in process.stderr_tail


async def test_terminate_after_the_exit_is_harmless() -> None:
    async with run("/bin/true") as process:
        await process.wait()
        process.terminate()
    process.terminate()


# The channel


async def test_channel_is_descriptor_3_and_the_only_one() -> None:
    ours, theirs = socket.socketpair()
    script = "ls /proc/self/fd >&2; read -r line <&3; echo $line, too >&3"
    with ours, theirs:
        async with shell(script, channel=theirs.fileno()) as process:
            theirs.close()
            ours.send(b"hello\n")
            await process.wait()
            assert process.stderr_tail.split() == ["0", "1", "2", "3", "4"]  # 4 is the folder
            assert ours.recv(100) == b"hello, too\n"


# Limits


async def end_of(command: list[str], *, memory: int = 1024 * MIB) -> ExitStatus:
    async with run(*command, memory=memory, file_size=MIB) as process:
        with trio.fail_after(10):
            return await process.wait()


def python(program: str) -> list[str]:
    return [sys.executable, "-I", "-S", "-c", program]


async def test_memory_limit_is_of_the_whole_tree() -> None:
    one = f'{sys.executable} -I -S -c "x = bytearray({60 * MIB}); import time; time.sleep(1000)"'
    script = f"{one} & setsid {one} & wait"
    status = await end_of(["/bin/sh", "-c", script], memory=100 * MIB)
    assert status.memory is not None
    assert 100 * MIB < status.memory < 300 * MIB
    assert (status.code, status.signal) == (None, None)


async def test_memory_limit_holds_again_after_a_shortage_of_descriptors(until: Until) -> None:
    program = f"""
import signal, sys, time
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
print("there", file=sys.stderr, flush=True)
signal.sigwait([signal.SIGTERM])
x = bytearray({100 * MIB})
time.sleep(1000)
"""
    async with run(*python(program), memory=50 * MIB) as process:
        await until(lambda: "there" in process.stderr_tail)
        reaper = parent(process.pid)
        soft, hard = resource.prlimit(reaper, resource.RLIMIT_NOFILE)
        resource.prlimit(reaper, resource.RLIMIT_NOFILE, (3, hard))
        await trio.sleep(3 * LOOK_EVERY)
        assert process.status is None
        resource.prlimit(reaper, resource.RLIMIT_NOFILE, (soft, hard))
        process.terminate()
        with trio.fail_after(10):
            assert (await process.wait()).memory is not None


async def test_shared_memory_counts_once() -> None:
    program = f"""
import os, sys, time
x = bytearray({60 * MIB})
for _ in range(4):
    if os.fork() == 0:
        time.sleep(1000)
print("there", file=sys.stderr, flush=True)
time.sleep(0.5)  # for some looks at what it uses
"""
    assert await end_of(python(program), memory=150 * MIB) == ExitStatus(0)


async def test_unused_addresses_and_stacks_do_not_count() -> None:
    program = f"""
import mmap, threading, time
reserved = mmap.mmap(-1, {8192 * MIB})
threads = [threading.Thread(target=time.sleep, args=(0.3,)) for _ in range(64)]
for thread in threads:
    thread.start()
"""
    assert await end_of(python(program), memory=60 * MIB) == ExitStatus(0)


async def test_file_cannot_grow_over_its_limit(open_folder: Path) -> None:
    file = open_folder / "file"
    status = await end_of(["/usr/bin/dd", "if=/dev/zero", f"of={file}", "bs=300k", "count=10"])
    assert status == ExitStatus(signal=signal.SIGXFSZ)
    assert file.stat().st_size == MIB


CORES = """
import resource, sys, trio
from pathlib import Path
from smartlinkd.processes.process_tree import run_process_tree

hard = int(sys.argv[1])
resource.setrlimit(resource.RLIMIT_CORE, (0, hard))

async def main():
    async with run_process_tree(
        ["/bin/cat", "/proc/self/limits"], environment={}, working_folder=Path("/")
    ) as process:
        await process.wait()
    print(process.stdout_tail)

trio.run(main)
"""


@pytest.mark.parametrize(("hard", "then"), [(1, "1"), (0, "0")])
def test_core_is_neither_written_nor_piped_to_a_program(hard: int, then: str) -> None:
    """A hard limit of 0 cannot be raised, and allows no pipe where a file is made."""
    if hard > resource.getrlimit(resource.RLIMIT_CORE)[1] >= 0:
        pytest.skip("no limit but 0 can be set here")
    told = subprocess.run(
        [sys.executable, "-c", CORES, str(hard)],
        cwd=Path(smartlinkd.__file__).parents[1],
        stdout=subprocess.PIPE,
        check=True,
        text=True,
        timeout=20,
    )
    name = "Max core file size"
    line = next(line for line in told.stdout.splitlines() if line.startswith(name))
    assert line.removeprefix(name).split()[:2] == [then, then]


def badness(pid: int | None = None) -> int:
    path = Path("/proc", "self" if pid is None else str(pid), "oom_score_adj")
    return int(path.read_text(encoding="ascii"))


async def test_oom_score_of_a_limited_command_is_above_its_reapers_and_the_daemons() -> None:
    async with run(*SLEEP, memory=1024 * MIB) as process:
        assert badness(process.pid) == min(1000, badness() + OOM_SCORE)
        assert badness(parent(process.pid)) == badness()


_THREADS_THAT_END = """
import subprocess, threading, time
for number in range(400):
    threading.Thread(target=time.sleep, args=(0.5 + number / 200,), daemon=True).start()
def keep_child():
    child = subprocess.Popen(["/bin/cat"], stdin=subprocess.PIPE)
    print(child.pid, flush=True)
    child.wait()
threading.Thread(target=keep_child).start()
"""


def test_tree_has_a_child_whose_parent_loses_other_threads_meanwhile() -> None:
    words = [sys.executable, "-c", _THREADS_THAT_END]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as parent_process:
        assert parent_process.stdout is not None
        try:
            child = int(parent_process.stdout.readline())
            threads = Path(f"/proc/{parent_process.pid}/task")
            looks = [tree_of([parent_process.pid])]
            while len(list(threads.iterdir())) > 2:
                looks.append(tree_of([parent_process.pid]))
        finally:
            parent_process.kill()
    # The kernel may end a listing at a thread that ends in this very moment, which is rare.
    assert sum(child not in look for look in looks) <= len(looks) // 500
