"""`python -m smartlinkd` that writes its trio tasks and its threads to stderr on SIGUSR2.

A test whose wait has timed out sends the signal, so that its failure shows where the program hangs.
"""

from __future__ import annotations

import faulthandler
import signal
import sys
from types import FrameType

import trio

from smartlinkd.cli import main
from tests.hygiene.tasks import task_tree


def _show(_number: int, _frame: FrameType | None) -> None:
    root = trio.lowlevel.current_root_task() if trio.lowlevel.in_trio_run() else None
    sys.stderr.write(f"tasks:\n{'none' if root is None else task_tree(root)}\nthreads:\n")
    sys.stderr.flush()
    faulthandler.dump_traceback(all_threads=True)


if __name__ == "__main__":
    # Under nohup(1) the test run ignores SIGHUP, and its children would inherit that.
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    signal.signal(signal.SIGUSR2, _show)
    sys.exit(main())
