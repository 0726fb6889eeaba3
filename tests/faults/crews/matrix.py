"""The fault matrix of the crews: faults by phases of an execution.

A cell is `Due`, the outcome for the client and the execution, or `Impossible`. `change` takes what
it is not given from `NORMAL`, the outcome without a fault. `play.py` checks what is due in every
cell: the next kickoff succeeds, the bystander completes, and nothing is left.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace
from typing import Any

from smartlinkd.crews.model import ExecutorLimits
from smartlinkd.crews.webhooks.dispatcher import WebhookLimits
from tests.faults.cells import Impossible, Matrix
from tests.faults.crews.phases import PHASES, WATCH
from tests.faults.crews.stage import DEADLINE, GRACE
from tests.faults.crews.strikes import STARTS, TARGETS, WORKERS

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
put = MATRIX.put


def change(fault: str, phases: str | Iterable[str], **different: Any) -> None:
    """Put `NORMAL` into these phases, with these differences."""
    for phase in [phases] if isinstance(phases, str) else phases:
        put(fault, phase, replace(NORMAL[phase], **different))


# Faults of a worker's start.

put(STARTS, AT_WORK, Impossible("its worker was started before, and no other one will be"))
put(STARTS, ("stopping", "draining"), Impossible("its worker was started before it was stopped"))
put(STARTS, ("ending", "delivering"), Impossible("its worker has ended, and no other one follows"))


def _start(fault: str, error: str, *, phases: Iterable[str] = (*TO_COME, "starting")) -> None:
    log = f"execution {{id}} ended as error: .*{error}"
    change(fault, phases, ends=["error"], error=error, log=log)


_start("program_gone", "could not be started: .*No such file")
_start("not_executable", "could not be started: .*Permission denied")
_start("no_process", "could not be started: .*Too many open files", phases=TO_COME)
_start("no_folder", "could not be started: .*Permission denied", phases=TO_COME)
_start("ends_at_once", "exited with code 3 without a result; its last words: out of luck")
for _fault in ("no_process", "no_folder"):
    put(_fault, "starting", Impossible("its reaper and its folder are there already"))
for _fault in ("no_process", "no_folder"):
    # The bystander is started in that time, too.
    put(
        _fault, "restarting", replace(MATRIX.due((_fault, "restarting")), bystander_completes=False)
    )
_SILENT: dict[str, Any] = {
    "ends": ["timed_out"],
    "by": DEADLINE + GRACE + RESTARTED,
    "error": "ended at SIGTERM",
    "log": f"execution {{id}} ended as timed_out: it ran longer than the {DEADLINE:g} s",
}
change("says_nothing", TO_COME, **_SILENT)
change("says_nothing", "starting", seconds=DEADLINE + GRACE, **_SILENT)

# Faults of a running worker.

put(WORKERS, (*TO_COME, "starting"), Impossible("there is no worker yet that could do it"))
put(WORKERS, ("ending", "delivering"), Impossible("its worker has ended, and cannot do it"))


def _worker(fault: str, end: str, error: str, *, within: float = CONVERTED, log: str = "") -> None:
    named = log or f"execution {{id}} ended as {end}: .*{error}"
    for phase in AT_WORK:
        change(fault, phase, seconds=within, ends=[end], by=within, error=error, log=named)
    # The status stays `stopped`, however the worker ends.
    change(fault, ("stopping", "draining"), error="")


_BROKE = "broke the protocol: "
_worker("exits", "error", "exited with code 3 without a result; its last words: its last words")
_worker("fails", "error", "no idea")
_worker("crashes", "error", "ended by signal 11")
_worker("uses_memory", "error", "it used 1025.0 MiB of memory")
_worker("hangs", "timed_out", f"than the {DEADLINE:g} s .* was killed", within=CUT_OFF)
_worker("sigstopped", "timed_out", f"than the {DEADLINE:g} s .* was killed", within=CUT_OFF)
_worker("floods_messages", "error", f"{_BROKE}an execution's messages may have 1048576 bytes")
_worker("garbage", "error", f"{_BROKE}a line is not valid JSON")
_worker("too_large", "error", f"{_BROKE}a line may have 1048576 bytes")
_worker("closes_its_line", "error", f"{_BROKE}it closed its descriptor", within=GRACE + MOMENT)
_worker("dies_with_children", "error", "exited with code 3 without a result")
_worker("killed", "error", "ended by signal 9 .Killed., which this daemon did not send")
_worker("reaper_killed", "error", "may still be running", log="left over: its reaper was killed")
for _fault in ("floods_output", "leaves_children", "result_twice", "lingers"):
    change(_fault, (*AT_WORK, "stopping", "draining"), error="")
# The result stays valid, and the client gets it at once.
change("lingers", AT_WORK, log=f"does not end within {GRACE:g} s of its last message")

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
change("clock_ahead", ALL)
change("clock_back", ALL)
# These calls are due an hour ahead by the set clock, and wait until it is right again.
change("clock_back", ("ending", "delivering"), called=WebhookLimits().longest_sleep_s + CALLED)

# The disk.

_LOCKED = "another program holds it locked .database is locked"
change("db_locked", ALL, seconds=BUSY + HELD_UP, by=BUSY + HELD_UP, log=_LOCKED)
change("db_full", ALL, seconds=HELD_UP, by=HELD_UP, log="the disk of .* is full")
change("db_fails", ALL, seconds=HELD_UP, by=HELD_UP, log="its disk reports an error .disk I/O")
change("db_gone", ALL, seconds=HELD_UP, by=HELD_UP, log="its file was removed, or moved away$")
_REFUSED = {"db_locked": BUSY, "db_full": MOMENT, "db_fails": MOMENT, "db_gone": MOMENT}
for _fault, _within in _REFUSED.items():
    for _phase in ("idle", "storing"):
        _due = MATRIX.due((_fault, _phase))
        put(_fault, _phase, replace(_due, statuses=[503], seconds=_within))
# It depends on whether the executor runs again before the lock is released.
_due = MATRIX.due(("db_locked", "restarting"))
put("db_locked", "restarting", replace(_due, statuses=[200, 503]))
for _fault in ("db_full", "db_fails", "db_gone"):  # as soon as the executor runs again
    _due = MATRIX.due((_fault, "restarting"))
    put(_fault, "restarting", replace(_due, statuses=[503]))
# So many writes are under way then.
for _fault in ("db_fails", "db_gone"):
    for _phase, _records in (("ending", 2), ("delivering", 2), ("restarting", 3)):
        put(_fault, _phase, replace(MATRIX.due((_fault, _phase)), records=_records))
change("db_slow", ALL, seconds=SLOWLY, by=SLOWLY)
change("db_slow", "restarting", statuses=[200, 503], seconds=PATIENCE, by=SLOWLY)
# The file is not used in this phase, and the fault is over at the next start.
for _fault in ("db_locked", "db_full", "db_fails", "db_slow", "db_damaged", "db_gone"):
    change(_fault, "draining")

_ENDED = {
    "ends_daemon": True,
    "escalates": True,
    "restarts": (),
    "log": "journal failed: UnusableStore.*is damaged",
    "by": GIVEN_UP,
    "seconds": GIVEN_UP,
    "called": GIVEN_UP,
}
change("db_damaged", ("idle", "storing", "queued", "restarting"), statuses=[503], **_ENDED)
change("db_damaged", "delivering", statuses=[200, 503], **_ENDED)
change(
    "db_damaged",
    ("starting", *AT_WORK, "stopping", "ending"),
    statuses=[503],
    ends=["interrupted"],
    error=INTERRUPTED,
    **_ENDED,
)

# The service manager.

_STOPPED: dict[str, Any] = {"ends_daemon": True, "restarts": (), "by": GRACE + MOMENT}
_LEFT = {"ends": ["interrupted"], "error": INTERRUPTED, "log": LEFT}
change("sigterm", ALL, **_STOPPED)
put("sigterm", "draining", Impossible("it is being stopped already, by just that"))
change("sigterm", "idle", statuses=[0], **_STOPPED)
change("sigterm", ("starting", *AT_WORK), **{**_STOPPED, **_LEFT})
for _phase in ("storing", "restarting"):
    change("sigterm", _phase, seconds=RESTARTED, ends=["completed", "interrupted"], **_STOPPED)

change("sigkill", ALL, statuses=[0], **_STOPPED)
_CUT = {**_STOPPED, **_LEFT, "statuses": [0]}
change("sigkill", ("starting", *AT_WORK, "stopping", "ending"), **_CUT)
change("sigkill", "draining", statuses=[0])

# A bug in a part.

_WITH_JOURNAL = (("journal", 1), *EXECUTOR_RESTARTS)
_FAILED: dict[str, Any] = {"seconds": 2 * RESTARTED, "by": 2 * RESTARTED}
for _part, _fault, _restarts in (
    ("journal", "journal_fails", _WITH_JOURNAL),
    ("executor", "executor_fails", EXECUTOR_RESTARTS),
):
    _bug: dict[str, Any] = {
        **_FAILED,
        "restarts": _restarts,
        "log": f"{_part} failed: Failed",
    }
    change(_fault, ALL, **_bug)
    change(_fault, ("idle", "storing"), statuses=[200, 503], **_bug)
    _stored = {**_bug, "statuses": [200, 503], "by": ExecutorLimits().last_write_s + RESTARTED}
    change(_fault, "storing", **_stored, ends=["completed", "interrupted"])
    _left = {**_bug, "ends": ["interrupted"], "error": INTERRUPTED}
    change(_fault, ("starting", *AT_WORK), **_left)
    # The restart loses the stop.
    _recorded = ExecutorLimits().last_write_s if _part == "journal" else 0.0  # the last write fails
    change(_fault, "stopping", **{**_left, "statuses": [503], "by": GRACE + _recorded + RESTARTED})
    # No client is told that the end is stored; a waiting one sees it when its wait times out.
    change(_fault, "ending", **{**_bug, "seconds": WATCH})
    change(_fault, "draining")
put("executor_fails", "restarting", Impossible("it has failed already, and is not there"))
change("webhooks_fail", ALL, restarts=(("webhooks", 1),), log="webhooks failed: Failed")
put("webhooks_fail", "restarting", Impossible("they went down with the executor"))
put("webhooks_fail", "draining", Impossible("no calls are made any more by then"))
