"""A few cells of the crews' fault matrix (`tests/faults/crews`) on the whole daemon.

The matrix itself is played on workers, disks and receivers that are played. These are the cells
whose fault is of the kernel's or of another program's making, so that it is seen to do to real ones
what the fakes say that it does. Daemons that are killed, disks that are full and receivers that
refuse have tests of their own beside this one.
"""

from __future__ import annotations

import os
import signal
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.processes.family import parent

if TYPE_CHECKING:
    from tests.e2e.conftest import Daemon
    from tests.e2e.crews.conftest import Client, Employing, Meet

DEADLINE, GRACE = 2, 1
BUSY = 2.0
"""Seconds that a lock of another program is waited for."""
CHILDREN = "(trap '' TERM; exec sleep 600) & setsid sh -c 'exec sleep 600' &"


class Gate:
    """Where workers look whether they may go on."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "gate"

    def open(self) -> None:
        self.path.touch()

    def close(self) -> None:
        self.path.unlink()


@pytest.fixture(scope="module")
def gate(tmp_path_factory: pytest.TempPathFactory) -> Gate:
    return Gate(tmp_path_factory.mktemp("signs"))


@pytest.fixture(scope="module")
def employer(employing: Employing, gate: Gate) -> Iterator[Daemon]:
    """One daemon for all that do not end it."""
    with employing(
        {
            "gated": {"gate": gate.path},
            "late": {"script": "exec sleep 600", "deadline": DEADLINE, "grace": GRACE},
            "parents": {"first": CHILDREN, "script": "exec sleep 600"},
        }
    ) as daemon:
        yield daemon


async def test_a_worker_that_a_signal_has_stopped(employer: Daemon, meet: Meet) -> None:
    """It hears neither the message nor SIGTERM, and SIGKILL ends it all the same."""
    late = await meet(employer, "late")
    kickoff_id = await working(late)
    os.kill(worker_of(employer, kickoff_id), signal.SIGSTOP)
    ended = await late.ended(kickoff_id)
    assert ended["status"] == "timed_out"
    assert ended["error"].endswith("ignored the message `stop` and SIGTERM, and was killed")
    await gone(employer, kickoff_id)


async def with_its_children(employer: Daemon, parents: Client) -> str:
    """An execution whose worker has two."""
    kickoff_id = await working(parents)

    async def has_them() -> bool:
        return len(employer.workers()[kickoff_id]) == 3

    await employer.until("it has its children", has_them)
    return kickoff_id


async def test_a_worker_that_crashes_and_leaves_children(employer: Daemon, meet: Meet) -> None:
    parents = await meet(employer, "parents")
    kickoff_id = await with_its_children(employer, parents)
    os.kill(worker_of(employer, kickoff_id), signal.SIGSEGV)
    ended = await parents.ended(kickoff_id)
    assert ended["error"].startswith("the worker was ended by signal 11")
    await gone(employer, kickoff_id)


async def test_worker_whose_reaper_is_killed(employer: Daemon, meet: Meet) -> None:
    parents = await meet(employer, "parents")
    kickoff_id = await with_its_children(employer, parents)
    os.kill(parent(worker_of(employer, kickoff_id)), signal.SIGKILL)
    ended = await parents.ended(kickoff_id)
    assert ended["error"].startswith("the worker may still be running: its guardian was killed")
    await gone(employer, kickoff_id)
    employer.program.wait_for("its guardian was killed", employer.program.log)


async def test_another_program_holds_the_journal(employer: Daemon, meet: Meet, gate: Gate) -> None:
    """A kickoff is refused, after SQLite's patience; what runs is held up, and nothing is lost."""
    gated = await meet(employer, "gated")
    kickoff_id = await working(gated)
    with closing(sqlite3.connect(employer.state / "journal.sqlite3")) as other:
        other.execute("BEGIN IMMEDIATE")
        began = time.monotonic()
        refused = await gated.ask("POST", "/kickoff", {})
        took = time.monotonic() - began
        gate.open()
        employer.program.wait_for(f"execution {kickoff_id} is held up", employer.program.log)
        assert (await gated.status(kickoff_id))["status"] == "running"
        other.rollback()
    assert refused.status_code == 503
    assert "another program holds it locked" in refused.json()["message"]
    assert took >= BUSY
    assert (await gated.ended(kickoff_id))["status"] == "completed"
    assert (await gated.ended(await gated.kick_off()))["status"] == "completed"
    gate.close()


async def test_the_journal_is_moved_away(employer: Daemon, meet: Meet, gate: Gate) -> None:
    """Whatever is promised then would be forgotten at the next start."""
    gated = await meet(employer, "gated")
    kickoff_id = await working(gated)
    journal = employer.state / "journal.sqlite3"
    moved = journal.rename(journal.with_name("moved"))
    refused = await gated.ask("POST", "/kickoff", {})
    assert refused.status_code == 503
    assert "was removed, or moved away" in refused.json()["message"]
    gate.open()
    employer.program.wait_for(f"execution {kickoff_id} is held up", employer.program.log)
    moved.replace(journal)
    assert (await gated.ended(kickoff_id))["status"] == "completed"
    gate.close()


async def test_a_damaged_journal(employing: Employing, meet: Meet, tmp_path: Path) -> None:
    """The daemon does not start, names the file and says what to do; a backup helps."""
    gate = Gate(tmp_path)
    with employing({"gated": {"gate": gate.path, "on_restart": "rerun"}}) as daemon:
        gated = await meet(daemon, "gated")
        kickoff_id = await working(gated)
        await daemon.kill()
        files = [daemon.state / name for name in ("journal.sqlite3", "journal.sqlite3-wal")]
        backup = [each.read_bytes() for each in files]
        for each in files:
            each.write_bytes(b"no database " * 4096)
        daemon.begin()
        assert await daemon.program.ended() != 0
        said = daemon.program.log.read_text()
        assert f"{files[0]} is damaged" in said
        assert "put back a backup" in said
        for file, content in zip(files, backup, strict=True):
            file.write_bytes(content)
        daemon.start()
        gate.open()
        assert (await gated.ended(kickoff_id))["status"] == "completed"


async def working(client: Client) -> str:
    """An execution that is at its task."""
    kickoff_id = await client.kick_off()

    async def works() -> bool:
        return bool((await client.status(kickoff_id))["current_task"])

    await client.daemon.until("it works", works)
    return kickoff_id


async def gone(daemon: Daemon, kickoff_id: str) -> None:
    """Nothing of its worker is left."""

    async def is_gone() -> bool:
        return kickoff_id not in daemon.workers() and not list((daemon.state / "runs").iterdir())

    await daemon.until("nothing of it is left", is_gone)


def worker_of(daemon: Daemon, kickoff_id: str) -> int:
    """The process whose parent is the reaper."""
    family = daemon.workers()[kickoff_id]
    (worker,) = (pid for pid in family if parent(pid) not in family)
    return worker
