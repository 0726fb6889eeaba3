"""`smartlinkd serve`: the process of the daemon, from its first step to its exit code.

`app/tree.py` runs the actors and stops them at SIGTERM.
"""

from __future__ import annotations

import gc
import logging
import os
from collections.abc import Callable

import trio

from smartlinkd import logs
from smartlinkd.app import tree
from smartlinkd.commands.codes import FAILED, GOOD, UNUSABLE
from smartlinkd.config import ConfigError, Settings
from smartlinkd.errors import Refused, leaves
from smartlinkd.processes.process_limits import (
    make_private,
    raise_descriptor_limit,
    return_large_blocks,
)
from smartlinkd.state_files import NotSaved, StateUnusable
from smartlinkd.supervision.supervisor import Escalated
from smartlinkd.systemd.environment import SystemdEnvironment, pop_environment
from smartlinkd.systemd.notify_socket import NotifySocket

logger = logging.getLogger(__name__)

_UNSAVED = "state.directory: %s; make room there, or let the daemon's user write to it"


def main(read: Callable[[], Settings]) -> int:
    """Serve until SIGTERM or Ctrl-C.

    Args:
        read: returns the settings, at the start and at each reload.

    Return `GOOD` after an orderly stop, `FAILED` if the daemon could not go on, `UNUSABLE` if the
    configuration is wrong. The log has the reason.
    """
    make_private()  # before secrets are read
    raise_descriptor_limit()
    return_large_blocks()
    environment = pop_environment(os.environ)
    # The 100 000 objects of the imported modules stay for ever. Each scan of them would stop the
    # daemon for 0.1 s, every few hundred requests.
    gc.freeze()
    gc.enable()
    logs.set_up("info")  # until the level is known: problems of the settings are logged too
    try:
        settings = read()
    except ConfigError as wrong:
        _report_refused_config(wrong, environment)
        return UNUSABLE
    logs.set_level(settings.logging.level)
    return _run(settings, environment, read)


def _report_refused_config(wrong: ConfigError, environment: SystemdEnvironment) -> None:
    for problem in wrong.problems:
        logger.critical("%s", problem, extra=logs.LogEvent.CONFIG_REFUSED())
    # Between two starts, `systemctl status` shows this, but not the records above.
    NotifySocket(environment.notify_socket).send_status(
        f"Ended: {' | '.join(map(str, wrong.problems))}"
    )


def _run(settings: Settings, environment: SystemdEnvironment, read: Callable[[], Settings]) -> int:
    """Run the daemon, and log the error that ends it. Return the exit code."""
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
