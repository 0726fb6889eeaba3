"""The supervision tree: who starts, in what order, and on whom each part depends.

    auth          tokens, second factor            nobody
    vault         the cookie                       nobody
    browser       a Chromium                       nobody
    conversion    the desk                         browser, or the APIs instead of it
    http          the facade                       all of the above
    control       the owner's shell                all of the above

They start from top to bottom and stop from bottom to top, so that whoever is asked is there before
and after those who ask. This is also the one place where the configuration is turned into parts.
"""

from __future__ import annotations

import logging
import signal
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from socket import socket

import httpx
import trio

from daemon.api.access import Neighbourhood
from daemon.api.app import build_app
from daemon.api.services import Services
from daemon.auth.actor import Auth
from daemon.browser.actor import Browser
from daemon.browser.chromium import LaunchSettings
from daemon.browser.generation import GenerationSettings
from daemon.config.settings import Settings
from daemon.control import Control
from daemon.conversion.desk import Desk, DeskLimits, DeskSetup
from daemon.conversion.sources import LinkSource, ProductSource
from daemon.conversion.through_apis import ApiProducts, OpenApiLinks
from daemon.conversion.through_browser import BrowserLinks, BrowserProducts
from daemon.conversion.through_http import HttpResolver
from daemon.marketplace.markets import Market, market
from daemon.marketplace.open_api import OpenApi
from daemon.marketplace.plain_http import open_client
from daemon.marketplace.third_party import ThirdParty
from daemon.metrics import Metrics
from daemon.operator import Operator
from daemon.serving import GuardedQuart, bind
from daemon.serving import serve as serve_http
from daemon.state import claim
from daemon.supervision.supervisor import ChildSnapshot, ChildSpec, Supervisor, sole_error
from daemon.vault.actor import Vault

logger = logging.getLogger(__name__)

LAST_WRITES = 5.0
"""Seconds beyond the grace for answers under way to clients that read slowly."""


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
    `StateUnusable`, `Invalid` (the address) or `Escalated`.
    """
    for warning in settings.warnings:
        logger.warning("%s", warning)
    with claim(settings.state.directory):
        sockets = bind(settings.server.bind.host, settings.server.bind.port)
        try:
            async with open_client() as client, sole_error(), trio.open_nursery() as nursery:
                supervisor = _plant(settings, client, sockets)
                await nursery.start(_stop_on_signals, supervisor, nursery.cancel_scope)
                await nursery.start(_supervise, supervisor, nursery.cancel_scope)
                urls = tuple(_url(listening) for listening in sockets)
                logger.info("serving on %s", ", ".join(urls))
                task_status.started(Listening(urls))
        finally:
            for listening in sockets:
                listening.close()
    logger.info("stopped")


async def _supervise(
    supervisor: Supervisor, around: trio.CancelScope, task_status: trio.TaskStatus[None]
) -> None:
    """Run the supervisor; with its end everything around it ends too."""
    await supervisor.run(task_status)
    around.cancel()


def _plant(settings: Settings, client: httpx.AsyncClient, sockets: Sequence[socket]) -> Supervisor:
    """Make the parts and the supervisor over them."""
    auth = Auth(
        settings.state.directory,
        password_hash=settings.auth.password_hash,
        signing_secret=settings.auth.signing_secret,
    )
    vault = Vault()
    browser = _browser(settings) if _needs_browser(settings) else None
    desk = _desk(settings, client, browser)

    def parts() -> list[ChildSnapshot]:
        return supervisor.snapshot()  # made last, since it is made of the parts that report on it

    operator = Operator(auth=auth, vault=vault, desk=desk, browser=browser, parts=parts)
    services = Services(
        auth=auth,
        vault=vault,
        desk=desk,
        browser=browser,
        operator=operator,
        metrics=Metrics(browser, parts),
        neighbourhood=Neighbourhood(
            open_to=settings.cookie.open_to,
            trusted_proxies=settings.server.trusted_proxies,
            public_hosts=frozenset(settings.server.public_hosts),
        ),
        sync_key=settings.cookie.sync_key,
        extension_origins=frozenset(settings.cookie.extension_origins),
        max_body=settings.server.max_body,
    )
    http = _Http(build_app(services), sockets, grace=settings.server.grace)
    control = Control(settings.state.directory, operator.commands())
    supervisor = Supervisor(
        "smartlinkd",
        [
            ChildSpec("auth", auth.run, mailbox=auth.mailbox),
            ChildSpec("vault", vault.run, mailbox=vault.mailbox),
            *([ChildSpec("browser", browser.run, mailbox=browser.mailbox)] if browser else []),
            ChildSpec("conversion", desk.run, mailbox=desk.mailbox),
            ChildSpec("http", http.run, stop=http.stop, grace=settings.server.grace + LAST_WRITES),
            ChildSpec("control", control.run),
        ],
    )
    return supervisor


class _Http:
    """The facade as a supervised part: each incarnation serves on the same sockets.

    They are closed with its last one, at `stop`.
    """

    def __init__(self, app: GuardedQuart, sockets: Sequence[socket], *, grace: float) -> None:
        self._app = app
        self._sockets = sockets
        self._grace = grace
        self._stop = trio.Event()

    async def run(self, task_status: trio.TaskStatus[None]) -> None:
        self._stop = trio.Event()
        await serve_http(
            self._app,
            self._sockets,
            grace=self._grace,
            stop=self._stop,
            task_status=task_status,
        )

    def stop(self) -> None:
        self._stop.set()
        # Whoever connects from now on is refused at once, and not kept waiting by the kernel for a
        # daemon that will never look.
        for listening in self._sockets:
            listening.close()


def _market(settings: Settings) -> Market:
    where = settings.marketplace
    return market(
        where.market,
        portal_url=where.portal_url,
        shop_url=where.shop_url,
        short_urls=where.short_urls,
        open_api_url=settings.open_api.url,
    )


def _needs_browser(settings: Settings) -> bool:
    return settings.links.source == "browser" or settings.products.source == "portal"


def _browser(settings: Settings) -> Browser:
    wanted = settings.browser
    return Browser(
        GenerationSettings(
            launch=LaunchSettings(
                executable=wanted.executable,
                user=wanted.user,
                no_sandbox=wanted.no_sandbox,
                start_timeout=wanted.start_timeout,
            ),
            contexts=wanted.contexts,
            idle=wanted.idle,
            recycle_after=wanted.recycle_after,
            recycle_memory=wanted.recycle_memory,
        ),
        queue=wanted.queue,
    )


def _desk(settings: Settings, client: httpx.AsyncClient, browser: Browser | None) -> Desk:
    place = _market(settings)
    return Desk(
        DeskSetup(
            market=place,
            links=_link_source(settings, client, place, browser),
            products=_product_source(settings, client, place, browser),
            resolver=HttpResolver(client, place),
            limits=_limits(settings),
        )
    )


def _link_source(
    settings: Settings, client: httpx.AsyncClient, place: Market, browser: Browser | None
) -> LinkSource:
    if settings.links.source == "open_api" or browser is None:
        return OpenApiLinks(_open_api(settings, client, place))
    return BrowserLinks(browser, place, method=settings.marketplace.method)


def _product_source(
    settings: Settings, client: httpx.AsyncClient, place: Market, browser: Browser | None
) -> ProductSource | None:
    default_cap = settings.marketplace.default_cap
    match settings.products.source:
        case "open_api":
            api = _open_api(settings, client, place)
            return ApiProducts(partial(api.product, default_cap=default_cap))
        case "third_party":
            estimates = settings.third_party
            return ApiProducts(ThirdParty(client, place, estimates.url, estimates.fields).product)
        case "portal" if browser is not None:
            return BrowserProducts(
                browser, place, method=settings.products.method, default_cap=default_cap
            )
        case _:
            return None


def _open_api(settings: Settings, client: httpx.AsyncClient, place: Market) -> OpenApi:
    return OpenApi(client, place, settings.open_api.app_id, settings.open_api.secret)


def _limits(settings: Settings) -> DeskLimits:
    return DeskLimits(
        patience=settings.browser.job_timeout,
        chunk=settings.marketplace.chunk,
        queue=settings.browser.queue,
        remember=settings.links.remember,
        remember_limit=settings.links.remember_max,
        products_remember=settings.products.remember,
        products_remember_limit=settings.products.remember_max,
        products_rest=settings.products.pause,
    )


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


def _url(listening: socket) -> str:
    host, port = listening.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
