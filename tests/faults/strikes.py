"""Faults of the browser, the portal and the machine.

A strike is a plain function that injects one fault, so no task runs between it and its target. An
`ARMED` fault is injected before the phase, as it strikes only when a browser is launched.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from typing import Any

from tests.fakes.gate import Gate
from tests.fakes.tab import Tab
from tests.faults.phases import Scene
from tests.faults.stage import Stage

Strike = Callable[[Scene], object]
HOUR = 3600.0  # seconds
TOO_LATE = 40.0
"""Seconds: more than the deadline of every call."""
LATE = {
    "idle": "Runtime.callFunctionOn",
    "starting": "Runtime.callFunctionOn",
    "restarting": "Runtime.callFunctionOn",
    "loading": "Page.navigate",
    "reading": "Runtime.callFunctionOn",
    "disposing": "Target.disposeBrowserContext",
}
"""The call whose answer is late, by phase. In all others it is Network.getResponseBody."""


def reply_after_deadline(scene: Scene) -> None:
    scene.browser.delay_answer(LATE.get(scene.phase, "Network.getResponseBody"), TOO_LATE)


def in_tab(action: Callable[[Tab], None]) -> Strike:
    def strike(scene: Scene) -> None:
        assert scene.tab is not None
        action(scene.tab)

    return strike


def clock_set(seconds: float) -> Callable[[Any], None]:
    def strike(scene: Any) -> None:
        scene.stage.wall.offset += seconds

    return strike


COMMON: dict[str, Callable[[Any], object]] = {
    "clock_ahead": clock_set(HOUR),
    "clock_back": clock_set(-HOUR),
    "client_gone": lambda scene: scene.victim.gone.set(),
    "sigterm": lambda scene: scene.stage.stop(),
}
"""Strikes of both matrices: the wall clock, the client and the service manager."""

STRIKES: dict[str, Strike] = {
    "sigkill": lambda scene: scene.process.kill(),
    "sigstop": lambda scene: scene.browser.stop(),
    "renderer_killed": in_tab(Tab.crash),
    "endless_loop": in_tab(Tab.spin),
    "websocket_reset": lambda scene: scene.process.wires[-1].reset(),
    "reply_after_deadline": reply_after_deadline,
    **COMMON,
}

# The portal: the sandbox's faults. Their names say where they strike.

PORTAL = {
    "portal_slow": "slow",
    "portal_reset": "reset",
    "portal_500": "500",
    "portal_html": "html",
    "portal_truncated": "truncated",
    "portal_login": "login_redirect",
    "portal_human_check": "captcha",
}
PAGE_FAULTS = {"html": "without_form", "truncated": "endless"}
"""The equivalent fault of a page, which is HTML anyway."""


def portal_strike(fault: str) -> Strike:
    """Arm the fault for the request that the portal gets in the scene's phase."""

    def strike(scene: Scene) -> None:
        kind = PORTAL[fault]
        if scene.phase == "loading":
            name = f"page_{PAGE_FAULTS.get(kind, kind)}"
        else:
            name = f"{'product' if scene.phase == 'reading' else 'submit'}_{kind}"
        times = 2 if kind == "reset" else 1  # the fake browser retries a reset request once
        scene.stage.portal.arm(name, times=times, account=scene.account)

    return strike


STRIKES |= {fault: portal_strike(fault) for fault in PORTAL}

# The machine: faults of the next browser's launch.

Arm = Callable[[Stage], object]


def launch_fails(stage: Stage) -> None:
    stage.machine.early_exit_stderr = "[1:ERROR:x.cc:1] out of luck"


def launch_hangs(stage: Stage) -> None:
    stage.machine.launching = Gate()


def no_folder(number: int) -> Arm:
    def arm(stage: Stage) -> None:
        stage.machine.folder_error = OSError(number, os.strerror(number))

    return arm


def too_many_files(stage: Stage) -> None:
    stage.machine.start_error = OSError(errno.EMFILE, os.strerror(errno.EMFILE))


ARMED: dict[str, Arm] = {
    "launch_fails": launch_fails,
    "launch_hangs": launch_hangs,
    "executable_gone": lambda stage: stage.machine.executable.unlink(missing_ok=True),
    "profile_not_writable": no_folder(errno.EACCES),
    "disk_full": no_folder(errno.ENOSPC),
    "too_many_files": too_many_files,
}
