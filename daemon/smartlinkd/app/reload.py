"""SIGHUP: the configuration is read again, and applied to the running daemon.

A file with which the daemon would not start, or with which a crew that runs now could not run, is
logged and changes nothing. Otherwise each actor applies its own settings; what waits for the disk
comes last. The log names what needs a restart (config/checks.py). See
docs/decisions/046-live-settings.md.
"""

from __future__ import annotations

import logging
import signal
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial

import trio

from smartlinkd import logs
from smartlinkd.app.components import Components, history_retention, read_crews, retention
from smartlinkd.app.http_apps import HttpApps
from smartlinkd.app.listeners import Listeners
from smartlinkd.config.checks import Changes, changes
from smartlinkd.config.loading import ConfigError
from smartlinkd.config.settings import Settings
from smartlinkd.crews.catalog.catalog import Catalog, log_broken
from smartlinkd.errors import Unavailable
from smartlinkd.logs import LogEvent
from smartlinkd.supervision.actor import ActorGone
from smartlinkd.supervision.calls import retry_until_success
from smartlinkd.threads import NoThread, on_thread

logger = logging.getLogger(__name__)

ReadSettings = Callable[[], Settings]
"""Reads the configuration as at the start. Blocks. Raises `ConfigError`."""


@contextmanager
def ignore_hangup() -> Iterator[None]:
    """Ignore SIGHUP in the block while no task waits for it, such as during a start or a stop.

    The kernel would end the process.
    """
    # A function and not SIG_IGN: programs that the daemon starts would inherit that.
    before = signal.signal(signal.SIGHUP, lambda _number, _frame: None)
    try:
        yield
    finally:
        signal.signal(signal.SIGHUP, before)


class Reloader:
    """A supervised actor that waits for SIGHUP."""

    def __init__(
        self,
        read_settings: ReadSettings,
        settings: Settings,
        components: Components,
        http_apps: HttpApps,
        listeners: Listeners,
        *,
        set_graces: Callable[[Catalog], None],
    ) -> None:
        """`settings` are the start's. `set_graces` extends supervisors' graces to a catalog's."""
        self._read_settings = read_settings
        self._settings = settings
        self._components = components
        self._http_apps = http_apps
        self._listeners = listeners
        self._set_graces = set_graces

    async def run(self, task_status: trio.TaskStatus[None]) -> None:
        """Reload at every SIGHUP. Several during a reload cause one more."""
        with trio.open_signal_receiver(signal.SIGHUP) as signals:
            task_status.started()
            async for _ in signals:
                with self._components.service_manager.notify_reload():
                    await self._reload()

    async def _reload(self) -> None:
        """Read the configuration, and apply it or log what is wrong with it."""
        try:
            found = changes(self._settings, await on_thread(self._read_settings))
            catalog = await read_crews(found.settings, self._components.service_manager)
            _check_still_runs(self._components.crews.executor.catalog, catalog)
        except ConfigError as error:
            _log_refused(error)
        except NoThread as error:
            text = "the configuration is not reloaded, the daemon goes on by the one before: %s"
            logger.error(text, error, extra=LogEvent.CONFIG_REFUSED())  # noqa: TRY400 - the text says all
        else:
            await self._apply(found, catalog)

    async def _apply(self, found: Changes, catalog: Catalog) -> None:
        settings, crews = found.settings, self._components.crews
        logs.set_level(settings.logging.level)
        # Whoever is shut out is shut out at once. Then the crews, and last who may call them: a
        # token opens no crew that is not there yet.
        self._http_apps.apply_config(settings)
        self._set_graces(catalog)
        await self._apply_to(partial(crews.executor.apply_catalog, catalog))
        await self._apply_to(partial(crews.tokens.set_users, catalog.users()))
        self._http_apps.apply_config(settings)  # for another default crew
        crews.store.set_retention(retention(settings))
        self._components.history.set_retention(history_retention(settings))
        if "auth.password_hash" in found.applied:
            password = settings.auth.password_hash
            await self._apply_to(partial(self._components.auth.change_password, password))
        self._settings = settings
        for warning in (*settings.warnings, *self._listeners.warnings(settings)):
            logger.warning("%s", warning)
        if self._listeners.is_activated and "server.bind" in found.waiting:
            logger.warning(
                "the service manager holds the address, so no restart changes server.bind: "
                "`sudo ./run install` does, for an instance with its --instance NAME"
            )
        _log_applied(found, catalog, self._with_other_bind(catalog))

    async def _apply_to(self, apply: Callable[[], Awaitable[None]]) -> None:
        """Apply a change as soon as its actor can: it may be busy, restarting, or out of disk."""

        async def wait(refusal: Unavailable, attempts: int) -> None:
            if isinstance(refusal, ActorGone):
                raise refusal
            level = logging.WARNING if attempts == 1 else logging.INFO
            logger.log(level, "a change is in force in part, and the rest has to wait: %s", refusal)
            # systemd sends no further SIGHUP while the daemon reports a reload.
            self._components.service_manager.notify_ready()
            await trio.sleep(refusal.retry_after)

        with suppress(ActorGone):  # the daemon is stopping
            await retry_until_success(apply, wait)

    def _with_other_bind(self, catalog: Catalog) -> list[str]:
        """Name the crews whose configured address is another one than that of their socket."""
        here, wanted = self._listeners.crew_binds, catalog.binds()
        names = [name for name in {**here, **wanted} if here.get(name) != wanted.get(name)]
        return [f"bind of crew {name}" for name in names]


def _check_still_runs(old: Catalog, new: Catalog) -> None:
    """Raise `ConfigError` if a crew that runs now could not run with the new configuration.

    An entry without a readable name may be a crew that runs now.
    """
    faulty = [each for each in new.broken if each.name in old.crews]
    if set(old.names()) - set(new.names()):
        faulty += [each for each in new.broken if each.name is None]
    problems = [problem for each in faulty for problem in each.problems]
    if problems:
        raise ConfigError(problems)


def _log_refused(error: ConfigError) -> None:
    for problem in error.problems:
        logger.error("the configuration is not reloaded: %s", problem)
    text = "the configuration has %d problem(s): the daemon goes on by the one before"
    logger.error(text, len(error.problems), extra=LogEvent.CONFIG_REFUSED())


def _log_applied(found: Changes, catalog: Catalog, moved: Sequence[str]) -> None:
    log_broken(catalog)
    waiting = [*found.waiting, *moved]
    if waiting:
        logger.warning("these changes need a restart: %s", ", ".join(waiting))
    taken = ", ".join(found.applied) or f"nothing {'else ' if waiting else ''}has changed in it"
    logger.info("the configuration is reloaded: %s", taken, extra=LogEvent.CONFIG_RELOADED())
