"""Makes the actors from the configuration.

Settings have the operator's words and units, and the actors their own. This module knows both.
app/tree.py starts and stops the actors.
"""

from __future__ import annotations

import socket
from collections.abc import Collection
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Final

from smartlinkd.auth.actor import Auth
from smartlinkd.browser.actor import Browser
from smartlinkd.browser.chromium import LaunchSettings
from smartlinkd.browser.instance import InstanceSettings
from smartlinkd.config.settings import Settings
from smartlinkd.conversion.account import shown_name, state_of
from smartlinkd.conversion.api_sources import ApiProducts, OpenApiLinks
from smartlinkd.conversion.browser_sources import BrowserLinks, BrowserProducts, PortalTabs
from smartlinkd.conversion.limits import ConversionLimits
from smartlinkd.conversion.pause_store import PauseStore
from smartlinkd.conversion.service import ConversionService, ConversionSetup
from smartlinkd.conversion.sources import LinkSource, ProductSource
from smartlinkd.crews.catalog.catalog import Catalog, longest_read_s, read_catalog
from smartlinkd.crews.executor import Executor
from smartlinkd.crews.tokens import CrewTokens, derive, load_master_secret
from smartlinkd.crews.tools import tools
from smartlinkd.crews.webhooks.dispatcher import WebhookDispatcher
from smartlinkd.history import model as history
from smartlinkd.history.actor import FILE as HISTORY_FILE
from smartlinkd.history.actor import History
from smartlinkd.marketplace.markets import Market, market
from smartlinkd.marketplace.open_api import OpenApi
from smartlinkd.marketplace.shortlinks import ShortLinks
from smartlinkd.marketplace.third_party import ThirdParty
from smartlinkd.marketplace.urls import host_and_port
from smartlinkd.net.client import HttpClient
from smartlinkd.notify.actor import Notifier
from smartlinkd.notify.channels import AppriseChannel, Channel, CommandChannel, RequestChannel
from smartlinkd.notify.notice import DaemonIdentity
from smartlinkd.store.actor import Store
from smartlinkd.store.model import Retention
from smartlinkd.supervision.policy import Backoff
from smartlinkd.systemd.manager import EXTENSION_S, ServiceManager
from smartlinkd.threads import on_thread
from smartlinkd.vault.actor import Vault
from smartlinkd.vault.cookie import Cookie

if TYPE_CHECKING:
    from smartlinkd.mcp.over_http import McpActor

STANDARD_PORTS: Final = (80, 443)
BROWSER_BACKOFF = Backoff()
"""Between launches of Chromium."""


def make_notifier(settings: Settings, pauses: PauseStore) -> Notifier:
    """Return the notifier with the channels that are configured; there may be none."""
    return Notifier(
        make_channels(settings),
        DaemonIdentity(socket.gethostname(), str(settings.state.directory)),
        on_account_notified=pauses.mark_notified,
    )


def make_channels(settings: Settings) -> list[Channel]:
    """Return the channels to the owner that are configured; there may be none."""
    wanted = settings.notify
    return [
        *([RequestChannel(wanted.url)] if wanted.url else []),
        *([CommandChannel(wanted.command)] if wanted.command else []),
        *(
            AppriseChannel(f"notify.apprise[{place}]", url, wanted.language)
            for place, url in enumerate(wanted.apprise)
        ),
    ]


def make_browser(
    settings: Settings, notifier: Notifier, *, own_ports: Collection[int]
) -> Browser | None:
    """Return the browser, or None if the configuration needs none.

    Pages cannot reach the daemon's `own_ports`, except for ports that the marketplace uses too.
    """
    if not settings.needs_browser:
        return None
    wanted = settings.browser
    return Browser(
        InstanceSettings(
            launch=LaunchSettings(
                executable=wanted.executable,
                user=wanted.user,
                no_sandbox=wanted.no_sandbox,
                start_timeout=wanted.start_timeout,
                closed_ports=tuple(sorted(set(own_ports) - _ports_of(_market(settings)))),
            ),
            contexts=wanted.contexts,
            idle_s=wanted.idle,
            recycle_after_s=wanted.recycle_after,
            recycle_bytes=wanted.recycle_memory,
        ),
        queue=wanted.queue,
        backoff=BROWSER_BACKOFF,
        on_down=notifier.report_browser,
    )


def make_conversion(
    settings: Settings,
    notifier: Notifier,
    http: HttpClient,
    browser: Browser | None,
    pauses: PauseStore,
    *,
    history: History,
) -> ConversionService:
    """Return the conversion service with the configured sources. `history` keeps its results."""

    def report_check(cookie: Cookie) -> None:
        service.report_human_check(cookie)

    marketplace = _market(settings)
    tabs = PortalTabs(browser, marketplace, report_check) if browser is not None else None
    for pause in pauses.loaded:
        notify = notifier.mark_account_notified if pause.is_notified else notifier.report_account
        notify(shown_name(pause.account), state_of(pause))
    service = ConversionService(
        ConversionSetup(
            market=marketplace,
            links=_link_source(settings, http, marketplace, tabs),
            products=_product_source(settings, http, marketplace, tabs),
            resolve=ShortLinks(http, marketplace).resolve,
            limits=_limits(settings),
            pauses=pauses.loaded,
            keep_pauses=pauses.keep,
            on_account_changed=notifier.report_account,
            on_account_replaced=notifier.report_replaced_account,
            on_cookie_missing=notifier.report_missing_cookie,
            on_converted=history.keep,
        )
    )
    return service


def make_mcp(settings: Settings) -> McpActor | None:
    """Return the actor of the tools for language models, if they are wanted."""
    if not settings.mcp.enabled:
        return None
    # Its libraries take 40 MB, for those who use it.
    from smartlinkd.mcp.over_http import McpActor  # noqa: PLC0415

    return McpActor()


def make_history(settings: Settings) -> History:
    """Return the history of converted links."""
    return History(settings.state.directory / HISTORY_FILE, retention=history_retention(settings))


def history_retention(settings: Settings) -> history.HistoryRetention:
    """Return the bounds of the history."""
    kept = settings.history
    return history.HistoryRetention(
        timedelta(days=kept.retention_days), kept.retention_count, kept.max_bytes
    )


async def read_crews(settings: Settings, service_manager: ServiceManager) -> Catalog:
    """Read every crew. Raises `NoThread`."""
    # At the start the task that asks systemd for more time does not run yet.
    service_manager.extend_timeout(longest_read_s(settings) + EXTENSION_S)
    return await on_thread(read_catalog, settings)


@dataclass(frozen=True)
class Crews:
    """The actors that run crews."""

    tokens: CrewTokens
    store: Store
    executor: Executor
    webhooks: WebhookDispatcher


@dataclass(frozen=True)
class Components:
    """The actors without an address of their own. The first runs only under systemd."""

    service_manager: ServiceManager
    auth: Auth
    vault: Vault
    notifier: Notifier
    browser: Browser | None
    pauses: PauseStore
    history: History
    conversion: ConversionService
    crews: Crews


def make_crews(
    settings: Settings,
    notifier: Notifier,
    catalog: Catalog,
    conversion: ConversionService,
    vault: Vault,
) -> Crews:
    """Return the actors that run crews. Blocks for the disk.

    Raises:
        StateUnusable: the master secret cannot be read.
        NotSaved: a new master secret cannot be written.
    """
    directory = settings.state.directory
    master = load_master_secret(directory, settings.crew_tokens.master_secret)
    store = Store(
        directory / "journal.sqlite3",
        key=derive(master, "journal"),
        retention=retention(settings),
        on_disk_full_changed=notifier.report_disk,
    )
    webhooks = WebhookDispatcher(store, allow=settings.webhooks.allow, key=settings.webhooks.secret)
    executor = Executor(
        catalog,
        store,
        tools=tools(conversion, vault),
        runs=directory / "runs",
        on_calls_queued=webhooks.nudge,
    )
    return Crews(
        tokens=CrewTokens(directory, master, catalog.users()),
        store=store,
        executor=executor,
        webhooks=webhooks,
    )


def retention(settings: Settings) -> Retention:
    """Return how long, and how many, ended executions are kept."""
    kept = settings.journal
    return Retention(timedelta(days=kept.retention_days), kept.retention_count)


def _market(settings: Settings) -> Market:
    where = settings.marketplace
    return market(
        where.market,
        portal_url=where.portal_url,
        shop_url=where.shop_url,
        short_urls=where.short_urls,
        open_api_url=settings.open_api.url,
    )


def _ports_of(marketplace: Market) -> set[int | None]:
    """Return the ports of the marketplace's pages, and the standard ones of their pictures."""
    urls = (marketplace.portal_url, marketplace.shop_url, *marketplace.short_urls)
    return {*STANDARD_PORTS, *(host_and_port(url)[1] for url in urls)}


def _link_source(
    settings: Settings,
    http: HttpClient,
    marketplace: Market,
    tabs: PortalTabs | None,
) -> LinkSource:
    if settings.links.source == "open_api" or tabs is None:
        return OpenApiLinks(_open_api(settings, http, marketplace))
    return BrowserLinks(tabs, method=settings.marketplace.method)


def _product_source(
    settings: Settings,
    http: HttpClient,
    marketplace: Market,
    tabs: PortalTabs | None,
) -> ProductSource | None:
    default_cap = settings.marketplace.default_cap
    match settings.products.source:
        case "open_api":
            api = _open_api(settings, http, marketplace)
            return ApiProducts(partial(api.product, default_cap=default_cap))
        case "third_party":
            estimates = settings.third_party
            return ApiProducts(
                ThirdParty(http, marketplace, estimates.url, estimates.fields).product
            )
        case "portal" if tabs is not None:
            return BrowserProducts(tabs, method=settings.products.method, default_cap=default_cap)
        case _:
            return None


def _open_api(settings: Settings, http: HttpClient, marketplace: Market) -> OpenApi:
    return OpenApi(http, marketplace, settings.open_api.app_id, settings.open_api.secret)


def _limits(settings: Settings) -> ConversionLimits:
    return ConversionLimits(
        timeout_s=settings.browser.job_timeout,
        chunk=settings.marketplace.chunk,
        max_waiting_submits=settings.browser.queue,
        ttl_s=settings.links.remember,
        max_cached=settings.links.remember_max,
        product_ttl_s=settings.products.remember,
        max_cached_products=settings.products.remember_max,
        refusal_pause_s=settings.products.pause,
    )
