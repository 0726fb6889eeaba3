"""`smartlinkd serve`: the process of the daemon, from its first step to its exit code.

Most of a start is imports, so their order counts. First the process is made private, then the
service manager's descriptors are taken over. The other modules are imported while the configuration
is read, so this module imports hardly anything that `cli.py` has not. `serve` in `app/tree.py` runs
the actors and stops them at SIGTERM.
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
from smartlinkd.commands.codes import FAILED, GOOD, UNUSABLE
from smartlinkd.config import ConfigError, Settings
from smartlinkd.errors import Refused, leaves
from smartlinkd.processes.process_limits import (
    make_private,
    raise_descriptor_limit,
    return_large_blocks,
)
from smartlinkd.state_files import NotSaved, StateUnusable

if TYPE_CHECKING:
    from smartlinkd.systemd.environment import SystemdEnvironment

logger = logging.getLogger(__name__)

_UNSAVED = "state.directory: %s; make room there, or let the daemon's user write to it"


def main(read: Callable[[], Settings]) -> int:
    """Serve until SIGTERM or Ctrl-C.

    Args:
        read: returns the settings, at the start and at each reload.

    Return `GOOD` after an orderly stop, `FAILED` if the daemon could not go on, `UNUSABLE` if the
    configuration is wrong. The log has the reason.
    """
    environment = _prepare()
    logs.set_up("info")  # until the level is known: problems of the settings are logged too
    try:
        settings = _read_while_importing(read)
    except ConfigError as wrong:
        _report_refused_config(wrong, environment)
        return UNUSABLE
    logs.set_level(settings.logging.level)
    return _run(settings, environment, read)


def _prepare() -> SystemdEnvironment:
    """Make the process private, before secrets are read, and take over inherited descriptors."""
    make_private()
    raise_descriptor_limit()
    return_large_blocks()
    from smartlinkd.systemd.environment import pop_environment

    return pop_environment(os.environ)  # before other files can get a descriptor's number


def _read_while_importing(read: Callable[[], Settings]) -> Settings:
    """Return the settings, after importing the rest of the daemon. Raises `ConfigError`."""
    gc.disable()  # it would scan the imported modules ten times and find no garbage
    with ThreadPoolExecutor(1) as executor:
        # Most of this is the trial run of the password's hash, outside of the interpreter lock.
        reading = executor.submit(read)
        import_module("smartlinkd.app.tree")
    # These 100 000 objects stay for ever. Each scan of them would stop the daemon for 0.1 s, every
    # few hundred requests.
    gc.freeze()
    gc.enable()
    return reading.result()


def _report_refused_config(wrong: ConfigError, environment: SystemdEnvironment) -> None:
    from smartlinkd.systemd.notify_socket import NotifySocket

    for problem in wrong.problems:
        logger.critical("%s", problem, extra=logs.LogEvent.CONFIG_REFUSED())
    # Between two starts, `systemctl status` shows this, but not the records above.
    NotifySocket(environment.notify_socket).send_status(
        f"Ended: {' | '.join(map(str, wrong.problems))}"
    )


def _run(settings: Settings, environment: SystemdEnvironment, read: Callable[[], Settings]) -> int:
    """Run the daemon, and log the error that ends it. Return the exit code."""
    from smartlinkd.app import tree
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
        # As one record: log collectors would take a bare traceback for thirty.
        logger.critical("the daemon ended by a fault of its own", exc_info=bug)
        code = FAILED
    return code
