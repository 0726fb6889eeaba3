"""`smartlinkd serve`: the daemon as a program, from its process's first step to its exit code.

A start is nearly all imports, and each has its place: first what closes the process to others, then
what takes over from the service manager, and the rest of the daemon while the configuration is
read. So this module begins with no more than `cli.py` has imported, and `processes`; its functions
import what is theirs.
"""

# ruff: noqa: PLC0415 - see above

from __future__ import annotations

import gc
import logging
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from importlib import import_module
from typing import TYPE_CHECKING

import trio

from smartlinkd import logs
from smartlinkd.commands.codes import FAILED, GOOD, REFUSED
from smartlinkd.config import ConfigError, Settings
from smartlinkd.errors import Refused, leaves
from smartlinkd.processes.allocator import return_large_blocks
from smartlinkd.processes.descriptors import allow_enough
from smartlinkd.processes.privacy import keep_private
from smartlinkd.state import NotSaved, StateUnusable

if TYPE_CHECKING:
    from smartlinkd.systemd.environment import SystemdEnvironment

logger = logging.getLogger(__name__)

_UNSAVED = "state.directory: %s; make room there, or let the daemon's user write to it"


def main(read: Callable[[], Settings]) -> int:
    """Serve until SIGTERM or Ctrl-C. `read` gives the settings, at the start and at each reload.

    `GOOD` when the daemon was ended in order, `FAILED` when it could not go on, `REFUSED` when its
    configuration is; why is in the log.
    """
    environment = _prepare()
    logs.set_up("info")  # until it is known; what is wrong with the settings is a record, too
    try:
        settings = _read_beside_the_imports(read)
    except ConfigError as wrong:
        _tell_of_the_refused(wrong, environment)
        return REFUSED
    logs.set_level(settings.logging.level)
    return _run(settings, environment, read)


def _prepare() -> SystemdEnvironment:
    """Close the process to others, before any secret is read, and take over what it was given."""
    keep_private()
    return_large_blocks()
    allow_enough()
    from smartlinkd.systemd.environment import pop_environment

    return pop_environment(os.environ)  # before a descriptor's number can be somebody else's


def _read_beside_the_imports(read: Callable[[], Settings]) -> Settings:
    """The settings, once the rest of the daemon is imported as well. Raises `ConfigError`."""
    gc.disable()  # it would go through what is imported, ten times, and find no garbage
    with ThreadPoolExecutor(1) as beside:
        # Most of that is the trial run of the password's hash, which needs no Python.
        reading = beside.submit(read)
        import_module("smartlinkd.tree")
    # What is here by now stays. Left to the collector, these 100 000 objects hold up all that runs
    # for a tenth of a second, every few hundred requests.
    gc.freeze()
    gc.enable()
    return reading.result()


def _tell_of_the_refused(wrong: ConfigError, environment: SystemdEnvironment) -> None:
    from smartlinkd.systemd.notify_socket import NotifySocket

    for problem in wrong.problems:
        logger.critical("%s", problem, extra=logs.LogEvent.CONFIG_REFUSED())
    # Between two tries, the log that `systemctl status` shows begins after these records.
    NotifySocket(environment.notify_socket).send_status(
        f"Ended: {' | '.join(map(str, wrong.problems))}"
    )


def _run(settings: Settings, environment: SystemdEnvironment, read: Callable[[], Settings]) -> int:
    """The daemon, from its first part to its last; what ends it is told in records."""
    from smartlinkd import tree
    from smartlinkd.supervision.supervisor import Escalated

    code = GOOD
    try:
        trio.run(tree.serve, settings, environment, read)
    except* (Refused, NotSaved, StateUnusable, Escalated) as expected:
        for error in leaves(expected):
            about = logs.LogEvent.ESCALATED() if isinstance(error, Escalated) else None
            text = _UNSAVED if isinstance(error, NotSaved) else "%s"
            logger.critical(text, error, extra=about)
        code = FAILED
    except* Exception as bug:
        # One record: a bare traceback is thirty to whoever collects the log.
        logger.critical("the daemon ended by a fault of its own", exc_info=bug)
        code = FAILED
    return code
