"""Faults of an execution. As in `tests/faults/strikes.py`, a strike is a plain function."""

from __future__ import annotations

import errno
import os
import signal
from collections.abc import Callable

from tests.fakes import disk
from tests.fakes.internet import Behaviour, answer, hang, late, refused, reset
from tests.fakes.puppets import Step
from tests.faults.crews.phases import REST, Scene
from tests.faults.strikes import COMMON

Strike = Callable[[Scene], object]
SLOW = 1.0
"""Seconds that each call of the store takes on a slow disk."""
TOO_SLOW = 40.0
"""Seconds that a receiver takes: more than the timeout of a call."""
OUTPUT_BYTES = 2_000_000
"""Bytes of standard output: thirty times what a pipe holds or the daemon keeps."""

# A worker's start.


def no_process(scene: Scene) -> None:
    scene.stage.workers.start_error = OSError(errno.EMFILE, os.strerror(errno.EMFILE))


def no_folder(scene: Scene) -> None:
    scene.stage.workers.folder_error = PermissionError(errno.EACCES, os.strerror(errno.EACCES))


def program_runs(*script: Step) -> Strike:
    """Make the worker program run this script instead of its input's."""

    def strike(scene: Scene) -> None:
        scene.stage.workers.scripts[scene.stage.workers.program] = script

    return strike


STARTS: dict[str, Strike] = {
    "program_gone": lambda scene: scene.stage.workers.program.unlink(),
    "not_executable": lambda scene: scene.stage.workers.program.chmod(0o644),
    "no_process": no_process,
    "no_folder": no_folder,
    "ends_at_once": program_runs("words out of luck", "exit 3"),
    "says_nothing": program_runs("hang"),
}

# A running worker.

ANSWER = "hear"
"""The step that receives the answer to the worker's question; in `running` there is none."""
GO_ON = (ANSWER, *REST)

WORKER_SCRIPTS: dict[str, list[Step]] = {
    "exits": ["words its last words", "exit 3"],
    "fails": ["failed no idea", "exit 1"],
    "crashes": [f"signal {int(signal.SIGSEGV)}"],
    "uses_memory": ["fill"],
    "hangs": ["deaf", "hang"],
    "floods_output": [f"print {OUTPUT_BYTES}", *GO_ON],
    "floods_messages": ["flood 20", *GO_ON],
    "garbage": ["raw no JSON", *GO_ON],
    "result_twice": [ANSWER, "done a", "result x", "result y"],
    "lingers": [ANSWER, "done a", "result x", "deaf", "hang"],
    "too_large": ["endless", "hang"],
    "closes_its_line": ["close", "hang"],
    "leaves_children": ["fork", "stray", *GO_ON],
    "dies_with_children": ["fork", "stray", "exit 3"],
}


def worker_runs(fault: str) -> Strike:
    """Make the worker run the fault's steps from now on."""

    def strike(scene: Scene) -> None:
        asked = scene.phase != "running"
        scene.worker.run_instead(
            *(step for step in WORKER_SCRIPTS[fault] if asked or step != ANSWER)
        )

    return strike


WORKERS: dict[str, Strike] = {
    **{fault: worker_runs(fault) for fault in WORKER_SCRIPTS},
    # By the kernel or the host's administrator.
    "killed": lambda scene: scene.worker.signal(signal.SIGKILL),
    "sigstopped": lambda scene: scene.worker.signal(signal.SIGSTOP),
    "reaper_killed": lambda scene: scene.stage.workers.reaper_of(scene.worker).kill(),
}

# The receiver of webhook calls.

TARGETS: dict[str, Behaviour] = {
    "target_slow": late(TOO_SLOW),
    "target_silent": hang,
    "target_500": answer(500, Connection="close"),
    "target_busy": answer(429, Retry_After="20", Connection="close"),
    "target_redirects": answer(307, Location="http://192.0.2.8/", Connection="close"),
    "target_moved": answer(308, Location="http://192.0.2.8/", Connection="close"),
    "target_gone": answer(410, Connection="close"),
    "target_resets": reset,
}


def target(fault: str) -> Strike:
    """Make the receiver do this with all calls from now on, also with the open ones."""
    return lambda scene: scene.receiver.set_behaviour(TARGETS[fault])


# The disk.


def disk_fault(fault: disk.Fault) -> Strike:
    def strike(scene: Scene) -> None:
        scene.stage.disk.fault = fault

    return strike


def db_slow(scene: Scene) -> None:
    scene.stage.disk.slow = SLOW


DISK: dict[str, Strike] = {
    "db_locked": lambda scene: scene.stage.disk.lock(),
    "db_full": disk_fault(disk.FULL),
    "db_fails": disk_fault(disk.BROKEN),
    "db_slow": db_slow,
    "db_damaged": disk_fault(disk.DAMAGED),
    # The file is moved away; `heal()` moves it back.
    "db_gone": lambda scene: scene.stage.journal.rename(scene.stage.elsewhere),
}

STRIKES: dict[str, Strike] = {
    **STARTS,
    **WORKERS,
    **{fault: target(fault) for fault in TARGETS},
    "target_down": lambda scene: scene.receiver.take_down(refused()),
    "target_unreachable": lambda scene: scene.receiver.take_down(TimeoutError()),
    **DISK,
    **COMMON,
    "sigkill": lambda scene: scene.stage.kill(),
    # A bug in a part.
    "journal_fails": lambda scene: scene.stage.fail("journal"),
    "executor_fails": lambda scene: scene.stage.fail("executor"),
    "webhooks_fail": lambda scene: scene.stage.fail("webhooks"),
}
