"""How a worker ends or is stopped: its outcome is told, and nothing of it is left."""

from __future__ import annotations

import os
import re
import signal
import sys
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager

import pytest
import trio

from smartlinkd.crews.outcome import ExitReason, silent_exit
from smartlinkd.crews.protocol import MAX_LINE, Failed, Inputs, Result
from smartlinkd.crews.worker import Stopped, Worker
from smartlinkd.processes.process_tree import ExitStatus
from tests.processes.family import alive, parent

Begin = Callable[..., AbstractAsyncContextManager[Worker]]
Until = Callable[[Callable[[], bool]], Awaitable[None]]
pytestmark = pytest.mark.usefixtures("nothing_left")
MIB = 2**20
SHELL = """
say() { printf '%s\\n' "$1" >&3; }
done='{"type":"result","output":"done"}'
say '{"type":"started"}'
"""


def shell(script: str) -> tuple[str, ...]:
    """A worker that says `started` and runs the script."""
    return ("/bin/sh", "-c", SHELL + script)


def python(program: str) -> tuple[str, ...]:
    return (sys.executable, "-I", "-S", "-c", program)


async def end(worker: Worker) -> ExitReason:
    with trio.fail_after(10):
        return await worker.exit_reason()


async def crash(worker: Worker) -> str:
    """Return the error of a worker that crashes."""
    reason = await end(worker)
    assert isinstance(reason, Failed)
    return reason.error


@pytest.mark.parametrize("after", ["", "exit 7", "kill -9 $$", "kill -SEGV $$"])
async def test_result_stands_however_the_worker_ends(begin: Begin, after: str) -> None:
    async with begin(*shell(f'say "$done"; {after}')) as worker:
        assert await end(worker) == Result(output="done")


async def test_failed_message_is_the_exit_reason(begin: Begin) -> None:
    async with begin(*shell("""say '{"type":"failed","error":"no luck"}'; exit 1""")) as worker:
        assert await end(worker) == Failed(error="no luck")


async def test_worker_that_lingers_after_its_result_is_killed_after_its_grace(
    begin: Begin, caplog: pytest.LogCaptureFixture
) -> None:
    async with begin(*shell('say "$done"; sleep 1000'), grace=0.1) as worker:
        await end(worker)
        with trio.fail_after(10):
            await worker.drain()
    assert "does not end within 0.1 s of its last message, and is killed" in caplog.text


@pytest.mark.parametrize(
    "more", ['say "$done"', """say '{"type":"failed","error":"x"}'""", "say x", "printf x >&3"]
)
async def test_result_stands_with_more_after_it(
    begin: Begin, caplog: pytest.LogCaptureFixture, more: str
) -> None:
    async with begin(*shell(f'say "$done"; {more}')) as worker:
        assert await end(worker) == Result(output="done")
        await worker.drain()
        assert await end(worker) == Result(output="done")
    assert "says more after its last message" in caplog.text


async def test_exit_without_a_result_has_its_code_and_last_words(begin: Begin) -> None:
    async with begin(*shell("echo first >&2; echo last >&2; exit 3")) as worker:
        assert await crash(worker) == (
            "the worker exited with code 3 without a result; its last words: last"
        )


async def test_worker_killed_by_a_foreign_signal_has_that_signal_as_its_end(begin: Begin) -> None:
    async with begin(*shell("sleep 1000")) as worker:
        await anext(worker.channel)
        os.kill(worker.pid, signal.SIGSEGV)
        assert "the worker was ended by signal 11 " in await crash(worker)


async def test_end_of_a_worker_whose_reaper_is_killed_is_unknown(
    begin: Begin, caplog: pytest.LogCaptureFixture
) -> None:
    async with begin(*shell("exec sleep 1000")) as worker:
        os.kill(parent(worker.pid), signal.SIGKILL)
        assert await crash(worker) == "the worker may still be running: its guardian was killed"
    assert "its guardian was killed" in caplog.text


async def test_worker_whose_child_uses_too_much_memory_is_ended(begin: Begin) -> None:
    program = f"x = bytearray({150 * MIB}); import time; time.sleep(1000)"
    script = f'{sys.executable} -I -S -c "{program}"; exit 0'
    async with begin(*shell(script), memory=50 * MIB) as worker:
        assert "of memory, and its crew may use 50.0 MiB (memory)" in await crash(worker)


TYPE_IS_KEY = """
import json, os, socket
line = socket.socket(fileno=3)
line.sendall(json.dumps({"type": os.environ["KEY"]}).encode() + b"\\n")
line.recv(1000)
"""


@pytest.mark.parametrize(
    ("command", "value", "error"),
    [
        (
            shell('say "{\\"type\\":\\"$KEY\\"}"; sleep 1000'),
            "sk-12345",
            r'a message has an unknown type.*\. It sent: {"type":"\[KEY\]"}',
        ),
        (python(TYPE_IS_KEY), 'Mật"khẩu"', r'.*\. It sent: {"type": "\[KEY\]"}'),
        (
            python("import os; os.write(3, os.environ['KEY'].encode())"),
            "sk-12345",
            r"its last line has no newline\. It sent: \[KEY\]",
        ),
    ],
    ids=["broken line", "escaped by JSON", "half a line"],
)
async def test_quote_hides_the_values_of_the_environment(
    begin: Begin, command: tuple[str, ...], value: str, error: str
) -> None:
    async with begin(*command, environment={"KEY": value}) as worker:
        said = await crash(worker)
    assert re.fullmatch(f"the worker broke the protocol: {error}", said)


async def test_value_at_the_edge_of_the_kept_output_is_not_shown_in_part(begin: Begin) -> None:
    script = """printf '%s%*s' "$KEY" 65526 x >&2; exit 4"""
    async with begin(*shell(script), environment={"KEY": "0123456789" * 2}) as worker:
        await end(worker)
        assert len(worker.stderr_tail) > 65000
        assert set(worker.stderr_tail) == set("… x")


async def test_value_at_the_edge_of_the_quote_is_not_shown_in_part(begin: Begin) -> None:
    command = shell('say "$(printf %190s)$KEY"; sleep 1000')
    async with begin(*command, environment={"KEY": "0123456789" * 10}) as worker:
        error = await crash(worker)
    assert "0123" not in error


async def test_line_without_end_breaks_the_protocol(begin: Begin) -> None:
    async with begin(*shell("yes 0123456789 | tr -d '\\n' >&3")) as worker:
        error = await crash(worker)
    assert f"a line may have {MAX_LINE} bytes, this has more. It sent: 01234567890123" in error
    assert len(error) < 400


async def test_last_line_without_newline_breaks_the_protocol(begin: Begin) -> None:
    async with begin(*shell('printf %s "$done" >&3')) as worker:
        assert (await crash(worker)).endswith(
            'its last line has no newline. It sent: {"type":"result","output":"done"}'
        )


async def test_worker_that_closes_its_descriptor_and_runs_on_breaks_the_protocol(
    begin: Begin,
) -> None:
    async with begin(*shell("exec 3>&-; sleep 1000"), grace=0.1) as worker:
        assert await crash(worker) == (
            "the worker broke the protocol: it closed its descriptor without `result` or `failed` "
            "and runs on"
        )


async def test_worker_that_says_too_much_breaks_the_protocol(begin: Begin) -> None:
    script = 'while :; do say \'{"type":"step"}\'; done'
    async with begin(*shell(script), max_output=1000) as worker:
        error = await crash(worker)
    assert "1000 bytes in all" in error


@pytest.mark.parametrize(
    ("status", "error"),
    [
        (ExitStatus(code=0), "the worker exited with code 0 without a result; its last words: oh"),
        (
            ExitStatus(code=137),
            "the worker exited with code 137 (a shell's word for a program ended by signal 9 "
            "(Killed)) without a result; its last words: oh",
        ),
        (
            ExitStatus(signal=signal.SIGSEGV),
            "the worker was ended by signal 11 (Segmentation fault); its last words: oh",
        ),
        (
            ExitStatus(),
            "the worker may still be running: its guardian was killed; its last words: oh",
        ),
        (
            ExitStatus(signal=signal.SIGKILL),
            "the worker was ended by signal 9 (Killed), which this daemon did not send: somebody "
            "else did, or the host itself was out of memory (then the kernel's log says so); its "
            "last words: oh",
        ),
        (
            ExitStatus(signal=signal.SIGKILL, memory=300 * MIB),
            "the worker was ended because it used 300.0 MiB of memory, and its crew may use "
            "256.0 MiB (memory)",
        ),
    ],
)
def test_silent_exit_has_its_error_text(status: ExitStatus, error: str) -> None:
    ended = silent_exit(status, unfinished="", stderr="oh", memory_limit=256 * MIB)
    assert ended.error == error


@pytest.mark.parametrize(
    ("stderr", "last_words"),
    [
        ("", ""),
        ("\n \n", ""),
        ("Traceback\n  in x\nKeyError: 'x'\n\n", "KeyError: 'x'"),
        ("\x1b[31mred\x07\n", "\\x1b[31mred\\x07"),
        ("x" * 301, "x" * 300 + "…"),
    ],
)
def test_last_words_are_one_short_printable_line(stderr: str, last_words: str) -> None:
    ended = silent_exit(ExitStatus(code=1), unfinished="", stderr=stderr, memory_limit=1)
    assert ended.error.partition("; its last words: ")[2] == last_words


# A child, a child in a session of its own, and one whose parent has gone; none minds SIGTERM.
FAMILY = """
trap '' TERM
sleep 1000 & echo $!
setsid sh -c 'echo $$; exec sleep 1000' &
( setsid sh -c 'sh -c "echo \\$\\$; exec sleep 1000" & ' & )
while :; do sleep 1000; done
"""


def family(worker: Worker) -> list[int]:
    return [int(word) for word in worker.stdout_tail.split()]


async def test_worker_that_reads_stop_ends_without_a_signal(begin: Begin) -> None:
    script = 'read -r inputs <&3; read -r line <&3; echo "$line"'
    async with begin(*shell(script)) as worker:
        assert await worker.stop() == Stopped.WITHOUT_SIGNAL
        assert worker.stdout_tail == '{"type":"stop"}\n'


async def test_worker_that_ignores_sigterm_is_killed_within_its_grace(
    begin: Begin, until: Until, caplog: pytest.LogCaptureFixture
) -> None:
    async with begin(*shell(FAMILY), grace=0.3) as worker:
        await until(lambda: len(family(worker)) == 3)
        with trio.fail_after(3):
            assert await worker.stop() == Stopped.BY_SIGKILL
        await until(lambda: not any(alive(pid) for pid in [worker.pid, *family(worker)]))
    assert "ignores SIGTERM and is killed" in caplog.text


async def test_worker_that_has_not_read_its_inputs_can_be_stopped(begin: Begin) -> None:
    inputs = Inputs(inputs={"text": "x" * MAX_LINE})
    async with begin("/bin/sleep", "1000", inputs=inputs, grace=5.0) as worker:
        assert await worker.stop() == Stopped.BY_SIGTERM


async def test_worker_that_is_held_up_can_obey_stop(begin: Begin) -> None:
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


async def test_cancelled_stop_leaves_no_process(begin: Begin, until: Until) -> None:
    with trio.move_on_after(5) as scope:
        async with begin(*shell(FAMILY), grace=1000.0) as worker:
            await until(lambda: len(family(worker)) == 3)
            with trio.move_on_after(0.05) as patience:
                await worker.stop()
            assert patience.cancelled_caught
    assert not scope.cancelled_caught
    assert not any(alive(pid) for pid in [worker.pid, *family(worker)])


async def test_end_of_the_block_leaves_no_process(begin: Begin, until: Until) -> None:
    async with begin(*shell(FAMILY)) as worker:
        await until(lambda: len(family(worker)) == 3)
    assert not any(alive(pid) for pid in [worker.pid, *family(worker)])


@pytest.mark.parametrize("milliseconds", [0, 1, 3, 6, 10, 14, 18, 25, 40])
async def test_worker_cancelled_at_any_moment_leaves_nothing(
    begin: Begin, milliseconds: int
) -> None:
    # What must not be left is what the fixtures look for.
    inputs = Inputs(inputs={"text": "x" * MAX_LINE})
    with trio.move_on_after(milliseconds / 1000) as scope:
        async with begin(*shell(FAMILY), inputs=inputs) as worker:
            async for _ in worker.channel:
                pass
    assert scope.cancelled_caught
