"""How a worker ends or is stopped: its outcome is told, and nothing of it is left."""

from __future__ import annotations

import re
import signal
import sys

import pytest
import trio

from smartlinkd.crews.outcome import ExitReason, silent_exit
from smartlinkd.crews.protocol import MAX_LINE, Failed, Inputs, Result
from smartlinkd.crews.worker import Stopped, Worker
from smartlinkd.processes.process_tree import ExitStatus
from tests.crews.scripts import Begin, Until, python, shell
from tests.processes.family import alive

pytestmark = pytest.mark.usefixtures("nothing_left")
MIB = 2**20
BROKEN = "the worker broke the protocol: "


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


async def test_worker_whose_child_uses_too_much_memory_is_ended(begin: Begin) -> None:
    program = f"x = bytearray({150 * MIB}); import time; time.sleep(1000)"
    script = f'{sys.executable} -I -S -c "{program}"; exit 0'
    async with begin(*shell(script), memory=50 * MIB) as worker:
        assert "of memory, and its crew may use 50.0 MiB (memory)" in await crash(worker)


@pytest.mark.parametrize(
    ("command", "value", "error"),
    [
        (
            shell('say "{\\"type\\":\\"$KEY\\"}"; sleep 1000'),
            "sk-12345",
            BROKEN + r"""a line has an unknown 'type'.*\. It sent: {"type":"\[KEY\]"}""",
        ),
        (
            python('say(os.environ["KEY"]); hear()'),
            'Mật"khẩu"',
            BROKEN + r'.*\. It sent: {"type": "\[KEY\]"}',
        ),
        (
            python('say("started", **{os.environ["KEY"]: 1})'),
            "sk-12345",
            BROKEN + r'started\.\[KEY\]: is not a field here\. It sent: {.*"\[KEY\]": 1}',
        ),
        (
            shell('printf %s "$KEY" >&3'),
            "sk-12345",
            BROKEN + r"its last line has no newline\. It sent: \[KEY\]",
        ),
        (
            python('say("started"); say("failed", error="not with " + os.environ["KEY"])'),
            "sk-12345",
            r"not with \[KEY\]",
        ),
    ],
    ids=["broken line", "escaped by JSON", "name of a field", "half a line", "failed"],
)
async def test_quote_hides_the_values_of_the_environment(
    begin: Begin, command: tuple[str, ...], value: str, error: str
) -> None:
    async with begin(*command, environment={"KEY": value}) as worker:
        said = await crash(worker)
    assert re.fullmatch(error, said)


async def test_value_at_the_edge_of_the_kept_output_is_not_shown_in_part(begin: Begin) -> None:
    script = """printf '%s%*s' "$KEY" 65526 x >&2; exit 4"""
    async with begin(*shell(script), environment={"KEY": "0123456789" * 2}) as worker:
        await end(worker)
        assert len(worker.stderr_tail) > 65000
        assert set(worker.stderr_tail) == set("… x")


async def test_value_at_the_edge_of_the_quote_is_not_shown_in_part(begin: Begin) -> None:
    command = shell('say "$(printf %290s)$KEY"; sleep 1000')
    async with begin(*command, environment={"KEY": "0123456789" * 10}) as worker:
        error = await crash(worker)
    assert "0123" not in error


async def test_worker_that_closes_its_descriptor_and_runs_on_breaks_the_protocol(
    begin: Begin,
) -> None:
    async with begin(*shell("exec 3>&-; sleep 1000"), grace=0.1) as worker:
        assert await crash(worker) == (
            "the worker broke the protocol: it closed its descriptor without `result` or `failed` "
            "and runs on"
        )


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
            "the worker may still be running: its reaper was killed; its last words: oh",
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
        ("x" * 301, "x" * 300 + "… (301 characters)"),
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
hear()
for n in range(100):
    line.write(b"x" * 50_000)
line.flush()
assert hear() == {"type": "stop"}
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
