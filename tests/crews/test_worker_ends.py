"""How a worker ends, and that what is told of it is true."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager

import pytest
import trio

from smartlinkd.crews.outcome import (
    ExitedWithoutResult,
    ExitReason,
    KilledBySignal,
    OutOfMemory,
    OutOfSight,
    ProtocolBroken,
    silent_exit,
)
from smartlinkd.crews.protocol import MAX_LINE, Failed, Result
from smartlinkd.crews.worker import Worker
from smartlinkd.processes.process_tree import ExitStatus
from tests.processes.family import parent, stat

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


# What it says of its end


@pytest.mark.parametrize("after", ["", "exit 7", "kill -9 $$", "kill -SEGV $$"])
async def test_its_result_stands_whatever_becomes_of_it(begin: Begin, after: str) -> None:
    async with begin(*shell(f'say "$done"; {after}')) as worker:
        assert await end(worker) == Result(output="done")


async def test_its_own_failure_is_told(begin: Begin) -> None:
    async with begin(*shell("""say '{"type":"failed","error":"no luck"}'; exit 1""")) as worker:
        assert await end(worker) == Failed(error="no luck")


async def test_the_end_is_told_as_often_as_it_is_asked_for(begin: Begin) -> None:
    async with begin(*shell('say "$done"')) as worker:
        assert await end(worker) == await end(worker) == Result(output="done")


async def test_its_result_is_its_end_while_it_lingers(begin: Begin) -> None:
    async with begin(*shell('say "$done"; sleep 1000'), grace=1000) as worker:
        assert await end(worker) == Result(output="done")


async def test_one_that_lingers_has_its_grace_to_leave(
    begin: Begin, caplog: pytest.LogCaptureFixture
) -> None:
    async with begin(*shell('say "$done"; sleep 1000'), grace=0.1) as worker:
        await end(worker)
        with trio.fail_after(10):
            await worker.drain()
    assert "does not end within 0.1 s of its last message, and is killed" in caplog.text


@pytest.mark.parametrize("script", ["say x; sleep 1000", "exec 3>&-; sleep 1000"])
async def test_one_that_has_said_nothing_of_its_end_is_given_no_more_time(
    begin: Begin, script: str
) -> None:
    async with begin(*shell(script), grace=0.1) as worker:
        assert isinstance(await end(worker), ProtocolBroken)
        with trio.fail_after(0):
            await worker.drain()


async def test_one_that_reads_on_after_its_result_sees_that_it_may_go(begin: Begin) -> None:
    async with begin(*shell('say "$done"; cat <&3 >/dev/null; echo bye'), grace=5) as worker:
        assert await end(worker) == Result(output="done")
        await worker.drain()
        assert worker.stdout_tail == "bye\n"


@pytest.mark.parametrize(
    "more", ['say "$done"', """say '{"type":"failed","error":"x"}'""", "say x", "printf x >&3"]
)
async def test_a_result_stands_with_more_after_it(
    begin: Begin, caplog: pytest.LogCaptureFixture, more: str
) -> None:
    async with begin(*shell(f'say "$done"; {more}')) as worker:
        assert await end(worker) == Result(output="done")
        await worker.drain()
        assert await end(worker) == Result(output="done")
    assert "says more after its last message" in caplog.text


# What its process tells


@pytest.mark.parametrize("code", [0, 1, 3])
async def test_an_exit_without_a_result(begin: Begin, code: int) -> None:
    async with begin(*shell(f"echo first >&2; echo last >&2; exit {code}")) as worker:
        assert await end(worker) == ExitedWithoutResult(code, "last")


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGSEGV])
async def test_a_signal_of_somebody_elses(begin: Begin, number: signal.Signals) -> None:
    async with begin(*shell("sleep 1000")) as worker:
        await anext(worker.messages)
        os.kill(worker.pid, number)
        assert await end(worker) == KilledBySignal(number, "")


async def test_end_of_a_killed_reapers_worker_is_unknown(
    begin: Begin, caplog: pytest.LogCaptureFixture
) -> None:
    async with begin(*shell("exec sleep 1000")) as worker:
        os.kill(parent(worker.pid), signal.SIGKILL)
        assert await end(worker) == OutOfSight("")
    assert "its guardian was killed" in caplog.text


async def test_the_end_is_told_though_its_descriptor_is_open_elsewhere(
    begin: Begin, until: Until
) -> None:
    async with begin(*shell("sleep 1000 & echo $!; wait")) as worker:
        await until(lambda: worker.stdout_tail.endswith("\n"))
        reaper = parent(worker.pid)
        server = parent(reaper)
        # Who would end what a killed reaper leaves is kept from it; not while it still has the
        # descriptors that it has handed on, for then nobody's end of the connection would close.
        await until(lambda: stat(server)[0] == "S")
        os.kill(server, signal.SIGSTOP)
        try:
            os.kill(reaper, signal.SIGKILL)
            assert await end(worker) == OutOfSight("")
        finally:
            os.kill(server, signal.SIGCONT)


async def test_too_much_memory(begin: Begin) -> None:
    program = f"x = bytearray({150 * MIB}); import time; time.sleep(1000)"
    async with begin(*python(program), memory=50 * MIB) as worker:
        ended = await end(worker)
    assert isinstance(ended, OutOfMemory)
    assert ended.limit == 50 * MIB
    assert ended.used > ended.limit


async def test_too_much_memory_in_a_child(begin: Begin) -> None:
    program = f"x = bytearray({150 * MIB}); import time; time.sleep(1000)"
    script = f'{sys.executable} -I -S -c "{program}"; exit 0'
    async with begin(*shell(script), memory=50 * MIB) as worker:
        assert isinstance(await end(worker), OutOfMemory)


# What breaks the protocol


async def test_what_it_sent_is_quoted_without_the_values_of_its_environment(begin: Begin) -> None:
    command = shell('say "{\\"type\\":\\"$KEY\\"}"; sleep 1000')
    async with begin(*command, environment={"KEY": "sk-12345"}) as worker:
        ended = await end(worker)
    assert isinstance(ended, ProtocolBroken)
    assert ended.reason.startswith("a message has an unknown type")
    assert ended.quote == '{"type":"[KEY]"}'


async def test_a_value_is_hidden_as_json_has_it_too(begin: Begin) -> None:
    program = """
import json, os, socket
line = socket.socket(fileno=3)
line.sendall(json.dumps({"type": os.environ["KEY"]}).encode() + b"\\n")
line.recv(1000)
"""
    async with begin(*python(program), environment={"KEY": 'Mật"khẩu"'}) as worker:
        ended = await end(worker)
    assert isinstance(ended, ProtocolBroken)
    assert ended.quote == '{"type": "[KEY]"}'


async def test_a_value_is_hidden_in_half_a_line_too(begin: Begin) -> None:
    program = "import os; os.write(3, os.environ['KEY'].encode())"
    async with begin(*python(program), environment={"KEY": "sk-12345"}) as worker:
        assert await end(worker) == ProtocolBroken("its last line has no newline", "[KEY]")


async def test_a_value_at_the_edge_of_the_last_words_is_not_shown_in_part(begin: Begin) -> None:
    script = """printf '%s%*s' "$KEY" 65526 x >&2; exit 4"""
    async with begin(*shell(script), environment={"KEY": "0123456789" * 2}) as worker:
        await end(worker)
        assert len(worker.stderr_tail) > 65000
        assert set(worker.stderr_tail) == set("… x")


async def test_a_value_at_the_edge_of_the_quote_is_not_shown_in_part(begin: Begin) -> None:
    command = shell('say "$(printf %190s)$KEY"; sleep 1000')
    async with begin(*command, environment={"KEY": "0123456789" * 10}) as worker:
        ended = await end(worker)
    assert isinstance(ended, ProtocolBroken)
    assert "0123" not in ended.quote


async def test_no_message_is_heard_after_a_fault(begin: Begin) -> None:
    script = """say x; say '{"type":"log","text":""}'; say "$done" """
    async with begin(*shell(script)) as worker:
        assert len([message async for message in worker.messages]) == 1
        assert isinstance(await end(worker), ProtocolBroken)


async def test_a_line_without_end_is_not_waited_for(begin: Begin) -> None:
    async with begin(*shell("yes 0123456789 | tr -d '\\n' >&3")) as worker:
        ended = await end(worker)
    assert isinstance(ended, ProtocolBroken)
    assert ended.reason == f"a line may have {MAX_LINE} bytes, this has more"
    assert ended.quote.startswith("01234567890123")
    assert len(ended.quote) < 300


async def test_a_last_line_without_newline_is_no_message(begin: Begin) -> None:
    async with begin(*shell('printf %s "$done" >&3')) as worker:
        assert await end(worker) == ProtocolBroken(
            "its last line has no newline", '{"type":"result","output":"done"}'
        )


async def test_a_crash_in_the_middle_of_a_line_is_told_as_a_crash(begin: Begin) -> None:
    async with begin(*shell("""printf '{"type":"resu' >&3; kill -9 $$""")) as worker:
        assert await end(worker) == KilledBySignal(signal.SIGKILL, "")


async def test_one_that_closes_its_end_and_runs_on(begin: Begin) -> None:
    async with begin(*shell("exec 3>&-; sleep 1000"), grace=0.1) as worker:
        assert await end(worker) == ProtocolBroken(
            "it closed its descriptor without `result` or `failed` and runs on", ""
        )


async def test_one_that_closes_its_end_and_leaves(begin: Begin) -> None:
    async with begin(*shell("exec 3>&-; exit 3")) as worker:
        assert await end(worker) == ExitedWithoutResult(3, "")


async def test_one_that_says_too_much(begin: Begin) -> None:
    script = 'while :; do say \'{"type":"step"}\'; done'
    async with begin(*shell(script), max_output=1000) as worker:
        ended = await end(worker)
    assert isinstance(ended, ProtocolBroken)
    assert "1000 bytes in all" in ended.reason


# The texts


@pytest.mark.parametrize(
    ("ended", "error"),
    [
        (
            ExitedWithoutResult(3, "KeyError: 'x'"),
            "the worker exited with code 3 without a result; its last words: KeyError: 'x'",
        ),
        (ExitedWithoutResult(0, ""), "the worker exited with code 0 without a result"),
        (
            ExitedWithoutResult(137, ""),
            "the worker exited with code 137 (a shell's word for a program ended by signal 9 "
            "(Killed)) without a result",
        ),
        (ExitedWithoutResult(255, ""), "the worker exited with code 255 without a result"),
        (
            KilledBySignal(signal.SIGSEGV, "oh"),
            "the worker was ended by signal 11 (Segmentation fault); its last words: oh",
        ),
        (
            OutOfSight("oh"),
            "the worker may still be running: its guardian was killed; its last words: oh",
        ),
        (
            KilledBySignal(signal.SIGKILL, ""),
            "the worker was ended by signal 9 (Killed), which this daemon did not send: somebody "
            "else did, or the host itself was out of memory (then the kernel's log says so)",
        ),
        (
            OutOfMemory(used=300 * MIB, limit=256 * MIB),
            "the worker was ended because it used 300.0 MiB of memory, and its crew may use "
            "256.0 MiB (memory)",
        ),
        (ProtocolBroken("no", ""), "the worker broke the protocol: no"),
        (ProtocolBroken("no", "x"), "the worker broke the protocol: no. It sent: x"),
    ],
)
def test_each_end_has_a_text_of_its_own(
    ended: ExitedWithoutResult | KilledBySignal | OutOfSight | OutOfMemory | ProtocolBroken,
    error: str,
) -> None:
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
    assert ended == ExitedWithoutResult(1, last_words)
