"""A guarded command: what is told of it, what it gets, and that nothing of it is left."""

from __future__ import annotations

import errno
import os
import signal
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
import trio

from smartlinkd.processes.guarded import ExitStatus, Guarded, guarded, user_named
from smartlinkd.processes.tail import CUT, KEPT
from tests.processes.family import alive, parent

ENVIRONMENT = {"PATH": "/usr/bin:/bin"}
ROOT = Path("/")
Until = Callable[[Callable[[], bool]], Awaitable[None]]

pytestmark = pytest.mark.usefixtures("nothing_left")
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can drop to a user")

# A child, a child in a session of its own, and one whose parent has gone: each tells its number.
FAMILY = """
sleep 1000 & echo $! >&2
setsid sh -c 'echo $$ >&2; exec sleep 1000' &
( setsid sh -c 'sh -c "echo \\$\\$ >&2; exec sleep 1000" & ' & )
exec sleep 1000
"""


def numbers(process: Guarded) -> list[int]:
    return [int(word) for word in process.stderr_tail.split()]


async def output(script: str, *, user: str | None = None) -> str:
    """What a shell script writes to standard error, from its start to its end."""
    async with guarded(
        ["/bin/sh", "-c", script],
        environment=ENVIRONMENT,
        working_folder=ROOT,
        user=user_named(user) if user else None,
    ) as process:
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
async def test_the_way_it_ended_is_told(script: str, status: ExitStatus) -> None:
    async with guarded(
        ["/bin/sh", "-c", script], environment=ENVIRONMENT, working_folder=ROOT
    ) as process:
        assert await process.wait() == status


@pytest.mark.parametrize("late", [False, True])
async def test_one_thing_is_done_at_its_end(*, late: bool) -> None:
    done: list[ExitStatus | None] = []
    async with guarded(
        ["/bin/sh", "-c", "read word"],
        environment=ENVIRONMENT,
        working_folder=ROOT,
    ) as process:
        if late:
            await process.wait()
        process.at_end(lambda: done.append(process.status))
        await process.wait()
        assert done == [process.status] != [None]


@pytest.mark.parametrize(
    ("status", "text"),
    [
        (ExitStatus(code=3), "exit code 3"),
        (ExitStatus(signal=9), "signal 9 (Killed)"),
        (ExitStatus(), "an unknown status: its guardian was killed"),
    ],
)
def test_a_status_reads_well(status: ExitStatus, text: str) -> None:
    assert str(status) == text


async def test_kill_kills_the_command() -> None:
    async with guarded(
        ["/bin/sleep", "1000"], environment=ENVIRONMENT, working_folder=ROOT
    ) as process:
        process.kill()
        assert await process.wait() == ExitStatus(signal=signal.SIGKILL)
        process.kill()  # of no effect, and no error


async def test_the_last_words_are_there_when_the_end_is_told() -> None:
    assert await output("echo last words >&2; exit 1") == "last words\n"


async def test_only_the_end_of_standard_error_is_kept_and_no_writer_waits() -> None:
    text = await output("yes 0123456 | head -c 1000000 >&2; printf THE-END >&2")
    assert text.startswith(CUT)
    assert len(text) == len(CUT) + KEPT
    assert text.endswith("THE-END")


async def test_it_gets_its_environment_and_nothing_of_ours(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("SMARTLINKD_SECRET", "secret")
    told = await output("cat /proc/self/environ | tr '\\0' '\\n' >&2")
    ours = {"PWD", "OLDPWD", "SHLVL", "_"}  # the shell's own
    assert {line.partition("=")[0] for line in told.splitlines()} - ours == {"PATH"}


async def test_its_program_is_looked_for_in_its_own_path(
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
    path = {"PATH": ":".join(map(str, folders))}
    async with guarded(["tool"], environment=path, working_folder=ROOT) as process:
        await process.wait()
        assert process.stderr_tail == f"first {folders[2]}/tool\n"
    for where, fault in (folders[1], PermissionError), (folders[0], FileNotFoundError):
        with pytest.raises(fault, match="'tool'"):
            async with guarded(["tool"], environment={"PATH": str(where)}, working_folder=ROOT):
                raise AssertionError("it was started")


async def test_it_gets_no_descriptor_of_ours_and_leads_a_session() -> None:
    told = await output("cut -d' ' -f6 /proc/$$/stat >&2; echo $$ >&2; exec ls /proc/self/fd >&2")
    session, pid, *open_ones = told.split()
    assert session == pid
    assert open_ones == ["0", "1", "2", "3"]  # the last is the folder that ls reads


async def test_its_signals_are_as_a_program_expects_them() -> None:
    told = await output("exec grep -E 'Sig(Blk|Ign)' /proc/self/status >&2")
    blocked, ignored = (int(word, 16) for word in told.split()[1::2])
    # The C library's own two, which no program can name, are left ignored by its posix_spawn(3).
    of_the_c_library = 1 << 32 - 1 | 1 << 33 - 1
    assert (blocked, ignored & ~of_the_c_library) == (0, 0)


async def test_it_leaves_no_core_file() -> None:
    assert await output("ulimit -Hc >&2") == "0\n"


async def test_it_cannot_gain_privileges() -> None:
    assert (await output("grep NoNewPrivs /proc/$$/status >&2")).split() == ["NoNewPrivs:", "1"]


@as_root
async def test_it_drops_to_its_user_without_groups() -> None:
    nobody = user_named("nobody")
    told = await output(
        "grep -E '^(Uid|Gid|Groups|CapPrm|CapEff):' /proc/self/status >&2", user="nobody"
    )
    parts = [line.partition(":") for line in told.splitlines()]
    what = {name: words.split() for name, _, words in parts}
    # The real one, the effective one, the saved one, and that for files.
    assert what.pop("Uid") == [str(nobody.uid)] * 4
    assert what.pop("Gid") == [str(nobody.gid)] * 4
    assert what.pop("Groups") == []
    assert what == {"CapPrm": ["0" * 16], "CapEff": ["0" * 16]}


@as_root
async def test_its_guardian_stays_what_it_was() -> None:
    """It drops with the command, for a moment."""

    def rights(pid: int) -> list[str]:
        lines = Path(f"/proc/{pid}/status").read_text(encoding="ascii").splitlines()
        return [line for line in lines if line.startswith(("Uid", "Gid", "Groups", "CapEff"))]

    async with guarded(
        ["/bin/sleep", "1000"],
        environment=ENVIRONMENT,
        working_folder=ROOT,
        user=user_named("nobody"),
    ) as process:
        guardian = parent(process.pid)
        assert rights(guardian) == rights(parent(guardian))


@pytest.mark.parametrize("guardian", ["lives", "is killed"])
async def test_the_whole_tree_is_gone_after_the_block(guardian: str, until: Until) -> None:
    async with guarded(
        ["/bin/sh", "-c", FAMILY], environment=ENVIRONMENT, working_folder=ROOT
    ) as process:
        await until(lambda: len(numbers(process)) == 3)
        family = [process.pid, *numbers(process)]
        assert all(alive(pid) for pid in family)
        if guardian == "is killed":
            os.kill(parent(process.pid), signal.SIGKILL)
    assert not any(alive(pid) for pid in family)


async def test_the_end_of_the_command_is_the_end_of_its_tree(until: Until) -> None:
    async with guarded(
        ["/bin/sh", "-c", FAMILY], environment=ENVIRONMENT, working_folder=ROOT
    ) as process:
        await until(lambda: len(numbers(process)) == 3)
        process.kill()
        await until(lambda: not any(alive(pid) for pid in numbers(process)))


async def test_those_who_lost_their_parent_are_reaped_while_it_runs(until: Until) -> None:
    script = "(sh -c 'echo $$ >&2' &); sleep 1000"
    async with guarded(
        ["/bin/sh", "-c", script], environment=ENVIRONMENT, working_folder=ROOT
    ) as process:
        await until(lambda: len(numbers(process)) == 1)
        await until(lambda: not alive(numbers(process)[0]))
        assert process.status is None


async def test_an_error_leaves_the_block_bare_and_nothing_behind() -> None:
    with pytest.raises(KeyError, match="mine"):
        async with guarded(
            ["/bin/sleep", "1000"], environment=ENVIRONMENT, working_folder=ROOT
        ) as process:
            raise KeyError("mine")
    assert not alive(process.pid)


@pytest.mark.parametrize("milliseconds", [0, 1, 3, 6, 10, 14, 18, 25, 40])
async def test_cancelled_at_any_moment_it_leaves_nothing(
    milliseconds: int, open_folder: Path
) -> None:
    folder = open_folder / "its"
    folder.mkdir()
    pid = 0
    with trio.move_on_after(milliseconds / 1000) as scope:
        async with guarded(
            ["/bin/sleep", "1000"],
            environment=ENVIRONMENT,
            working_folder=folder,
            remove=folder,
        ) as process:
            pid = process.pid
            await trio.sleep_forever()
    assert scope.cancelled_caught
    assert not folder.exists()
    assert pid == 0 or not alive(pid)


async def test_its_folder_goes_and_what_links_lead_to_stays(open_folder: Path) -> None:
    folder, other = open_folder / "its", open_folder / "other"
    (folder / "a" / "b").mkdir(parents=True)
    (folder / "a" / "file").write_text("x")
    other.mkdir()
    (other / "precious").write_text("x")
    (folder / "a" / "link").symlink_to(other)
    (folder / "dangling").symlink_to("nowhere")
    async with guarded(
        ["/bin/sh", "-c", "echo x > made-by-it; exec sleep 1000"],
        environment=ENVIRONMENT,
        working_folder=folder,
        remove=folder,
    ):
        pass
    assert [entry.name for entry in os.scandir(open_folder)] == ["other"]
    assert (other / "precious").exists()


@pytest.mark.parametrize(
    ("command", "number"), [("/bin/no-such-program", errno.ENOENT), ("/etc/passwd", errno.EACCES)]
)
async def test_what_cannot_be_started_says_so_and_leaves_nothing(
    command: str, number: int, open_folder: Path
) -> None:
    folder = open_folder / "its"
    folder.mkdir()
    with pytest.raises(OSError, match=Path(command).name) as raised:
        async with guarded([command], environment=ENVIRONMENT, working_folder=ROOT, remove=folder):
            raise AssertionError("it was started")
    assert raised.value.errno == number
    assert not folder.exists()


async def test_a_working_folder_that_is_not_there_is_an_error_too() -> None:
    with pytest.raises(FileNotFoundError):
        async with guarded(
            ["/bin/sleep", "1"], environment=ENVIRONMENT, working_folder=Path("/no/such")
        ):
            raise AssertionError("it was started")


@pytest.mark.parametrize(
    ("command", "environment", "fault"),
    [
        (["/bin/true", "\ud800"], {}, UnicodeEncodeError),
        (["/bin/true", "a\0b"], {}, ValueError),
        ([""], {}, ValueError),
        (["/bin/true"], {"": "x"}, ValueError),
        (["/bin/true"], {"A=B": "x"}, ValueError),
    ],
)
async def test_what_no_program_can_be_given_is_an_error_and_its_folder_goes(
    command: list[str], environment: dict[str, str], fault: type[Exception], open_folder: Path
) -> None:
    folder = open_folder / "its"
    folder.mkdir()
    with pytest.raises(fault):
        async with guarded(command, environment=environment, working_folder=ROOT, remove=folder):
            raise AssertionError("it was started")
    assert not folder.exists()


async def test_what_is_odd_arrives_as_it_is(open_folder: Path) -> None:
    odd = "a\nb=c \udcff ü"
    async with guarded(
        ["/bin/sh", "-c", 'printf "%s|%s" "$1" "$ODD"', "sh", odd],
        environment={"ODD": odd, "EMPTY": ""},
        working_folder=open_folder,
    ) as process:
        await process.wait()
        assert process.stdout_tail == f"{odd}|{odd}".encode("utf-8", "surrogateescape").decode(
            errors="replace"
        )


async def test_signals_to_the_guardian_do_not_end_it() -> None:
    async with guarded(
        ["/bin/sleep", "1000"], environment=ENVIRONMENT, working_folder=ROOT
    ) as process:
        guardian = parent(process.pid)
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT):
            os.kill(guardian, number)
        # It is still there to do its work: it passes on this, and tells of it.
        process.kill()
        assert await process.wait() == ExitStatus(signal=signal.SIGKILL)


async def test_a_killed_guardian_takes_the_whole_tree_with_it(
    open_folder: Path, until: Until, caplog: pytest.LogCaptureFixture
) -> None:
    folder = open_folder / "its"
    folder.mkdir()
    async with guarded(
        ["/bin/sh", "-c", FAMILY], environment=ENVIRONMENT, working_folder=ROOT, remove=folder
    ) as process:
        await until(lambda: len(numbers(process)) == 3)
        family = [process.pid, *numbers(process)]
        os.kill(parent(process.pid), signal.SIGKILL)
        assert await process.wait() == ExitStatus()
        await until(lambda: not any(map(alive, family)))
    assert not folder.exists()
    assert "its guardian was killed" in caplog.text
