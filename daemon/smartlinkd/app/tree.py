"""The supervision tree: who starts, in what order, and on whom each part depends.

    service…      what the service manager is told all of the below; only where there is one
    pauses        those of accounts, on disk       nobody
    notify        what the owner is told of        pauses; only where it is configured
    auth          tokens, second factor            nobody
    vault         the cookie                       nobody
    history       converted links on disk          nobody
    browser       a Chromium                       nobody
    conversion    affiliate links are made          browser, or the APIs instead of it
    crew tokens   who may call which crew          nobody
    crews         a supervisor of three:
      journal     executions on disk               nobody
      executor    whose turn it is, workers        journal; conversion, for its workers
      webhooks    calls to other people's servers  journal
    http          the facade                       all of the above
    http of …     that of a crew with a `bind`     crews, crew tokens
    monitoring    a day of measurements            all of the above
    reloading     SIGHUP                           all of the above
    control       the owner's shell                all of the above

They start from top to bottom and stop from bottom to top, so that whoever is asked is there before
and after those who ask. The executor goes on from what the journal has, so the three of `crews` are
rest_for_one: it starts again whenever the journal does. The parts themselves are made in
`smartlinkd/app/components.py`.
"""

from __future__ import annotations

import logging
import signal
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import trio

from smartlinkd.admin.control_socket import ControlSocket
from smartlinkd.admin.prometheus import Metrics
from smartlinkd.admin.status import Operator
from smartlinkd.api.services import CrewServices, Services
from smartlinkd.app.components import (
    Crews,
    make_browser,
    make_conversion,
    make_crews,
    make_history,
    make_notifier,
    read_crews,
)
from smartlinkd.app.http_apps import HttpApps, api_rules
from smartlinkd.app.listeners import Listeners, open_listeners
from smartlinkd.app.reload import Reloader, Reread, Takers, never_ended_by_hangup
from smartlinkd.auth.actor import Auth
from smartlinkd.browser.actor import Browser
from smartlinkd.config.checks import out_of_reach
from smartlinkd.config.settings import Settings
from smartlinkd.conversion.pause_store import PauseStore
from smartlinkd.conversion.service import ConversionService
from smartlinkd.crews.catalog.catalog import Catalog, log_broken
from smartlinkd.history.actor import History
from smartlinkd.logs import LogEvent
from smartlinkd.monitoring.log_buffer import LogBuffer
from smartlinkd.monitoring.series import Recorder, counted, increase, mean_of, resident_bytes
from smartlinkd.net.client import HttpClient
from smartlinkd.net.dns import install_resolver
from smartlinkd.notify.actor import Notifier
from smartlinkd.nurseries import sole_error
from smartlinkd.processes.process_limits import memory_limit
from smartlinkd.processes.process_tree import Limits, shared_fork_server
from smartlinkd.state_files import claim
from smartlinkd.supervision.actor import Queue
from smartlinkd.supervision.child import ChildSnapshot, ChildSpec
from smartlinkd.supervision.heartbeat import Heartbeat
from smartlinkd.supervision.policy import Strategy
from smartlinkd.supervision.supervisor import Supervisor
from smartlinkd.systemd.environment import NO_SYSTEMD, SystemdEnvironment
from smartlinkd.systemd.manager import GRACE_S, ServiceManager, StatusReporter
from smartlinkd.systemd.status_line import REPORTER_NAME
from smartlinkd.vault.actor import Vault
from smartlinkd.web.bundle import Site

logger = logging.getLogger(__name__)

LAST_WRITES = 5.0
"""Seconds beyond a grace: for answers under way to clients that read slowly, and for what is to be
written down of a worker that was stopped."""

DISK_PATIENCE = 60.0
"""Seconds more than others that what writes may hang: in one transaction, on a disk that stalls; so
may whoever waits for that. To start the daemon anew mends no disk, and ends what crews are working
on."""


@dataclass(frozen=True)
class Listening:
    """Where a started daemon answers."""

    urls: tuple[str, ...]


async def serve(
    settings: Settings,
    environment: SystemdEnvironment = NO_SYSTEMD,
    reread: Reread | None = None,
    *,
    task_status: trio.TaskStatus[Listening] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Run the daemon until SIGTERM or SIGINT, or until it cannot be kept up. A second signal ends
    it without the grace.

    `environment` is what systemd passed at the start. `reread` reads the configuration again, for
    SIGHUP; without it that is an end as well, as of a terminal that is closed, unless it was
    ignored before (nohup). `started()` comes when the address answers; Chromium may still be on its
    way. Raises `StateUnusable`, `NotSaved`, `Invalid` (the address) or `Escalated`.
    """
    for warning in (*settings.warnings, *out_of_reach(settings, memory_limit())):
        logger.warning("%s", warning)
    install_resolver()
    service_manager = ServiceManager(environment)
    log_buffer = LogBuffer()
    endings = [signal.SIGTERM, signal.SIGINT]
    if reread is None and signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
        endings.append(signal.SIGHUP)
    with (
        log_buffer.attached(),
        never_ended_by_hangup(),
        service_manager.report_error(),
        claim(settings.state.directory),
    ):
        catalog = await read_crews(settings, service_manager)
        log_broken(catalog)
        with open_listeners(
            settings.server.bind, catalog.binds(), service_manager.sockets
        ) as listeners:
            for warning in listeners.warnings(settings):
                logger.warning("%s", warning)
            # Asked of the sockets, which are closed by the time that a start is cut short.
            urls, crew_urls = listeners.urls, listeners.crew_urls
            async with (
                shared_fork_server(),
                HttpClient() as http,
                sole_error(),
                trio.open_nursery() as nursery,
            ):
                supervisor = _plant(
                    settings,
                    http,
                    catalog,
                    listeners,
                    service_manager,
                    log_buffer=log_buffer,
                    reread=reread,
                )
                await nursery.start(_stop_on, endings, supervisor, nursery.cancel_scope)
                await nursery.start(_supervise, supervisor, nursery.cancel_scope)
                if not supervisor.stopping:
                    _tell_started(urls, crew_urls)
                    service_manager.notify_ready()
                task_status.started(Listening(urls))
    logger.info("stopped", extra=LogEvent.STOPPED())


def _tell_started(urls: Sequence[str], crew_urls: Mapping[str, str]) -> None:
    logger.info("serving on %s", ", ".join(urls), extra=LogEvent.STARTED())
    for name, url in crew_urls.items():
        logger.info("crew %s has an address of its own: %s", name, url)


async def _supervise(
    supervisor: Supervisor, around: trio.CancelScope, task_status: trio.TaskStatus[None]
) -> None:
    """Run the supervisor; with its end everything around it ends too."""
    await supervisor.run(task_status)
    around.cancel()


def _plant(
    settings: Settings,
    http: HttpClient,
    catalog: Catalog,
    listeners: Listeners,
    service_manager: ServiceManager,
    *,
    log_buffer: LogBuffer,
    reread: Reread | None,
) -> Supervisor:
    """Make the parts and the supervisor over them."""
    parts = _make_parts(settings, http, catalog, listeners, service_manager)
    over_crews = _over(parts.crews)

    def snapshot() -> list[ChildSnapshot]:
        # The supervisors are made last, since they are made of the parts that report on them.
        return [*supervisor.snapshot(), *over_crews.snapshot()]

    services = _services(
        settings, parts, listeners, service_manager, log_buffer=log_buffer, snapshot=snapshot
    )
    http_apps = HttpApps(services, listeners, grace=settings.server.grace)
    control = ControlSocket(settings.state.directory, services.operator.commands())
    reporter = StatusReporter(
        service_manager,
        status=services.operator.status,
        snapshot=snapshot,
        supervisor=lambda: supervisor,
    )

    def graces(catalog: Catalog) -> None:
        over_crews.allow("executor", _longest_grace(catalog))
        supervisor.allow("crews", _longest_grace(catalog) + LAST_WRITES)

    takers = Takers(parts.auth, parts.history, parts.crews, http_apps, service_manager, graces)
    reloader = Reloader(reread, settings, takers, listeners) if reread is not None else None
    supervisor = Supervisor(
        "smartlinkd",
        [
            # The first, since it tells of the end of all others.
            *(
                [ChildSpec(REPORTER_NAME, reporter.run, stop=reporter.stop, grace=GRACE_S)]
                if service_manager.is_present
                else []
            ),
            *_specs(settings, parts),
            ChildSpec(
                "crews",
                over_crews.run,
                stop=over_crews.stop,
                grace=_longest_grace(catalog) + LAST_WRITES,
                watched_loops=over_crews.watched_loops,
            ),
            *(
                ChildSpec(name, each.run, stop=each.stop, grace=each.grace + LAST_WRITES)
                for name, each in http_apps.by_name().items()
            ),
            ChildSpec("monitoring", services.recorder.run),
            *([ChildSpec("reloading", reloader.run)] if reloader else []),
            ChildSpec("control", control.run),
        ],
    )
    return supervisor


@dataclass(frozen=True)
class _Parts:
    """All that have no address of their own."""

    auth: Auth
    vault: Vault
    notifier: Notifier
    browser: Browser | None
    pauses: PauseStore
    history: History
    conversion: ConversionService
    crews: Crews


def _make_parts(
    settings: Settings,
    http: HttpClient,
    catalog: Catalog,
    listeners: Listeners,
    service_manager: ServiceManager,
) -> _Parts:
    """Blocks for the disk. Raises `StateUnusable` or `NotSaved`."""
    directory = settings.state.directory
    pauses = PauseStore(directory)
    notifier = make_notifier(settings, pauses)
    auth = Auth(
        directory,
        password_hash=settings.auth.password_hash,
        signing_secret=settings.auth.signing_secret,
        on_key_created=notifier.report_new_key,
    )
    fd_store = service_manager.fd_store
    vault = Vault(descriptor_store=fd_store, record=fd_store.restore())
    browser = make_browser(settings, notifier, own_ports=listeners.ports)
    history = make_history(settings)
    conversion = make_conversion(settings, notifier, http, browser, pauses, history=history)
    crews = make_crews(settings, notifier, catalog, conversion, vault)
    return _Parts(auth, vault, notifier, browser, pauses, history, conversion, crews)


def _services(
    settings: Settings,
    parts: _Parts,
    listeners: Listeners,
    service_manager: ServiceManager,
    *,
    log_buffer: LogBuffer,
    snapshot: Callable[[], list[ChildSnapshot]],
) -> Services:
    """What the facade answers from."""
    crews = parts.crews
    return Services(
        auth=parts.auth,
        vault=parts.vault,
        conversion=parts.conversion,
        history=parts.history,
        browser=parts.browser,
        operator=Operator(
            auth=parts.auth,
            vault=parts.vault,
            conversion=parts.conversion,
            browser=parts.browser,
            parts=snapshot,
            tokens=crews.tokens,
            executor=crews.executor,
            url=listeners.urls[0],
            crew_urls=listeners.crew_urls,
            cookie_kept=lambda: service_manager.fd_store.is_kept,
        ),
        metrics=Metrics(
            parts.browser,
            (parts.conversion.answered, *parts.conversion.timings, *crews.webhooks.timings),
            crews.executor,
            snapshot,
        ),
        crews=CrewServices(
            catalog=crews.executor.catalog,
            executor=crews.executor,
            tokens=crews.tokens,
            webhook_networks=settings.webhooks.allow,
            own_addresses=listeners.crew_urls,
        ),
        log_buffer=log_buffer,
        recorder=_recorder(parts, snapshot),
        site=_site(parts.conversion),
        sync_key=settings.cookie.sync_key,
        rules=api_rules(settings),
    )


def _site(conversion: ConversionService) -> Site:
    market = conversion.market
    return Site(
        currency=market.currency,
        portal_url=market.portal_url,
        shop_url=market.shop_url,
        picture_url=market.image_url,
        needs_cookie=conversion.needs_cookie,
    )


def _recorder(parts: _Parts, snapshot: Callable[[], list[ChildSnapshot]]) -> Recorder:
    """Measure what the page's *System* view plots."""
    browser = parts.browser

    def restarts() -> float:
        of_browser = sum(browser.restarts.values()) if browser is not None else 0
        return of_browser + sum(part.restarts for part in snapshot())

    return Recorder(
        {
            "conversions": increase(counted(parts.conversion.answered, code="0")),
            "submit_seconds": mean_of(parts.conversion.timings.submit),
            "memory_bytes": resident_bytes,
            "restarts": increase(restarts, begin=0),
        }
    )


def _specs(settings: Settings, parts: _Parts) -> Iterator[ChildSpec]:
    """In the order of their start."""
    yield ChildSpec(  # before notify, which tells it until the end what the owner knows
        "pauses",
        parts.pauses.run,
        stop=parts.pauses.stop,
        heartbeats=(parts.pauses.heartbeat,),
        busy=DISK_PATIENCE,
    )
    if parts.notifier:
        yield ChildSpec("notify", parts.notifier.run, stop=parts.notifier.stop)
    yield _actor("auth", parts.auth, stop=parts.auth.stop)
    yield _actor("vault", parts.vault)
    # Before all who convert: it writes what they made when they have ended.
    yield _actor("history", parts.history, stop=parts.history.stop, busy=DISK_PATIENCE)
    if parts.browser is not None:
        longest_job = settings.browser.job_timeout + LAST_WRITES
        yield _actor("browser", parts.browser, parts.browser.heartbeat, busy=longest_job)
    yield _actor("conversion", parts.conversion)
    yield _actor("crew tokens", parts.crews.tokens)


class _Actor(Protocol):
    @property
    def mailbox(self) -> Queue[Any]: ...

    async def run(self, task_status: trio.TaskStatus[None]) -> None: ...


def _actor(name: str, actor: _Actor, *more_pulses: Heartbeat, **more: Any) -> ChildSpec:
    mailbox = actor.mailbox
    heartbeats = (mailbox.heartbeat, *more_pulses)
    return ChildSpec(name, actor.run, mailbox=mailbox, heartbeats=heartbeats, **more)


def _over(crews: Crews) -> Supervisor:
    """The supervisor of the parts that crews are run by."""
    executor, grace = crews.executor, _longest_grace(crews.executor.catalog)
    return Supervisor(
        "crews",
        [
            _actor("journal", crews.store, busy=DISK_PATIENCE),
            _actor(
                "executor",
                executor,
                stop=executor.stop_all,
                grace=grace,
                busy=DISK_PATIENCE,  # all its hands may wait for the journal
            ),
            ChildSpec(
                "webhooks",
                crews.webhooks.run,
                heartbeats=(crews.webhooks.heartbeat,),
                busy=DISK_PATIENCE,  # it asks the journal what is due
            ),
        ],
        strategy=Strategy.REST_FOR_ONE,
    )


def _longest_grace(catalog: Catalog) -> float:
    """Seconds in which every worker can be stopped as its crew was promised, or let go of that is
    still being started."""
    graces = (crew.worker.grace for crew in catalog.crews.values())
    bounds = Limits()
    return max([*graces, bounds.leave + bounds.kill]) + LAST_WRITES


async def _stop_on(
    endings: Sequence[signal.Signals],
    supervisor: Supervisor,
    around: trio.CancelScope,
    task_status: trio.TaskStatus[None],
) -> None:
    """The first signal lets requests end; whoever sends a second one does not want to wait."""
    with trio.open_signal_receiver(*endings) as signals:
        task_status.started()
        name = signal.Signals(await anext(signals)).name
        logger.info("stopping on %s", name, extra=LogEvent.STOPPING())
        supervisor.stop()
        logger.warning("stopping at once on %s", signal.Signals(await anext(signals)).name)
        around.cancel()
