"""The fault matrix of the crews: faults by phases of an execution.

A cell is `Due`, the outcome for the client and the execution, or `Impossible`. Each cell begins as
the one of its phase in `NORMAL`, the outcome without a fault. `play.py` checks what is due in every
cell: the next kickoff succeeds, the bystander completes, and nothing is left.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from smartlinkd.crews.model import ExecutorLimits
from smartlinkd.crews.webhooks.dispatcher import WebhookLimits
from tests.faults.cells import Impossible, Matrix
from tests.faults.crews.phases import PHASES, WATCH
from tests.faults.crews.stage import DEADLINE, GRACE
from tests.faults.crews.strikes import DISK, STARTS, STRIKES, TARGETS, WORKERS

# Seconds on the mock clock.
MOMENT = 0.2  # only a process or a page is waited for
CONVERTED = 1.0  # links are converted
RESTARTED = 0.7  # a failed part runs again
CALLED = 60.0  # webhook calls are retried after a short outage of the receiver
BUSY = 2.2  # SQLite has waited for a lock
HELD_UP = 5.0  # a failed write is retried
PATIENCE = 8.1  # a request has waited for a part that restarts
CUT_OFF = DEADLINE + GRACE + MOMENT
SLOWLY = 40.0  # each call of the store takes a second
GIVEN_UP = 100.0  # the daemon has escalated and ended


@dataclass(frozen=True)
class Due:
    """The due outcome of a cell.

    `statuses` are allowed for the victim's answer (0: none), within `seconds` of the strike. The
    execution ends with a status in `ends` within `by` seconds of it, with an error that matches
    `error`. If `is_delivered`, the receiver gets all webhook calls within `called` seconds more.
    `restarts` are parts with their number of restarts.

    `log`, in which `{id}` is the execution, matches exactly `records` records; if it is empty,
    nothing is logged as a warning.
    """

    statuses: Collection[int]
    seconds: float
    ends: Collection[str]
    by: float
    error: str = ""
    called: float = CALLED
    is_delivered: bool = True
    restarts: tuple[tuple[str, int], ...] = ()
    log: str = ""
    records: int = 1
    bystander_completes: bool = True
    ends_daemon: bool = False
    escalates: bool = False


def due(status: int, end: str, within: float, **more: Any) -> Due:
    return Due([status], within, [end], **{"by": within, **more})


ALL = tuple(PHASES)
TO_COME = ("idle", "storing", "queued", "restarting")
"""Phases before the start of the worker and its reaper."""
AT_WORK = ("running", "calling", "waiting")
EXECUTOR_RESTARTS = (("executor", 1), ("webhooks", 1))
"""The restarts of an executor's failure."""
INTERRUPTED = "the daemon ended, or was restarted, while it was running"
KILLED = "was killed$"
STOPPED = "execution {id} ended as stopped: stopped by a holder"
LEFT = f"execution {{id}} ended as interrupted: {INTERRUPTED}"

NORMAL: dict[str, Due] = {
    "idle": due(200, "completed", MOMENT),
    "storing": due(200, "completed", MOMENT),
    "queued": due(200, "completed", MOMENT),
    "starting": due(200, "completed", MOMENT),
    "running": due(200, "completed", MOMENT),
    "calling": due(200, "completed", CONVERTED),
    "waiting": due(200, "completed", MOMENT),
    "stopping": due(200, "stopped", GRACE, error=KILLED, log=STOPPED),
    "ending": due(200, "completed", MOMENT),
    "delivering": due(200, "completed", MOMENT),
    "restarting": due(200, "completed", RESTARTED, restarts=EXECUTOR_RESTARTS),
    "draining": due(
        0, "interrupted", GRACE + MOMENT, error=INTERRUPTED, log=LEFT, ends_daemon=True
    ),
}

MATRIX = Matrix[Due]()
put, change = MATRIX.put, MATRIX.change
for _phase, _due in NORMAL.items():
    put(STRIKES, _phase, _due)

# Faults of a worker's start.

put(STARTS, AT_WORK, Impossible("its worker was started before, and no other one will be"))
put(STARTS, ("stopping", "draining"), Impossible("its worker was started before it was stopped"))
put(STARTS, ("ending", "delivering"), Impossible("its worker has ended, and no other one follows"))

_NOT_STARTED = {
    "program_gone": "could not be started: .*No such file",
    "not_executable": "could not be started: .*Permission denied",
    "no_process": "could not be started: .*Too many open files",
    "no_folder": "could not be started: .*Permission denied",
    "ends_at_once": "exited with code 3 without a result; its last words: out of luck",
}
for _fault, _error in _NOT_STARTED.items():
    _log = f"execution {{id}} ended as error: .*{_error}"
    change(_fault, (*TO_COME, "starting"), ends=["error"], error=_error, log=_log)
_MACHINE = ("no_process", "no_folder")
put(_MACHINE, "starting", Impossible("its reaper and its folder are there already"))
change(_MACHINE, "restarting", bystander_completes=False)  # it is started in that time, too
change(
    "says_nothing",
    (*TO_COME, "starting"),
    ends=["timed_out"],
    by=DEADLINE + GRACE + RESTARTED,
    error="ended at SIGTERM",
    log=f"execution {{id}} ended as timed_out: it ran longer than the {DEADLINE:g} s",
)
change("says_nothing", "starting", seconds=DEADLINE + GRACE)

# Faults of a running worker.

put(WORKERS, (*TO_COME, "starting"), Impossible("there is no worker yet that could do it"))
put(WORKERS, ("ending", "delivering"), Impossible("its worker has ended, and cannot do it"))

_BROKE = "broke the protocol: "
_LATE = f"than the {DEADLINE:g} s .* was killed"
_WORKER_ENDS = {
    "exits": ("error", "exited with code 3 without a result; its last words: its last words"),
    "fails": ("error", "no idea"),
    "crashes": ("error", "ended by signal 11"),
    "uses_memory": ("error", "it used 1025.0 MiB of memory"),
    "hangs": ("timed_out", _LATE),
    "sigstopped": ("timed_out", _LATE),
    "floods_messages": ("error", f"{_BROKE}an execution's messages may have 1048576 bytes"),
    "garbage": ("error", f"{_BROKE}a line is not valid JSON"),
    "too_large": ("error", f"{_BROKE}a line may have 1048576 bytes"),
    "closes_its_line": ("error", f"{_BROKE}it closed its descriptor"),
    "dies_with_children": ("error", "exited with code 3 without a result"),
    "killed": ("error", "ended by signal 9 .Killed., which this daemon did not send"),
    "reaper_killed": ("error", "may still be running"),
}
for _fault, (_end, _error) in _WORKER_ENDS.items():
    _log = f"execution {{id}} ended as {_end}: .*{_error}"
    change(_fault, AT_WORK, ends=[_end], error=_error, log=_log, seconds=CONVERTED, by=CONVERTED)
change(("hangs", "sigstopped"), AT_WORK, seconds=CUT_OFF, by=CUT_OFF)
change("closes_its_line", AT_WORK, seconds=GRACE + MOMENT, by=GRACE + MOMENT)
change("reaper_killed", AT_WORK, log="left over: its reaper was killed")
# The result stays valid, and the client gets it at once.
change("lingers", AT_WORK, log=f"does not end within {GRACE:g} s of its last message")
# The status stays `stopped`, however the worker ends.
change(WORKERS, ("stopping", "draining"), error="")

# The receiver of webhook calls.

_ATTEMPT = "the crew webhook call [0-9]+ of execution {{id}} to .* failed: {why} .attempt 1."
_TARGETS = {
    "target_slow": "no answer within 30 seconds",
    "target_silent": "no answer within 30 seconds",
    "target_500": "HTTP 500",
    "target_busy": "HTTP 429",
    "target_redirects": "HTTP 307",
    "target_resets": "the connection failed .+",
    "target_down": "192.0.2.7 cannot be connected to",
    "target_unreachable": "192.0.2.7 did not accept a connection within 8 seconds",
}
for _fault, _why in _TARGETS.items():
    change(_fault, ALL, log=_ATTEMPT.format(why=_why))
# The connection is open already.
change("target_down", "delivering", log=_ATTEMPT.format(why="the connection failed .+"))
change("target_unreachable", "delivering", log=_ATTEMPT.format(why="no answer within 30 seconds"))
for _fault, _status in {"target_moved": 308, "target_gone": 410}.items():
    _log = f"gave up .* crew webhook call [0-9]+ of execution {{id}} to .*: HTTP {_status}"
    change(_fault, ALL, log=_log, is_delivered=False)
assert {*TARGETS} < {*_TARGETS, "target_moved", "target_gone"}

# The client, and the machine's clock.

change("client_gone", ALL, statuses=[0], seconds=MOMENT)
put(
    "client_gone",
    ("idle", "delivering", "draining"),
    Impossible("a request in this phase is answered at once"),
)
# These calls are due an hour ahead by the set clock, and wait until it is right again.
change("clock_back", ("ending", "delivering"), called=WebhookLimits().longest_sleep_s + CALLED)

# The disk.

_FAILING = ("db_full", "db_fails", "db_gone")
change("db_locked", ALL, seconds=BUSY + HELD_UP, by=BUSY + HELD_UP)
change("db_locked", ALL, log="another program holds it locked .database is locked")
change(_FAILING, ALL, seconds=HELD_UP, by=HELD_UP)
change("db_full", ALL, log="the disk of .* is full")
change("db_fails", ALL, log="its disk reports an error .disk I/O")
change("db_gone", ALL, log="its file was removed, or moved away$")
change("db_locked", ("idle", "storing"), statuses=[503], seconds=BUSY)
change(_FAILING, ("idle", "storing"), statuses=[503], seconds=MOMENT)
# It depends on whether the executor runs again before the lock is released.
change("db_locked", "restarting", statuses=[200, 503])
change(_FAILING, "restarting", statuses=[503])  # as soon as the executor runs again
# So many writes are under way then.
change(("db_fails", "db_gone"), ("ending", "delivering"), records=2)
change(("db_fails", "db_gone"), "restarting", records=3)
change("db_slow", ALL, seconds=SLOWLY, by=SLOWLY)
change("db_slow", "restarting", statuses=[200, 503], seconds=PATIENCE)
change(
    "db_damaged",
    ALL,
    statuses=[503],
    ends_daemon=True,
    escalates=True,
    restarts=(),
    log="journal failed: UnusableStore.*is damaged",
    by=GIVEN_UP,
    seconds=GIVEN_UP,
    called=GIVEN_UP,
)
change("db_damaged", "delivering", statuses=[200, 503])
_INTERRUPTED: dict[str, Any] = {"ends": ["interrupted"], "error": INTERRUPTED}
change("db_damaged", ("starting", *AT_WORK, "stopping", "ending"), **_INTERRUPTED)
# The file is not used in this phase, and the fault is over at the next start.
put(DISK, "draining", NORMAL["draining"])

# The service manager.

_SIGNALS = ("sigterm", "sigkill")
change(_SIGNALS, ALL, ends_daemon=True, restarts=(), by=GRACE + MOMENT)
change(_SIGNALS, ("starting", *AT_WORK), **_INTERRUPTED, log=LEFT)
change("sigterm", "idle", statuses=[0])
change("sigterm", ("storing", "restarting"), seconds=RESTARTED, ends=["completed", "interrupted"])
put("sigterm", "draining", Impossible("it is being stopped already, by just that"))
change("sigkill", ALL, statuses=[0])
change("sigkill", ("stopping", "ending"), **_INTERRUPTED, log=LEFT)

# A bug in a part.

_BUGS = ("journal_fails", "executor_fails")
_LAST_WRITE = ExecutorLimits().last_write_s
change(_BUGS, ALL, seconds=2 * RESTARTED, by=2 * RESTARTED)
change("journal_fails", ALL, restarts=(("journal", 1), *EXECUTOR_RESTARTS))
change("journal_fails", ALL, log="journal failed: Failed")
change("executor_fails", ALL, restarts=EXECUTOR_RESTARTS, log="executor failed: Failed")
change(_BUGS, ("idle", "storing"), statuses=[200, 503])
change(_BUGS, "storing", by=_LAST_WRITE + RESTARTED, ends=["completed", "interrupted"])
change(_BUGS, ("starting", *AT_WORK, "stopping"), **_INTERRUPTED)
# The restart loses the stop.
change("journal_fails", "stopping", statuses=[503], by=GRACE + _LAST_WRITE + RESTARTED)
change("executor_fails", "stopping", statuses=[503], by=GRACE + RESTARTED)
# No client is told that the end is stored; a waiting one sees it when its wait times out.
change(_BUGS, "ending", seconds=WATCH)
put(_BUGS, "draining", NORMAL["draining"])
put("executor_fails", "restarting", Impossible("it has failed already, and is not there"))
change("webhooks_fail", ALL, restarts=(("webhooks", 1),), log="webhooks failed: Failed")
put("webhooks_fail", "restarting", Impossible("they went down with the executor"))
put("webhooks_fail", "draining", Impossible("no calls are made any more by then"))
