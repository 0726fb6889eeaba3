"""Faults: what strikes a scene.

A strike is done in one go, without an await, so that nothing comes between it and what it strikes.
What is wrong with the machine (`ARMED`) is there before the phase begins, since it shows only when
a browser is launched.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable

from tests.fakes.gate import Gate
from tests.faults.phases import Scene
from tests.faults.stage import Stage

Strike = Callable[[Scene], None]
HOUR = 3600.0
TOO_LATE = 40.0
"""Seconds: past every deadline of a call."""
LATE = {
    "idle": "Runtime.evaluate",
    "starting": "Runtime.evaluate",
    "restarting": "Runtime.evaluate",
    "loading": "Page.navigate",
    "reading": "Runtime.evaluate",
    "disposing": "Target.disposeBrowserContext",
}
"""The call whose answer comes too late; of a submit it is the one for the answer's body."""


def sigkill(scene: Scene) -> None:
    scene.process.kill()


def sigstop(scene: Scene) -> None:
    scene.browser.stop()


def renderer_killed(scene: Scene) -> None:
    assert scene.tab is not None
    scene.tab.crash()


def endless_loop(scene: Scene) -> None:
    assert scene.tab is not None
    scene.tab.spin()


def websocket_reset(scene: Scene) -> None:
    scene.process.wires[-1].reset()


def reply_after_deadline(scene: Scene) -> None:
    scene.browser.be_late(LATE.get(scene.phase, "Network.getResponseBody"), TOO_LATE)


def clock_ahead(scene: Scene) -> None:
    scene.stage.wall.offset += HOUR


def clock_back(scene: Scene) -> None:
    scene.stage.wall.offset -= HOUR


def client_gone(scene: Scene) -> None:
    assert scene.victim is not None
    scene.victim.gone.set()


def sigterm(scene: Scene) -> None:
    scene.stage.stop()


STRIKES: dict[str, Strike] = {
    strike.__name__: strike
    for strike in (
        sigkill,
        sigstop,
        renderer_killed,
        endless_loop,
        websocket_reset,
        reply_after_deadline,
        clock_ahead,
        clock_back,
        client_gone,
        sigterm,
    )
}

# The portal: a fault of the sandbox's, by the point where it is met.

PORTAL = {
    "portal_slow": "slow",
    "portal_reset": "reset",
    "portal_500": "500",
    "portal_html": "html",
    "portal_truncated": "truncated",
    "portal_login": "login_redirect",
    "portal_human_check": "captcha",
}
OF_A_PAGE = {"html": "without_form", "truncated": "endless"}
"""A page is HTML anyway: what comes is one without the form, or half of one."""


def portal_strike(fault: str) -> Strike:
    """The fault's own answer to what the portal is being asked in this phase."""

    def strike(scene: Scene) -> None:
        play = PORTAL[fault]
        if scene.phase == "loading":
            name = f"page_{OF_A_PAGE.get(play, play)}"
        else:
            name = f"{'product' if scene.phase == 'reading' else 'submit'}_{play}"
        times = 2 if play == "reset" else 1  # the browser tries again by itself, here once
        scene.stage.portal.faults.arm(name, times=times, account=scene.account)

    return strike


STRIKES |= {fault: portal_strike(fault) for fault in PORTAL}

# The machine: what is wrong when the next browser is to be launched.

Arm = Callable[[Stage], None]


def launch_fails(stage: Stage) -> None:
    stage.machine.dies_early = "[1:ERROR:x.cc:1] out of luck"


def launch_hangs(stage: Stage) -> None:
    stage.machine.launching = Gate()


def executable_gone(stage: Stage) -> None:
    stage.machine.executable.unlink(missing_ok=True)


def profile_not_writable(stage: Stage) -> None:
    stage.machine.no_folder = PermissionError(errno.EACCES, os.strerror(errno.EACCES))


def disk_full(stage: Stage) -> None:
    stage.machine.no_folder = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def too_many_files(stage: Stage) -> None:
    stage.machine.no_process = OSError(errno.EMFILE, os.strerror(errno.EMFILE))


ARMED: dict[str, Arm] = {
    arm.__name__: arm
    for arm in (
        launch_fails,
        launch_hangs,
        executable_gone,
        profile_not_writable,
        disk_full,
        too_many_files,
    )
}
