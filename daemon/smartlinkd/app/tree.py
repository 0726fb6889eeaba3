"""The supervision tree: all actors, the order of their start, and their dependencies.

`build_supervisor` lists them. They start from top to bottom and stop from bottom to top, so an
actor's dependencies run before and after it. The executor continues from the store, so `crews` is
rest_for_one: the executor restarts whenever the store does. app/components.py makes most actors.
`serve`, below, receives SIGTERM: the first stops the tree, and a second cancels it; "What ends
what" in docs/architecture.md has the order and the graces.
"""

from __future__ import annotations

import logging
import signal
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, Protocol

import trio

from smartlinkd.admin.control_socket import ControlSocket
from smartlinkd.admin.prometheus import Metrics
from smartlinkd.admin.status import Operator
from smartlinkd.api.services import CrewServices, Services
from smartlinkd.app.components import (
    Components,
    Crews,
    make_browser,
    make_conversion,
    make_crews,
    make_history,
    make_mcp,
    make_notifier,
    read_crews,
)
from smartlinkd.app.http_apps import HttpApps, api_rules
from smartlinkd.app.listeners import Listeners, open_listeners
from smartlinkd.app.reload import ReadSettings, Reloader, ignore_hangup
from smartlinkd.auth.actor import Auth
from smartlinkd.config.settings import Settings
from smartlinkd.conversion.pause_store import PauseStore
from smartlinkd.conversion.service import ConversionService
from smartlinkd.crews.catalog.catalog import Catalog, log_broken
from smartlinkd.logs import LogEvent
from smartlinkd.monitoring.log_buffer import LogBuffer
from smartlinkd.monitoring.series import Recorder, counted, increase, mean_of, resident_bytes
from smartlinkd.net.client import HttpClient
from smartlinkd.net.dns import install_resolver
from smartlinkd.nurseries import background, sole_error
from smartlinkd.processes.process_tree import Limits, fork_server
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

LAST_WRITES_S = 5.0
"""Beyond a grace, for responses to clients that read slowly and records of a stopped worker; beyond
a job of the browser, for its heartbeat."""

DISK_TIMEOUT_S = 60.0
"""Seconds by which the heartbeat of an actor that waits for the disk may be later than others'.

A restart mends no disk, and ends what crews are working on.
"""


async def serve(
    settings: Settings,
    environment: SystemdEnvironment = NO_SYSTEMD,
    read_settings: ReadSettings | None = None,
    *,
    task_status: trio.TaskStatus[Sequence[str]] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Run the daemon until SIGTERM or SIGINT. A second signal ends it without the grace.

    `task_status.started()` is called with the URLs, when they answer. Chromium may still be
    starting.

    Args:
        environment: the values that systemd passed at the start.
        read_settings: reads the configuration again at SIGHUP. Without it SIGHUP (a closed
            terminal) stops the daemon, unless it was ignored before (nohup).

    Raises:
        StateUnusable: the state directory cannot be used.
        NotSaved: a secret could not be written at the first start.
        Invalid: the main address cannot be listened at.
        NoThread: no thread can be started to read the crews.
        Escalated: an actor did not start, or ended too often.
    """
    for warning in settings.warnings:
        logger.warning("%s", warning)
    install_resolver()
    service_manager = ServiceManager(environment)
    log_buffer = LogBuffer()
    signals_to_stop = [signal.SIGTERM, signal.SIGINT]
    if read_settings is None and signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
        signals_to_stop.append(signal.SIGHUP)
    with (
        log_buffer.attached(),
        ignore_hangup(),
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
            # Read now: a start that is cancelled closes the sockets.
            urls, crew_urls = listeners.urls, listeners.crew_urls
            async with fork_server(), HttpClient() as http:
                supervisor = build_supervisor(
                    settings,
                    http,
                    catalog,
                    listeners,
                    service_manager,
                    log_buffer=log_buffer,
                    read_settings=read_settings,
                )
                async with (
                    _stopping_on_signals(signals_to_stop, supervisor),
                    sole_error(),
                    trio.open_nursery() as nursery,
                ):
                    await nursery.start(supervisor.run)
                    if not supervisor.stopping:
                        _log_started(urls, crew_urls)
                        service_manager.notify_ready()
                    task_status.started(urls)
    logger.info("stopped", extra=LogEvent.STOPPED())


def _log_started(urls: Sequence[str], crew_urls: Mapping[str, str]) -> None:
    logger.info("serving on %s", ", ".join(urls), extra=LogEvent.STARTED())
    for name, url in crew_urls.items():
        logger.info("crew %s has an address of its own: %s", name, url)


def build_supervisor(
    settings: Settings,
    http: HttpClient,
    catalog: Catalog,
    listeners: Listeners,
    service_manager: ServiceManager,
    *,
    log_buffer: LogBuffer,
    read_settings: ReadSettings | None,
) -> Supervisor:
    """Make all actors, and the supervisor over them."""
    components = _make_components(settings, http, catalog, listeners, service_manager)
    crews_supervisor = _supervise_crews(components.crews)

    def snapshot() -> list[ChildSnapshot]:
        # `supervisor` is made last: its children report on it.
        return [*supervisor.snapshot(), *crews_supervisor.snapshot()]

    services = _services(settings, components, listeners, log_buffer=log_buffer, snapshot=snapshot)
    mcp = make_mcp(settings)
    http_apps = HttpApps(services, listeners, grace=settings.server.grace, mcp=mcp)
    control = ControlSocket(settings.state.directory, services.operator.commands())
    reporter = StatusReporter(
        service_manager,
        status=services.operator.status,
        snapshot=snapshot,
        supervisor=lambda: supervisor,
    )

    def set_graces(catalog: Catalog) -> None:
        crews_supervisor.extend_grace("executor", _longest_grace(catalog))
        supervisor.extend_grace("crews", _longest_grace(catalog) + LAST_WRITES_S)

    reloader = (
        Reloader(
            read_settings,
            settings,
            components,
            http_apps,
            listeners,
            set_graces=set_graces,
        )
        if read_settings is not None
        else None
    )
    supervisor = Supervisor(
        "smartlinkd",
        [
            # The first: it reports the end of all others.
            *(
                [ChildSpec(REPORTER_NAME, reporter.run, stop=reporter.stop, grace=GRACE_S)]
                if service_manager.is_present
                else []
            ),
            *_child_specs(settings, components),
            ChildSpec(
                "crews",
                crews_supervisor.run,
                stop=crews_supervisor.stop,
                grace=_longest_grace(catalog) + LAST_WRITES_S,
                watched_loops=crews_supervisor.watched_loops,
            ),
            *([ChildSpec("mcp", mcp.run)] if mcp is not None else []),
            *(
                ChildSpec(name, each.run, stop=each.stop, grace=each.grace + LAST_WRITES_S)
                for name, each in http_apps.by_name().items()
            ),
            ChildSpec("monitoring", services.recorder.run),
            *([ChildSpec("reloading", reloader.run)] if reloader else []),
            ChildSpec("control", control.run),
        ],
    )
    return supervisor


def _make_components(
    settings: Settings,
    http: HttpClient,
    catalog: Catalog,
    listeners: Listeners,
    service_manager: ServiceManager,
) -> Components:
    """Make the actors. Blocks for the disk. Raises `StateUnusable` or `NotSaved`."""
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
    vault = Vault(keep=fd_store.keep, record=fd_store.restore())
    browser = make_browser(settings, notifier, own_ports=listeners.ports)
    history = make_history(settings)
    conversion = make_conversion(settings, notifier, http, browser, pauses, history=history)
    crews = make_crews(settings, notifier, catalog, conversion, vault)
    return Components(
        service_manager, auth, vault, notifier, browser, pauses, history, conversion, crews
    )


def _services(
    settings: Settings,
    components: Components,
    listeners: Listeners,
    *,
    log_buffer: LogBuffer,
    snapshot: Callable[[], list[ChildSnapshot]],
) -> Services:
    """Return the handles that the HTTP API answers from."""
    crews = components.crews
    return Services(
        auth=components.auth,
        vault=components.vault,
        conversion=components.conversion,
        history=components.history,
        browser=components.browser,
        operator=Operator(
            auth=components.auth,
            vault=components.vault,
            conversion=components.conversion,
            browser=components.browser,
            parts=snapshot,
            tokens=crews.tokens,
            executor=crews.executor,
            url=listeners.urls[0],
            crew_urls=listeners.crew_urls,
            cookie_kept=lambda: components.service_manager.fd_store.is_kept,
        ),
        metrics=Metrics(
            components.browser,
            (
                components.conversion.answered,
                *components.conversion.timings,
                *crews.webhooks.metrics,
                *crews.executor.metrics,
            ),
            crews.executor,
            snapshot,
        ),
        crews=CrewServices(
            executor=crews.executor,
            tokens=crews.tokens,
            webhook_networks=settings.webhooks.allow,
            own_addresses=listeners.crew_urls,
        ),
        log_buffer=log_buffer,
        recorder=_recorder(components, snapshot),
        site=_site(components.conversion),
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


def _recorder(components: Components, snapshot: Callable[[], list[ChildSnapshot]]) -> Recorder:
    """Return the recorder of the measurements that the page's *System* view plots."""
    browser = components.browser

    def restarts() -> float:
        of_browser = sum(browser.restarts.values()) if browser is not None else 0
        return of_browser + sum(part.restarts for part in snapshot())

    return Recorder(
        {
            "conversions": increase(counted(components.conversion.answered, code="0")),
            "submit_seconds": mean_of(components.conversion.timings.submit),
            "memory_bytes": resident_bytes,
            "restarts": increase(restarts),
        }
    )


def _child_specs(settings: Settings, components: Components) -> Iterator[ChildSpec]:
    """Yield the actors that start before `crews`, in order."""
    yield ChildSpec(  # before notify, which updates it until its own end
        "pauses",
        components.pauses.run,
        stop=components.pauses.stop,
        heartbeats=(components.pauses.heartbeat,),
        busy=DISK_TIMEOUT_S,
    )
    if components.notifier:
        yield ChildSpec("notify", components.notifier.run, stop=components.notifier.stop)
    yield _actor("auth", components.auth, stop=components.auth.stop)
    yield _actor("vault", components.vault)
    # Before all that convert: it writes their last results after their end.
    yield _actor("history", components.history, stop=components.history.stop, busy=DISK_TIMEOUT_S)
    if components.browser is not None:
        longest_job = settings.browser.job_timeout + LAST_WRITES_S
        yield _actor("browser", components.browser, components.browser.heartbeat, busy=longest_job)
    yield _actor("conversion", components.conversion)
    yield _actor("crew tokens", components.crews.tokens, busy=DISK_TIMEOUT_S)


class _Actor(Protocol):
    @property
    def mailbox(self) -> Queue[Any]: ...

    async def run(self, task_status: trio.TaskStatus[None]) -> None: ...


def _actor(name: str, actor: _Actor, *more_heartbeats: Heartbeat, **more: Any) -> ChildSpec:
    mailbox = actor.mailbox
    heartbeats = (mailbox.heartbeat, *more_heartbeats)
    return ChildSpec(name, actor.run, mailbox=mailbox, heartbeats=heartbeats, **more)


def _supervise_crews(crews: Crews) -> Supervisor:
    """Return the supervisor of the store, the executor and the webhook dispatcher."""
    executor, grace = crews.executor, _longest_grace(crews.executor.catalog)
    return Supervisor(
        "crews",
        [
            _actor("journal", crews.store, busy=DISK_TIMEOUT_S),
            _actor(
                "executor",
                executor,
                stop=executor.stop_all,
                grace=grace,
                busy=DISK_TIMEOUT_S,  # it may wait for the store in all its slots
            ),
            ChildSpec(
                "webhooks",
                crews.webhooks.run,
                heartbeats=(crews.webhooks.heartbeat,),
                busy=DISK_TIMEOUT_S,  # it asks the store for due calls
            ),
        ],
        strategy=Strategy.REST_FOR_ONE,
    )


def _longest_grace(catalog: Catalog) -> float:
    """Return the seconds that the executor needs to stop all workers, started or starting."""
    graces = (crew.worker.grace for crew in catalog.crews.values())
    bounds = Limits()
    return max([*graces, bounds.leave + bounds.kill]) + LAST_WRITES_S


@asynccontextmanager
async def _stopping_on_signals(
    signals_to_stop: Sequence[signal.Signals], supervisor: Supervisor
) -> AsyncIterator[None]:
    """Stop `supervisor` at the first signal. Cancel the block at the second one."""

    async def receive() -> None:
        name = signal.Signals(await anext(signals)).name
        logger.info("stopping on %s", name, extra=LogEvent.STOPPING())
        supervisor.stop()
        logger.warning("stopping at once on %s", signal.Signals(await anext(signals)).name)
        block.cancel()

    with trio.open_signal_receiver(*signals_to_stop) as signals, trio.CancelScope() as block:
        async with background(receive):
            yield
