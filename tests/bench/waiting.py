"""A row that is never done: it starts a program, and tells where it is. See `test_main.py`."""

from __future__ import annotations

import signal
import sys
from pathlib import Path

from bench.measure import Comparison, Plan, Row, Series
from tests.programs import Program

MODULE = "tests.bench.waiting"
ROWS = {1: f"{MODULE}:done", 2: f"{MODULE}:waiting"}
UP, ENDED = "up\n", "ended in order\n"


def done(_plan: Plan) -> Row:
    """One that is measured."""
    one = Series("one", "s", [1.0])
    return Row(1, "done", [Comparison("a thing", one, one)])


def waiting(plan: Plan) -> Row:
    """Wait until it is ended."""
    log = Path(sys.argv[-1]) / "log"
    program = Program(MODULE, folder=plan.folder, log=log)
    try:
        program.wait_for(UP, log)
        plan.tell(f"pid {program.process.pid}")
        while True:
            signal.pause()
    finally:
        program.stop()


def _program() -> None:
    """Until it is ended in order, and not by a terminal."""
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
    print(UP, end="", file=sys.stderr, flush=True)
    signal.sigwait([signal.SIGTERM])
    print(ENDED, end="", file=sys.stderr, flush=True)


if __name__ == "__main__":
    _program()
