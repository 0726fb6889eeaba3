"""The supervision tree: who starts, in what order, and on whom each part depends.

    auth          tokens, second factor            nobody
    vault         the cookie                       nobody
    browser       a Chromium                       nobody
    conversion    the desk                         browser, or the APIs instead of it
    crew tokens   who may call which crew          nobody
    crews         a supervisor of three:
      journal     executions on disk               nobody
      executor    whose turn it is, workers        journal; conversion, for its workers
      webhooks    calls to other people's servers  journal
    http          the facade                       all of the above
    http of …     that of a crew with a `bind`     crews, crew tokens
    control       the owner's shell                all of the above

They start from top to bottom and stop from bottom to top, so that whoever is asked is there before
and after those who ask. The executor goes on from what the journal has, so the three of `crews` are
rest_for_one: it starts again whenever the journal does. The parts themselves are made in
`daemon/parts.py`.
"""

from __future__ import annotations

import logging
import signal
from collections.abc import Iterator
from dataclasses import dataclass

import httpx
import trio

from daemon.api.access import Neighbourhood
from daemon.api.app import build_app
from daemon.api.crews.app import build_crew_app
from daemon.api.services import CrewServices, Services
from daemon.auth.actor import Auth
from daemon.config.settings import Settings
from daemon.control import Control
from daemon.crews.catalog import Catalog, read_catalog
from daemon.crews.secret import load_master_secret
from daemon.doors import Doors, Facade, open_doors
from daemon.marketplace.plain_http import open_client
from daemon.metrics import Metrics
from daemon.operator import Operator
from daemon.parts import Crews, make_browser, make_crews, make_desk
from daemon.state import claim
from daemon.supervision.policy import Strategy
from daemon.supervision.supervisor import ChildSnapshot, ChildSpec, Supervisor, sole_error
from daemon.vault.actor import Vault

logger = logging.getLogger(__name__)

LAST_WRITES = 5.0
"""Seconds beyond a grace: for answers under way to clients that read slowly, and for what is to be
written down of a worker that was stopped."""


@dataclass(frozen=True)
class Listening:
    """Where a started daemon answers."""

    urls: tuple[str, ...]


async def serve(
    settings: Settings, *, task_status: trio.TaskStatus[Listening] = trio.TASK_STATUS_IGNORED
) -> None:
    """Run the daemon until SIGTERM or SIGINT, or until it cannot be kept up. A second signal ends
    it without the grace.

    `started()` comes when the address answers; Chromium may still be on its way. Raises
    `StateUnusable`, `NotSaved`, `Invalid` (the address) or `Escalated`.
    """
    for warning in settings.warnings:
        logger.warning("%s", warning)
    with claim(settings.state.directory):
        catalog = await trio.to_thread.run_sync(read_catalog, settings)
        for broken in catalog.broken:
            for problem in broken.problems:
                logger.error("a crew cannot run: %s", problem)
        with open_doors(settings.server.bind, catalog.binds()) as doors:
            async with open_client() as client, sole_error(), trio.open_nursery() as nursery:
                supervisor = _plant(settings, client, catalog, doors)
                await nursery.start(_stop_on_signals, supervisor, nursery.cancel_scope)
                await nursery.start(_supervise, supervisor, nursery.cancel_scope)
                logger.info("serving on %s", ", ".join(doors.urls))
                for name, url in doors.crew_urls.items():
                    logger.info("crew %s has an address of its own: %s", name, url)
                task_status.started(Listening(doors.urls))
    logger.info("stopped")


async def _supervise(
    supervisor: Supervisor, around: trio.CancelScope, task_status: trio.TaskStatus[None]
) -> None:
    """Run the supervisor; with its end everything around it ends too."""
    await supervisor.run(task_status)
    around.cancel()


def _plant(
    settings: Settings, client: httpx.AsyncClient, catalog: Catalog, doors: Doors
) -> Supervisor:
    """Make the parts and the supervisor over them."""
    directory = settings.state.directory
    auth = Auth(
        directory,
        password_hash=settings.auth.password_hash,
        signing_secret=settings.auth.signing_secret,
    )
    vault = Vault()
    browser = make_browser(settings, own_ports=doors.ports)
    desk = make_desk(settings, client, browser)
    master = load_master_secret(directory, settings.crew_tokens.master_secret)
    crews = make_crews(settings, catalog, master, desk, vault)
    over_crews = _over(crews)

    def parts() -> list[ChildSnapshot]:
        # The supervisors are made last, since they are made of the parts that report on them.
        return [*supervisor.snapshot(), *over_crews.snapshot()]

    services = Services(
        auth=auth,
        vault=vault,
        desk=desk,
        browser=browser,
        operator=Operator(
            auth=auth,
            vault=vault,
            desk=desk,
            browser=browser,
            parts=parts,
            catalog=catalog,
            tokens=crews.tokens,
            executor=crews.executor,
            url=doors.urls[0],
            crew_urls=doors.crew_urls,
        ),
        metrics=Metrics(browser, crews.executor, parts),
        crews=CrewServices(
            catalog=catalog,
            executor=crews.executor,
            tokens=crews.tokens,
            webhook_networks=settings.webhooks.allow,
            own_addresses=doors.crew_urls,
        ),
        neighbourhood=Neighbourhood(
            open_to=settings.cookie.open_to,
            trusted_proxies=settings.server.trusted_proxies,
            public_hosts=frozenset(settings.server.public_hosts),
        ),
        sync_key=settings.cookie.sync_key,
        extension_origins=frozenset(settings.cookie.extension_origins),
        max_body=settings.server.max_body,
    )
    control = Control(directory, services.operator.commands())
    supervisor = Supervisor(
        "smartlinkd",
        [
            ChildSpec("auth", auth.run, mailbox=auth.mailbox),
            ChildSpec("vault", vault.run, mailbox=vault.mailbox),
            *([ChildSpec("browser", browser.run, mailbox=browser.mailbox)] if browser else []),
            ChildSpec("conversion", desk.run, mailbox=desk.mailbox),
            ChildSpec("crew tokens", crews.tokens.run, mailbox=crews.tokens.mailbox),
            ChildSpec(
                "crews",
                over_crews.run,
                stop=over_crews.stop,
                grace=_longest_grace(catalog) + LAST_WRITES,
            ),
            *_facades(settings, services, doors),
            ChildSpec("control", control.run),
        ],
    )
    return supervisor


def _over(crews: Crews) -> Supervisor:
    """The supervisor of the parts that crews are run by."""
    executor = crews.executor
    return Supervisor(
        "crews",
        [
            ChildSpec("journal", crews.journal.run, mailbox=crews.journal.mailbox),
            ChildSpec(
                "executor",
                executor.run,
                stop=executor.stop_all,
                grace=_longest_grace(crews.catalog),
                mailbox=executor.mailbox,
            ),
            ChildSpec("webhooks", crews.webhooks.run),
        ],
        strategy=Strategy.REST_FOR_ONE,
    )


def _longest_grace(catalog: Catalog) -> float:
    """Seconds in which every worker can be stopped as its crew was promised."""
    graces = (crew.worker.grace for crew in catalog.crews.values())
    return max(graces, default=0.0) + LAST_WRITES


def _facades(settings: Settings, services: Services, doors: Doors) -> Iterator[ChildSpec]:
    """The facade, and those of crews that have an address of their own."""
    grace = settings.server.grace
    main = Facade(build_app(services), doors.main, grace=grace)
    yield ChildSpec("http", main.run, stop=main.stop, grace=grace + LAST_WRITES)
    for name, sockets in doors.crews.items():
        app = build_crew_app(name, services.crews, services.metrics, max_body=services.max_body)
        own = Facade(app, sockets, grace=grace)
        yield ChildSpec(f"http of {name}", own.run, stop=own.stop, grace=grace + LAST_WRITES)


async def _stop_on_signals(
    supervisor: Supervisor, around: trio.CancelScope, task_status: trio.TaskStatus[None]
) -> None:
    """The first signal lets requests end; whoever sends a second one does not want to wait."""
    with trio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
        task_status.started()
        logger.info("stopping on %s", signal.Signals(await anext(signals)).name)
        supervisor.stop()
        logger.warning("stopping at once on %s", signal.Signals(await anext(signals)).name)
        around.cancel()
