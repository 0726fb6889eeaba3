"""The fault matrix of the browser and the portal: faults by phases.

A cell is `Due`, the outcome for the client, or `Impossible`. `play.py` checks what is due in every
cell: the next request succeeds, and nothing is left.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tests.faults.cells import Impossible, Matrix
from tests.faults.phases import ARMED_PHASES, PHASES
from tests.faults.strikes import ARMED, PORTAL

# Seconds on the mock clock.
MOMENT = 0.1  # nothing is waited for
EXIT = 0.7  # after its socket closes, the process's end is waited for
LIVED = 2.2  # the deadline of a tab's liveness check has passed
SUBMITTED = 1.0  # one or two submits, including the load of a page
UNRESPONSIVE = 7.0  # the canary has found the browser unresponsive
ANSWERED = 10.2  # a call's deadline has passed
LOOKED_AT = 11.0  # during a submit, the deadline of a look at the page has passed
LOADED = 30.2  # the deadline of a page or of a submit's answer has passed
MOUNTED = 15.5  # the time for a page to show its form has passed
SETTLED = 2.5  # the time for a page to redirect has passed


@dataclass(frozen=True)
class Due:
    """The due outcome of a cell.

    `statuses` are allowed for the victim's answer (0: none), within `seconds` of the strike.
    `restarts` are the browser's, by reason. `unready`: readiness is lost. `log` matches exactly one
    warning; if it is empty, nothing is logged as a warning. `data`: a 200 has product data;
    `next_data`: the next one has.
    """

    statuses: frozenset[int]
    seconds: float
    restarts: tuple[str, ...] = ()
    unready: bool = False
    log: str = ""
    data: bool = True
    next_data: bool = True


ALL = tuple(PHASES)
DOWN = ("starting", "restarting")

MATRIX = Matrix[Due]()
put, change = MATRIX.put, MATRIX.change


def due(*statuses: int, within: float = MOMENT, **more: Any) -> Due:
    return Due(frozenset(statuses), within, **more)


# The browser has to be replaced.


_SILENT = "launch failed: the browser did not answer"
_BROWSER = {
    "sigkill": ("crashed", EXIT, " Chromium ended: signal 9"),
    "websocket_reset": ("disconnected", EXIT, ""),
    "sigstop": ("unresponsive", UNRESPONSIVE, ""),
}
for _fault, (_kind, _within, _log) in _BROWSER.items():
    _log = f"restarted: {_kind}:{_log}"
    put(_fault, ALL, due(502, within=_within, restarts=(_kind,), unready=True, log=_log))
change(_BROWSER, ("idle", "queued"), statuses=frozenset({502, 503}))
change(_BROWSER, "reading", statuses=frozenset({200}), data=False)
# When the next browser is up, only the work that is on the old one is lost.
_LOST_WORK = "links were refused: the browser ended in the midst of it"
change(_BROWSER, "draining", restarts=(), unready=False, log=_LOST_WORK)
put(_BROWSER, DOWN, due(503, restarts=("launch failed",), unready=True))
change("sigkill", DOWN, log="launch failed: Chromium ended at once with signal 9")
change("websocket_reset", DOWN, log="launch failed: the connection to the browser has ended")
change("sigstop", DOWN, log=_SILENT)

# A tab has to be replaced.

_CRASHED = "the tab crashed"
put("renderer_killed", ALL, due(502, log=_CRASHED))
put("renderer_killed", "idle", due(200, within=SUBMITTED))  # no work is on it
put("renderer_killed", DOWN, due(503, restarts=("launch failed",), unready=True, log=_CRASHED))
put("renderer_killed", "queued", due(200, within=SUBMITTED, log=_CRASHED))
put("renderer_killed", "reading", due(200, data=False, log=_CRASHED))
put("renderer_killed", "disposing", due(200, within=SUBMITTED))  # its work has ended

_NO_DATA = "product data is not read for a minute: .* within 9 seconds"
_ABSENT = "it was not there within 30 s"
_NO_ANSWER = "the browser did not answer Runtime"
put("endless_loop", ALL, due(502, within=LOOKED_AT, log=_NO_ANSWER))
put("endless_loop", "queued", due(200, within=LOOKED_AT + SUBMITTED, log=_NO_ANSWER))
put("endless_loop", "disposing", due(200, within=SUBMITTED))

_LATE = "the browser did not answer"
put("reply_after_deadline", ALL, due(502, within=ANSWERED + SETTLED, log=_LATE))
put("reply_after_deadline", "queued", due(200, within=LOOKED_AT + SETTLED, log=_LATE))
put(
    "reply_after_deadline",
    "disposing",
    due(
        200,
        within=SETTLED + SUBMITTED,
        restarts=("recycled",),
        log="restarted: recycled: it did not dispose of a context",
    ),
)

_STUCK = ("endless_loop", "reply_after_deadline")
put(_STUCK, "idle", due(200, within=LIVED + SUBMITTED))  # no work is on it
put(_STUCK, DOWN, due(503, restarts=("launch failed",), unready=True, log=_SILENT))
put(_STUCK, "loading", due(502, within=LOADED, log=_ABSENT))
put(_STUCK, "reading", due(200, within=ANSWERED, log=_NO_DATA, data=False, next_data=False))

# Faults without effect.

for _fault in ("clock_ahead", "clock_back"):
    put(_fault, ALL, due(200, within=SUBMITTED))
    put(_fault, DOWN, due(503, unready=True, log="links were refused: the browser is starting"))

# The client, and the service manager.

put("client_gone", ALL, due(0))
put("client_gone", ("idle", *DOWN), Impossible("a request in this phase is answered at once"))
put("sigterm", ALL, due(200, within=SUBMITTED, unready=True))
put("sigterm", DOWN, due(503, unready=True, log="links were refused: the browser is starting"))

# The portal.

put(PORTAL, ALL, Impossible("the daemon sends the portal no request in this phase"))


def _portal(
    fault: str, said: str, within: float, *, page: tuple[str, float], session: bool
) -> None:
    """Put a portal fault. `session`: it ends the cookie's session or asks for a human check."""
    put(fault, ("submitting", "draining"), due(502, within=within, log=said))
    put(fault, "queued", due(502 if session else 200, within=within + SUBMITTED, log=said))
    put(fault, "loading", due(502, within=page[1], log=page[0]))
    put(
        fault,
        "reading",
        due(200, within=within, log=said, data=False, next_data=fault != "portal_slow"),
    )


_LOST = "links were refused: the affiliate portal wants a login"
_CHECK = "links were refused: the affiliate portal asks for a human check"
_portal("portal_slow", "did not answer", LOADED, page=(_ABSENT, LOADED), session=False)
_portal("portal_reset", "broke off", SETTLED, page=("ERR_CONNECTION_RESET", MOMENT), session=False)
_portal("portal_500", "HTTP 500", MOMENT, page=("HTTP 500", MOMENT), session=False)
_portal(
    "portal_html", _LOST, MOMENT, page=("no form on its custom link page", MOUNTED), session=True
)
_portal("portal_truncated", "its answer is not JSON", MOMENT, page=(_ABSENT, LOADED), session=False)
_portal("portal_login", _LOST, SETTLED, page=(_LOST, MOMENT), session=True)
_portal("portal_human_check", _CHECK, SETTLED, page=(_CHECK, MOMENT), session=True)
_REFUSED_DATA = "product data is not read for a while"
for _fault in ("portal_html", "portal_login"):
    put(_fault, "reading", due(200, within=SETTLED, log=_REFUSED_DATA, data=False, next_data=False))
put(
    "portal_human_check",
    "reading",
    due(200, within=SETTLED, log="is now paused: the affiliate portal asks", data=False),
)

# The machine.

put(
    ARMED,
    ALL,
    Impossible("no browser is launched in this phase, and a running one is not affected"),
)
_LAUNCH = {
    "launch_fails": "launch failed: Chromium ended at once with exit code 1: out of luck",
    "launch_hangs": r"launch failed: Chromium was not ready within 20 s \(browser.start_timeout\)",
    "executable_gone": "launch failed: browser.executable: there is no file",
    "profile_not_writable": "launch failed: .* Permission denied",
    "disk_full": "launch failed: .* No space left on device",
    "too_many_files": "launch failed: .* Too many open files",
}
for _fault, _log in _LAUNCH.items():
    put(_fault, "starting", due(503, restarts=("launch failed",), unready=True, log=_log))
    put(
        _fault,
        "restarting",
        due(503, restarts=("crashed", "launch failed"), unready=True, log=_log),
    )
    # The old browser serves until the new one is up.
    put(
        _fault,
        "draining",
        due(200, within=SUBMITTED, restarts=("recycled", "launch failed"), log=_log),
    )

assert all(phase in ARMED_PHASES for fault, phase in MATRIX.cells if fault in ARMED)
