"""What can wait is not imported before the daemon serves, and all of it is soon after."""

from __future__ import annotations

import errno
import importlib
import os
import subprocess
import sys
from pathlib import Path

import pytest
import trio
import trio.testing

from smartlinkd import late_imports
from smartlinkd.late_imports import AFTER, AGAIN, MODULES, import_later
from tests.app.test_tree import HASH, PATIENCE, serving, settings
from tests.fakes.threads import threads_in_place

ROOT = Path(__file__).parent.parent
LIBRARIES = ("jwt", "pyotp", "cryptography", "httpx", "httpcore")


def imported_by(program: str) -> set[str]:
    """What a Python has imported that has run this."""
    shown = f"import sys\n{program}\nprint(*sys.modules)"
    words = [sys.executable, "-c", shown]
    done = subprocess.run(words, check=True, capture_output=True, text=True)
    return set(done.stdout.split())


def test_what_can_wait_is_not_imported_for_the_start() -> None:
    found = imported_by("from smartlinkd import cli, tree")
    assert "hypercorn" in found
    late = {each for each in MODULES if not each.startswith("encodings.")}  # Python may need those
    assert found.isdisjoint({*late, *LIBRARIES})


def test_and_it_is_all_imported_together() -> None:
    found = imported_by("from smartlinkd import late_imports\nlate_imports._import()")
    assert found.issuperset({*MODULES, *LIBRARIES})


ALL_MODELS = """
from smartlinkd import cli, late_imports, tree
from smartlinkd.config import build

def below(model):
    for each in model.__subclasses__():
        yield each
        yield from below(each)

build({"auth": {"password_hash": HASH}})
late_imports._import()
before = set(sys.modules)
from pydantic import BaseModel
from smartlinkd.crews.protocol import parse
ours = [each for each in below(BaseModel) if each.__module__.startswith("smartlinkd.")]
assert len(ours) > 100
for each in ours:
    each.model_rebuild(force=True)
assert parse(b'{"type": "started"}').type == "started"
late = set(sys.modules) - before
assert not late, late
"""


def test_then_a_model_reads_nothing_at_its_first_use() -> None:
    """Or it might be the first at a moment in which nothing can be read."""
    imported_by(ALL_MODELS.replace("HASH", repr(HASH)))


def first_uses(*words: str) -> dict[str, str]:
    """What became of each in a process that can read nothing."""
    program = [sys.executable, "-m", "tests.first_uses", *words]
    done = subprocess.run(program, check=True, capture_output=True, text=True, cwd=ROOT)
    return dict(each.split(" ") for each in done.stdout.splitlines())


def test_who_needs_it_before_that_and_cannot_read_it_is_refused() -> None:
    """And nobody ends by it: each of these is an error that its part lives on with."""
    assert first_uses() == {
        "issue_and_read_tokens": "Unavailable",
        "try_a_code": "Unavailable",
        "seal": "Unavailable",
        "look_at_an_address": "Unavailable",
        "ask": "NoAnswer",
        "notify": "NotSent",
        "open_a_sender": "Unavailable",
        "new_setup": "Unavailable",
    }


def test_afterwards_nobody_needs_to_read_anything() -> None:
    assert first_uses("imported") == {
        "issue_and_read_tokens": "fine",
        "try_a_code": "fine",
        "seal": "fine",
        "look_at_an_address": "fine",
        "ask": "NoAnswer",  # there is no descriptor for a connection, either
        "notify": "NotSent",
        "open_a_sender": "fine",
    }


async def test_a_daemon_that_serves_imports_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done = trio.Event()

    async def note() -> None:
        done.set()

    monkeypatch.setattr("smartlinkd.app.tree.import_later", note)
    async with serving(settings(tmp_path)):
        with trio.fail_after(PATIENCE):
            await done.wait()


@pytest.mark.parametrize(
    "fault",
    [OSError(errno.EMFILE, os.strerror(errno.EMFILE)), ModuleNotFoundError("No module named 'x'")],
)
async def test_what_cannot_be_read_is_tried_again(
    fault: Exception,
    autojump_clock: trio.testing.MockClock,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    seen: list[str] = []
    times: list[float] = []

    def fail_at_first(name: str) -> None:
        seen.append(name)
        times.append(trio.current_time())
        if len(seen) == 1:
            raise fault

    threads_in_place(monkeypatch)
    monkeypatch.setattr(importlib, "import_module", fail_at_first)
    await import_later()
    assert seen == [MODULES[0], *MODULES]
    assert times == pytest.approx([AFTER, *[AFTER + AGAIN] * len(MODULES)])
    assert [(each.name, each.levelname) for each in caplog.records] == [
        (late_imports.__name__, "WARNING")
    ]
    assert str(fault) in caplog.text


async def test_a_fault_of_the_code_is_no_reason_to_try_again(
    autojump_clock: trio.testing.MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_: str) -> None:
        raise SyntaxError("of somebody's")

    threads_in_place(monkeypatch)
    monkeypatch.setattr(importlib, "import_module", fail)
    with pytest.raises(SyntaxError):
        await import_later()
