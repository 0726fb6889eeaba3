"""Faults: what strikes a scene. As in `tests/faults/strikes.py`, each is done without an await."""

from __future__ import annotations

import errno
import os
import signal
from collections.abc import Callable

from tests.fakes import disk
from tests.fakes.internet import Behaviour, answer, hang, late, refused, reset
from tests.fakes.puppets import Step
from tests.faults.crews.phases import REST, Scene

Strike = Callable[[Scene], None]
HOUR = 3600.0
SLOW = 1.0
"""Seconds that each call of the journal's takes on a slow disk."""
TOO_SLOW = 40.0
"""Seconds that a receiver takes: longer than it is waited for."""
LOUD = 2_000_000
"""Bytes of standard output: thirty times what a pipe holds, or the daemon keeps."""

# A worker that is to be started, and is not, or is none.


def program_gone(scene: Scene) -> None:
    scene.stage.workers.program.unlink()


def not_executable(scene: Scene) -> None:
    scene.stage.workers.program.chmod(0o644)


def no_process(scene: Scene) -> None:
    scene.stage.workers.no_process = OSError(errno.EMFILE, os.strerror(errno.EMFILE))


def no_folder(scene: Scene) -> None:
    scene.stage.workers.no_folder = PermissionError(errno.EACCES, os.strerror(errno.EACCES))


def ends_at_once(scene: Scene) -> None:
    scene.stage.workers.scripts[scene.stage.workers.program] = ["words out of luck", "exit 3"]


def says_nothing(scene: Scene) -> None:
    scene.stage.workers.scripts[scene.stage.workers.program] = ["hang"]


STARTS = (
    program_gone,
    not_executable,
    no_process,
    no_folder,
    ends_at_once,
    says_nothing,
)

# A worker that is there.

ANSWER = "hear"
"""The answer to what it has asked by then; in `running` it has asked nothing."""
GO_ON = (ANSWER, *REST)

DEEDS: dict[str, list[Step]] = {
    "exits": ["words its last words", "exit 3"],
    "fails": ["failed no idea", "exit 1"],
    "crashes": [f"signal {int(signal.SIGSEGV)}"],
    "uses_memory": ["fill"],
    "hangs": ["deaf", "hang"],
    "floods_output": [f"print {LOUD}", *GO_ON],
    "floods_messages": ["flood 20", *GO_ON],
    "garbage": ["raw no JSON", *GO_ON],
    "result_twice": [ANSWER, "done a", "result x", "result y"],
    "lingers": [ANSWER, "done a", "result x", "deaf", "hang"],
    "too_large": ["endless", "hang"],
    "closes_its_line": ["close", "hang"],
    "leaves_children": ["fork", "stray", *GO_ON],
    "dies_with_children": ["fork", "stray", "exit 3"],
}


def deed(fault: str) -> Strike:
    """Its worker does that, from now on."""

    def strike(scene: Scene) -> None:
        asked = scene.phase != "running"
        scene.puppet.do(*(step for step in DEEDS[fault] if asked or step != ANSWER))

    return strike


def killed(scene: Scene) -> None:
    """By somebody else: the kernel, or the host's owner."""
    scene.puppet.signal(signal.SIGKILL)


def sigstopped(scene: Scene) -> None:
    scene.puppet.signal(signal.SIGSTOP)


def reaper_killed(scene: Scene) -> None:
    scene.stage.workers.reaper_of(scene.puppet).kill()


# Who is called.

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
    """It does that with every call from now on, and with those that it has in hand."""

    def strike(scene: Scene) -> None:
        scene.receiver.becomes(TARGETS[fault])

    return strike


def target_down(scene: Scene) -> None:
    scene.receiver.goes_down(refused())


def target_unreachable(scene: Scene) -> None:
    scene.receiver.goes_down(TimeoutError())


# The disk.


def db_locked(scene: Scene) -> None:
    scene.stage.disk.lock()


def db_full(scene: Scene) -> None:
    scene.stage.disk.fault = disk.FULL


def db_fails(scene: Scene) -> None:
    scene.stage.disk.fault = disk.BROKEN


def db_slow(scene: Scene) -> None:
    scene.stage.disk.slow = SLOW


def db_damaged(scene: Scene) -> None:
    scene.stage.disk.fault = disk.DAMAGED


def db_gone(scene: Scene) -> None:
    """It was moved away; its owner puts it back."""
    scene.stage.journal.rename(scene.stage.elsewhere)


# Who asked, the machine, and the service manager.


def client_gone(scene: Scene) -> None:
    assert scene.victim is not None
    scene.victim.gone.set()


def clock_ahead(scene: Scene) -> None:
    scene.stage.wall.offset += HOUR


def clock_back(scene: Scene) -> None:
    scene.stage.wall.offset -= HOUR


def sigterm(scene: Scene) -> None:
    scene.stage.stop()


def sigkill(scene: Scene) -> None:
    scene.stage.kill()


# A bug in a part.


def journal_fails(scene: Scene) -> None:
    scene.stage.fail("journal")


def executor_fails(scene: Scene) -> None:
    scene.stage.fail("executor")


def webhooks_fail(scene: Scene) -> None:
    scene.stage.fail("webhooks")


PARTS = (journal_fails, executor_fails, webhooks_fail)

STRIKES: dict[str, Strike] = {
    **{strike.__name__: strike for strike in STARTS},
    **{fault: deed(fault) for fault in DEEDS},
    **{strike.__name__: strike for strike in (killed, sigstopped, reaper_killed)},
    **{fault: target(fault) for fault in TARGETS},
    **{strike.__name__: strike for strike in (target_down, target_unreachable)},
    **{strike.__name__: strike for strike in (db_locked, db_full, db_fails, db_slow)},
    **{strike.__name__: strike for strike in (db_damaged, db_gone)},
    **{strike.__name__: strike for strike in (client_gone, clock_ahead, clock_back)},
    **{strike.__name__: strike for strike in (sigterm, sigkill, *PARTS)},
}
