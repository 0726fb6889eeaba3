"""A process tree: its reports, what its command gets, and that nothing of it is left."""

from __future__ import annotations

import errno
import os
import pwd
import signal
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from smartlinkd.processes.process_tree import ExitStatus, ProcessTree
from tests.processes.family import SLEEP, Until, alive, is_there, parent, run, shell

pytestmark = pytest.mark.usefixtures("nothing_left")
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can drop to a user")

# A child, a child in a session of its own, and one whose parent has gone: each tells its number.
FAMILY = """
sleep 1000 & echo $! >&2
setsid sh -c 'echo $$ >&2; exec sleep 1000' &
( setsid sh -c 'sh -c "echo \\$\\$ >&2; exec sleep 1000" & ' & )
exec sleep 1000
"""


def numbers(process: ProcessTree) -> list[int]:
    return [int(word) for word in process.stderr_tail.split()]


@asynccontextmanager
async def family(until: Until, **options: Any) -> AsyncIterator[tuple[ProcessTree, list[int]]]:
    """A command whose children all run, and their ids with its own."""
    async with shell(FAMILY, **options) as process:
        await until(lambda: len(numbers(process)) == 3)
        pids = [process.pid, *numbers(process)]
        assert all(map(alive, pids))
        yield process, pids


async def output(script: str, **options: Any) -> str:
    """Return what a shell script writes to standard error."""
    async with shell(script, **options) as process:
        await process.wait()
        return process.stderr_tail


@pytest.mark.parametrize(
    ("script", "status"),
    [
        ("exit 0", ExitStatus(code=0)),
        ("exit 7", ExitStatus(code=7)),
        ("kill -TERM $$", ExitStatus(signal=signal.SIGTERM)),
    ],
)
async def test_exit_status_is_reported(script: str, status: ExitStatus) -> None:
    async with shell(script) as process:
        assert await process.wait() == status


async def test_on_exit_is_called_before_waiting_tasks_go_on() -> None:
    calls: list[str] = []
    async with run("/bin/true", on_exit=lambda: calls.append("called")) as tree:
        await tree.wait()
        assert calls == ["called"]


@pytest.mark.parametrize(
    ("status", "text"),
    [
        (ExitStatus(code=3), "exit code 3"),
        (ExitStatus(signal=9), "signal 9 (Killed)"),
        (ExitStatus(memory=300 * 2**20), "its memory limit: it used 300 MiB"),
        (ExitStatus(), "an unknown status: its reaper was killed"),
    ],
)
def test_exit_status_has_a_text(status: ExitStatus, text: str) -> None:
    assert str(status) == text


async def test_program_is_searched_in_the_commands_own_path(
    open_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first there that can be run, as a shell does it."""
    folders = [open_folder / name for name in ("without", "not-to-be-run", "first", "second")]
    for folder in folders:
        folder.mkdir()
    for folder, mode in zip(folders[1:], (0o644, 0o755, 0o755), strict=True):
        (folder / "tool").write_text(f"#!/bin/sh\necho {folder.name} $0 >&2\n")
        (folder / "tool").chmod(mode)
    monkeypatch.setenv("PATH", str(folders[3]))
    async with run("tool", environment={"PATH": ":".join(map(str, folders))}) as process:
        await process.wait()
        assert process.stderr_tail == f"first {folders[2]}/tool\n"
    for where, fault in (folders[1], PermissionError), (folders[0], FileNotFoundError):
        with pytest.raises(fault, match="'tool'"):
            async with run("tool", environment={"PATH": str(where)}):
                raise AssertionError("it was started")


async def test_command_gets_no_descriptor_of_the_daemons_and_leads_a_session() -> None:
    told = await output("cut -d' ' -f6 /proc/$$/stat >&2; echo $$ >&2; exec ls /proc/self/fd >&2")
    session, pid, *open_ones = told.split()
    assert session == pid
    assert open_ones == ["0", "1", "2", "3"]  # the last is the folder that ls reads


@pytest.fixture
def hangups_are_ignored() -> Iterator[None]:
    """As under nohup."""
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    yield
    signal.signal(signal.SIGHUP, before)


@pytest.mark.usefixtures("hangups_are_ignored")
async def test_command_has_no_signal_blocked_or_ignored() -> None:
    told = await output("exec grep -E 'Sig(Blk|Ign)' /proc/self/status >&2")
    blocked, ignored = (int(word, 16) for word in told.split()[1::2])
    # The C library's own two, which no program can name, are left ignored by its posix_spawn(3).
    of_the_c_library = 1 << 32 - 1 | 1 << 33 - 1
    assert (blocked, ignored & ~of_the_c_library) == (0, 0)


async def test_command_cannot_gain_privileges() -> None:
    assert (await output("grep NoNewPrivs /proc/$$/status >&2")).split() == ["NoNewPrivs:", "1"]


@as_root
async def test_command_drops_to_its_user_without_groups() -> None:
    nobody = pwd.getpwnam("nobody")
    told = await output(
        "grep -E '^(Uid|Gid|Groups|CapPrm|CapEff):' /proc/self/status >&2", user=nobody
    )
    parts = [line.partition(":") for line in told.splitlines()]
    what = {name: words.split() for name, _, words in parts}
    # The real one, the effective one, the saved one, and that for files.
    assert what.pop("Uid") == [str(nobody.pw_uid)] * 4
    assert what.pop("Gid") == [str(nobody.pw_gid)] * 4
    assert what.pop("Groups") == []
    assert what == {"CapPrm": ["0" * 16], "CapEff": ["0" * 16]}


async def test_whole_tree_is_gone_after_the_block(until: Until) -> None:
    async with family(until) as (_, pids):
        pass
    assert not any(map(alive, pids))


async def test_exit_of_the_command_ends_its_tree(until: Until) -> None:
    async with family(until) as (process, pids):
        process.kill()
        await until(lambda: not any(map(alive, pids)))


async def test_orphans_are_reaped_while_the_command_runs(until: Until) -> None:
    async with shell("(sh -c 'echo $$ >&2' &); sleep 1000") as process:
        await until(lambda: len(numbers(process)) == 1)
        await until(lambda: not alive(numbers(process)[0]))
        assert process.status is None


async def test_error_of_the_block_leaves_it_bare_and_no_process() -> None:
    with pytest.raises(KeyError, match="mine"):
        async with run(*SLEEP) as process:
            raise KeyError("mine")
    assert not alive(process.pid)


async def test_folder_is_removed_and_targets_of_links_stay(its_folder: Path) -> None:
    other = its_folder.with_name("other")
    (its_folder / "a" / "b").mkdir(parents=True)
    (its_folder / "a" / "file").write_text("x")
    other.mkdir()
    (other / "precious").write_text("x")
    (its_folder / "a" / "link").symlink_to(other)
    (its_folder / "dangling").symlink_to("nowhere")
    command = "echo x > made-by-it; exec sleep 1000"
    async with shell(command, working_folder=its_folder, remove=its_folder):
        pass
    assert [entry.name for entry in os.scandir(other.parent)] == ["other"]
    assert (other / "precious").exists()


@pytest.mark.parametrize(
    ("command", "options", "fault", "number"),
    [
        (["/bin/no-such-program"], {}, "no-such-program", errno.ENOENT),
        (["/etc/passwd"], {}, "passwd", errno.EACCES),
        (SLEEP, {"working_folder": Path("/no/such")}, None, errno.ENOENT),
        (["/bin/true", "\ud800"], {}, "surrogates", None),  # UnicodeEncodeError
        (["/bin/true", "a\0b"], {}, None, errno.EINVAL),
        ([""], {}, None, errno.EINVAL),
    ],
    ids=["no program", "not executable", "no working folder", "half a character", "NUL", "empty"],
)
async def test_command_that_cannot_be_executed_is_an_error_and_its_folder_goes(
    *,
    its_folder: Path,
    command: Sequence[str],
    options: dict[str, Path],
    fault: str | None,
    number: int | None,
) -> None:
    with pytest.raises((OSError, UnicodeEncodeError), match=fault) as raised:
        async with run(*command, remove=its_folder, **options):
            raise AssertionError("it was started")
    assert getattr(raised.value, "errno", None) == number
    assert not is_there(its_folder)


async def test_odd_characters_arrive_unchanged() -> None:
    odd = "a\nb=c \udcff ü"
    async with run(
        *("/bin/sh", "-c", 'printf "%s|%s" "$1" "$ODD"', "sh", odd),
        environment={"ODD": odd, "EMPTY": ""},
    ) as process:
        await process.wait()
        assert process.stdout_tail == f"{odd}|{odd}".encode("utf-8", "surrogateescape").decode(
            errors="replace"
        )


async def test_whole_tree_ends_when_its_reaper_is_killed(
    its_folder: Path, until: Until, caplog: pytest.LogCaptureFixture
) -> None:
    async with family(until, remove=its_folder) as (process, pids):
        os.kill(parent(process.pid), signal.SIGKILL)
        assert await process.wait() == ExitStatus()
        await until(lambda: not any(map(alive, pids)))
    assert not is_there(its_folder)
    assert "its reaper was killed" in caplog.text
