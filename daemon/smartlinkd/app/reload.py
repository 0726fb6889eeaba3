"""SIGHUP: the configuration is read again, and what can change in a running daemon changes.

The problem: an owner who adds a crew or lets one more address in does not want to end what runs for
that; and whoever makes a slip in the file wants to hear of it, and not to lose the daemon that
works by the old one.

The choice: all or nothing, then part by part. A file that the daemon would not start with, or with
which a crew could not run that can run now, is told in the log and changes nothing. That is also
one without a crew that is there now, while an entry in it has no name of its own: a crew that is
taken out loses what waits for it, and a slip in its name must not do that. Otherwise each part
takes what is its own, in one step; what may wait for the disk comes last. What needs a restart
(`smartlinkd/config/checks.py`) is named.

The part that waits for SIGHUP is not there from the first moment to the last, and the kernel ends a
process that does not wait for it. So `never_ended_by_hangup` is around all parts: a reload that
comes while the daemon starts or drains is none, and costs nobody an answer.

A part that is being restarted in that very moment has taken its share all the same: it is kept
outside of the instance that is gone, and the next one begins with it.
"""

from __future__ import annotations

import logging
import signal
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial

import trio

from smartlinkd import logs
from smartlinkd.app.components import Crews, history_retention, read_crews, retention
from smartlinkd.app.http_apps import HttpApps
from smartlinkd.app.listeners import Listeners
from smartlinkd.auth.actor import Auth
from smartlinkd.config.checks import Changes, changes, out_of_reach
from smartlinkd.config.loading import ConfigError
from smartlinkd.config.settings import Settings
from smartlinkd.crews.catalog.catalog import Catalog, log_broken
from smartlinkd.errors import Unavailable
from smartlinkd.history.actor import History
from smartlinkd.logs import LogEvent
from smartlinkd.processes.process_limits import memory_limit
from smartlinkd.supervision.actor import ActorGone
from smartlinkd.systemd.manager import ServiceManager
from smartlinkd.threads import NoThread, on_thread

logger = logging.getLogger(__name__)

Reread = Callable[[], Settings]
"""Reads the configuration as it was read at the start. Blocks. Raises `ConfigError`."""


@contextmanager
def never_ended_by_hangup() -> Iterator[None]:
    """Let SIGHUP do nothing where nobody waits for it."""
    # A function, since what is ignored is ignored by the programs that are started, too.
    before = signal.signal(signal.SIGHUP, lambda _number, _frame: None)
    try:
        yield
    finally:
        signal.signal(signal.SIGHUP, before)


@dataclass(frozen=True)
class Takers:
    """The parts that can go by another configuration while they run."""

    auth: Auth
    history: History
    crews: Crews
    http_apps: HttpApps
    service_manager: ServiceManager
    graces: Callable[[Catalog], None]
    """Sees to it that workers of these crews can be stopped as their crews were promised."""


class Reloader:
    """A supervised part: it waits for SIGHUP."""

    def __init__(
        self, reread: Reread, settings: Settings, takers: Takers, listeners: Listeners
    ) -> None:
        """`settings` are those that the daemon has been started with, `listeners` its sockets."""
        self._reread = reread
        self._settings = settings
        self._takers = takers
        self._listeners = listeners

    async def run(self, task_status: trio.TaskStatus[None]) -> None:
        """Reload at every SIGHUP. Several that come during a reload are one more."""
        with trio.open_signal_receiver(signal.SIGHUP) as signals:
            task_status.started()
            async for _ in signals:
                with self._takers.service_manager.notify_reload():
                    await self._reload()

    async def _reload(self) -> None:
        """Read the configuration, and apply it or log what is wrong with it."""
        try:
            found = changes(self._settings, await on_thread(self._reread))
            catalog = await read_crews(found.settings, self._takers.service_manager)
            _check_still_runs(self._takers.crews.executor.catalog, catalog)
        except ConfigError as error:
            _tell_refused(error)
        except NoThread as error:
            text = "the configuration is not reloaded, the daemon goes on by the one before: %s"
            logger.error(text, error, extra=LogEvent.CONFIG_REFUSED())  # noqa: TRY400 - that is all of it
        else:
            await self._apply(found, catalog)

    async def _apply(self, found: Changes, catalog: Catalog) -> None:
        settings, crews = found.settings, self._takers.crews
        logs.set_level(settings.logging.level)
        # Nobody is let in to a crew before it is there, or finds one that is going to be none.
        self._takers.graces(catalog)
        await self._insist(partial(crews.executor.apply_catalog, catalog))
        await self._insist(partial(crews.tokens.set_users, catalog.users()))
        self._takers.http_apps.apply_config(settings, catalog)
        crews.store.set_retention(retention(settings))
        self._takers.history.set_retention(history_retention(settings))
        if "auth.password_hash" in found.applied:
            password = settings.auth.password_hash
            await self._insist(partial(self._takers.auth.change_password, password))
        self._settings = settings
        unmet = out_of_reach(settings, memory_limit())
        for warning in (*settings.warnings, *self._listeners.warnings(settings), *unmet):
            logger.warning("%s", warning)
        if self._listeners.is_activated and "server.bind" in found.waiting:
            logger.warning(
                "the service manager holds the address, so no restart changes server.bind: "
                "`sudo ./run install` does, for an instance with its --instance NAME"
            )
        _tell(found, catalog, self._moved(catalog))

    async def _insist(self, take: Callable[[], Awaitable[None]]) -> None:
        # While one that waits is reloading for the service manager, that sends it no other SIGHUP.
        await _until_taken(take, self._takers.service_manager.notify_ready)

    def _moved(self, catalog: Catalog) -> list[str]:
        """The crews whose own address is not the one that they are to have."""
        here, wanted = self._listeners.crew_binds, catalog.binds()
        names = [name for name in {**here, **wanted} if here.get(name) != wanted.get(name)]
        return [f"bind of crew {name}" for name in names]


async def _until_taken(take: Callable[[], Awaitable[None]], waits: Callable[[], None]) -> None:
    """Ask until it was taken: a part that is busy, is being restarted or finds the disk full takes
    it when it said, and `waits` is told. One that is gone for good is gone with the daemon."""
    level = logging.WARNING
    while True:
        try:
            return await take()
        except ActorGone:
            return None
        except Unavailable as refusal:
            text = "a change is in force in part, and the rest has to wait: %s"
            logger.log(level, text, refusal)
            level = logging.INFO
            waits()
            await trio.sleep(refusal.retry_after)


def _check_still_runs(old: Catalog, new: Catalog) -> None:
    """Raises `ConfigError` for what is wrong with crews that can run now, or with what may be one
    that is there now."""
    faulty = [each for each in new.broken if each.name in old.crews]
    if set(old.names()) - set(new.names()):
        faulty += [each for each in new.broken if each.name is None]
    problems = [problem for each in faulty for problem in each.problems]
    if problems:
        raise ConfigError(problems)


def _tell_refused(error: ConfigError) -> None:
    for problem in error.problems:
        logger.error("the configuration is not reloaded: %s", problem)
    text = "the configuration has %d problem(s): the daemon goes on by the one before"
    logger.error(text, len(error.problems), extra=LogEvent.CONFIG_REFUSED())


def _tell(found: Changes, catalog: Catalog, moved: Sequence[str]) -> None:
    log_broken(catalog)
    waiting = [*found.waiting, *moved]
    if waiting:
        logger.warning("these changes need a restart: %s", ", ".join(waiting))
    taken = ", ".join(found.applied) or f"nothing {'else ' if waiting else ''}has changed in it"
    logger.info("the configuration is reloaded: %s", taken, extra=LogEvent.CONFIG_RELOADED())
