"""A worker at work: what it is given, what it says and is told, and what holds it up."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import trio

from smartlinkd.crews.protocol import MAX_LINE, Inputs, Log, Result, Started
from smartlinkd.crews.worker import CannotStart, Worker
from tests.crews.scripts import Begin, Until, python, shell

pytestmark = pytest.mark.usefixtures("nothing_left")
DONE = Result(output="done")


def finishing(script: str) -> tuple[str, ...]:
    """A worker that runs the script and says its result."""
    return shell(f'{script}\nsay "$done"')


async def output(worker: Worker) -> str:
    """Return the standard output of a worker that ends well."""
    with trio.fail_after(10):
        assert await worker.exit_reason() == DONE
        await worker.drain()
    return worker.stdout_tail


# What it is given


async def test_worker_environment_has_nothing_of_the_daemons(
    begin: Begin, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SMARTLINKD_SECRET", "secret")
    command = finishing("tr '\\0' '\\n' < /proc/$$/environ")
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
        *finishing('echo "$PATH $LANG"; echo "$HOME $TMPDIR $SMARTLINKD_FD"'),
        environment=configured,
    ) as worker:
        first, second = (await output(worker)).splitlines()
    assert first == "/mine /mine"
    assert "/mine" not in second


async def test_worker_folder_is_private_and_removed_with_it(begin: Begin, runs: Path) -> None:
    command = finishing('pwd; echo "$HOME"; stat -c %a .; ls -A; mkdir a; echo x > a/file')
    async with begin(*command) as worker:
        here, home, mode = (await output(worker)).split()
        assert here == home
        assert Path(here).parent == runs
        assert mode == "700"


async def test_worker_output_hides_the_values_of_its_environment(begin: Begin) -> None:
    command = finishing('set -x; : "$SHORT" "$KEY" "$LONGER"; echo "$KEY"')
    environment = {"KEY": "sk-12345", "LONGER": "sk-12345-and-more", "SHORT": "true"}
    async with begin(*command, environment=environment) as worker:
        assert await output(worker) == "[KEY]\n"
        assert worker.stderr_tail.startswith("+ : true [KEY] [LONGER]\n")


# What it says and is told


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
