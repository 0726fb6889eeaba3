"""A worker at work: what it is given, what it says and is told, and what holds it up."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import pytest
import trio

from smartlinkd.crews.protocol import (
    MAX_LINE,
    Inputs,
    Log,
    Result,
    Started,
    TaskCompleted,
    TaskStarted,
)
from smartlinkd.crews.worker import CannotStart, Worker, WorkerSettings

Begin = Callable[..., AbstractAsyncContextManager[Worker]]
Until = Callable[[Callable[[], bool]], Awaitable[None]]
pytestmark = pytest.mark.usefixtures("nothing_left")
DONE = Result(output="done")
SHELL = """
say() { printf '%s\\n' "$1" >&3; }
say '{"type":"started"}'
"""
SHELL_DONE = """
say '{"type":"result","output":"done"}'
"""
PYTHON = """
import json, os, socket, sys, time
line = socket.socket(fileno=int(os.environ["SMARTLINKD_FD"])).makefile("rwb")
def say(type, **fields):
    line.write(json.dumps({"type": type, **fields}).encode() + b"\\n")
    line.flush()
def hear():
    return json.loads(line.readline())
"""


def shell(script: str) -> tuple[str, ...]:
    """A worker that says `started`, runs the script and says a result."""
    return ("/bin/sh", "-c", SHELL + script + SHELL_DONE)


def python(program: str) -> tuple[str, ...]:
    return (sys.executable, "-I", "-S", "-c", PYTHON + program)


async def output(worker: Worker) -> str:
    """Return the standard output of a worker that ends well."""
    with trio.fail_after(10):
        assert await worker.exit_reason() == DONE
        await worker.drain()
    return worker.stdout_tail


# What it is given


async def test_worker_gets_its_inputs_first(begin: Begin) -> None:
    inputs = Inputs(inputs={"topic": "Chào"}, tools=("convert_links",))
    async with begin(*shell('read -r line <&3; echo "$line"'), inputs=inputs) as worker:
        assert json.loads(await output(worker)) == {
            "type": "inputs",
            "version": 1,
            "inputs": {"topic": "Chào"},
            "tools": ["convert_links"],
        }


async def test_worker_environment_has_nothing_of_the_daemons(
    begin: Begin, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SMARTLINKD_SECRET", "secret")
    command = shell("tr '\\0' '\\n' < /proc/$$/environ")
    async with begin(*command, environment={"KEY": "value"}) as worker:
        told = dict(line.split("=", 1) for line in (await output(worker)).splitlines())
    assert told.pop("HOME") == told.pop("TMPDIR")
    assert told == {
        "PATH": os.defpath,
        "LANG": "C.UTF-8",
        "KEY": "value",
        "SMARTLINKD_FD": "3",
        "SMARTLINKD_EXECUTION": "some-id",
    }


async def test_configured_environment_does_not_replace_the_daemons_own_variables(
    begin: Begin,
) -> None:
    configured = dict.fromkeys(("PATH", "LANG", "HOME", "TMPDIR", "SMARTLINKD_FD"), "/mine")
    async with begin(
        *shell('echo "$PATH $LANG"; echo "$HOME $TMPDIR $SMARTLINKD_FD"'), environment=configured
    ) as worker:
        first, second = (await output(worker)).splitlines()
    assert first == "/mine /mine"
    assert "/mine" not in second


async def test_worker_folder_is_private_and_removed_with_it(begin: Begin, runs: Path) -> None:
    command = shell('pwd; echo "$HOME"; stat -c %a .; ls -A; mkdir a; echo x > a/file')
    async with begin(*command) as worker:
        here, home, mode = (await output(worker)).split()
        assert here == home
        assert Path(here).parent == runs
        assert mode == "700"


async def test_worker_output_and_error_output_are_kept_apart(begin: Begin) -> None:
    async with begin(*shell("echo out; echo err >&2")) as worker:
        assert await output(worker) == "out\n"
        assert worker.stderr_tail == "err\n"


async def test_worker_output_hides_the_values_of_its_environment(begin: Begin) -> None:
    command = shell('set -x; : "$SHORT" "$KEY" "$LONGER"; echo "$KEY"')
    environment = {"KEY": "sk-12345", "LONGER": "sk-12345-and-more", "SHORT": "true"}
    async with begin(*command, environment=environment) as worker:
        assert await output(worker) == "[KEY]\n"
        assert worker.stderr_tail.startswith("+ : true [KEY] [LONGER]\n")


def test_repr_of_worker_settings_hides_the_environment() -> None:
    settings = WorkerSettings(("/bin/x",), {"KEY": "secret"}, memory=1)
    assert "secret" not in repr(settings)


# What it says and is told


async def test_worker_messages_come_in_order_without_the_last(begin: Begin) -> None:
    command = shell(
        """
        say '{"type":"task_started","task_id":"1"}'
        say '{"type":"task_completed","task_id":"1","output":"o"}'
        say '{"type":"log","text":"Chào"}'
        """
    )
    async with begin(*command) as worker:
        assert [message async for message in worker.channel] == [
            Started(),
            TaskStarted(task_id="1"),
            TaskCompleted(task_id="1", output="o"),
            Log(text="Chào"),
        ]
        assert await worker.exit_reason() == DONE


async def test_messages_of_a_dead_worker_are_still_read(begin: Begin, until: Until) -> None:
    program = 'say("started")\nfor n in range(100): say("log", text=str(n))\nos._exit(3)'
    async with begin(*python(program)) as worker:
        await until(lambda: not Path(f"/proc/{worker.pid}").exists())
        messages = [message async for message in worker.channel]
        assert messages == [Started(), *(Log(text=str(n)) for n in range(100))]


# What holds it up


async def test_large_inputs_reach_a_worker_that_speaks_first(begin: Begin) -> None:
    program = """
say("started")
for n in range(20): say("log", text="x" * 50_000)
say("result", output=str(len(hear()["inputs"]["text"])))
"""
    inputs = Inputs(inputs={"text": "x" * MAX_LINE})
    async with begin(*python(program), inputs=inputs) as worker:
        with trio.fail_after(10):
            assert await worker.exit_reason() == Result(output=str(MAX_LINE))


async def test_worker_that_nobody_reads_is_held_up(begin: Begin, until: Until) -> None:
    program = """
import select
say("started")
for n in range(100):
    if not select.select([], [3], [], 0.1)[1]:
        print(n, flush=True)
    say("log", text="x" * 60_000)
say("result", output="done")
"""
    async with begin(*python(program)) as worker:
        await until(lambda: worker.stdout_tail != "")
        # It said no more than the socket takes, which is a few hundred KiB.
        assert int(worker.stdout_tail.split()[0]) < 20
        with trio.fail_after(10):
            assert len([message async for message in worker.channel]) == 101
        assert await worker.exit_reason() == DONE


# What cannot be started


@pytest.mark.parametrize(
    ("command", "reason"),
    [
        ("/bin/no-such-program", "/bin/no-such-program: .* No such file"),
        ("no-such-program", "no-such-program: .* No such file"),
        ("/etc/passwd", "/etc/passwd: .* Permission denied"),
    ],
)
async def test_command_that_cannot_be_started_is_named(
    begin: Begin, command: str, reason: str
) -> None:
    with pytest.raises(CannotStart, match=reason):
        async with begin(command):
            raise AssertionError("it was started")


async def test_script_without_its_interpreter_is_named(begin: Begin, tmp_path: Path) -> None:
    script = tmp_path / "script"
    script.write_text("#!/no/such/sh\n")
    script.chmod(0o755)
    with pytest.raises(CannotStart, match=f"^{script}: what its first line .* is not there$"):
        async with begin(str(script)):
            raise AssertionError("it was started")
