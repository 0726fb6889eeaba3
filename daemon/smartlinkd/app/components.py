"""From the configuration to the parts that work by it.

Settings are in the operator's words and units; a part takes what it needs, in its own. This is the
one place that knows both. Who starts and stops the parts is the tree's business.
"""

from __future__ import annotations

import socket
from collections.abc import Collection
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import Final

from trio.from_thread import check_cancelled

from smartlinkd.browser.actor import Browser
from smartlinkd.browser.chromium import LaunchSettings
from smartlinkd.browser.generation import GenerationSettings
from smartlinkd.config.settings import Settings
from smartlinkd.conversion.account import shown_name, state_of
from smartlinkd.conversion.desk import Desk, DeskLimits, DeskSetup
from smartlinkd.conversion.pauses import Pauses
from smartlinkd.conversion.sightings import Sightings
from smartlinkd.conversion.sources import LinkSource, ProductSource
from smartlinkd.conversion.through_apis import ApiProducts, OpenApiLinks
from smartlinkd.conversion.through_browser import BrowserLinks, BrowserProducts, Saw
from smartlinkd.conversion.through_http import HttpResolver
from smartlinkd.crews.catalog.catalog import Catalog, longest_read_s, read_catalog
from smartlinkd.crews.executor import Executor
from smartlinkd.crews.tokens import CrewTokens, derive, load_master_secret
from smartlinkd.crews.tools import tools
from smartlinkd.crews.webhooks.dispatcher import WebhookDispatcher
from smartlinkd.history import model as history
from smartlinkd.history.actor import FILE as HISTORY_FILE
from smartlinkd.history.actor import History
from smartlinkd.journal.actor import Journal
from smartlinkd.journal.model import Retention
from smartlinkd.marketplace.markets import Market, host_and_port, market
from smartlinkd.marketplace.open_api import OpenApi
from smartlinkd.marketplace.third_party import ThirdParty
from smartlinkd.net.client import HttpClient
from smartlinkd.notify.actor import Notifier
from smartlinkd.notify.channels import CommandChannel, RequestChannel
from smartlinkd.notify.notice import DaemonIdentity
from smartlinkd.supervision.policy import Backoff
from smartlinkd.systemd.manager import EXTENSION_S, ServiceManager
from smartlinkd.threads import on_thread
from smartlinkd.vault.actor import Vault

STANDARD_PORTS: Final = (80, 443)
BROWSER_BACKOFF = Backoff()
"""Of launches of Chromium. `bench/recovering.py` puts a shorter one here."""


def make_notifier(settings: Settings, pauses: Pauses) -> Notifier:
    """Return the notifier with the channels that are configured; there may be none."""
    wanted = settings.notify
    return Notifier(
        [
            *([RequestChannel(wanted.url)] if wanted.url else []),
            *([CommandChannel(wanted.command)] if wanted.command else []),
        ],
        DaemonIdentity(socket.gethostname(), str(settings.state.directory)),
        on_account_notified=pauses.owner_knows,
    )


def make_browser(
    settings: Settings, notifier: Notifier, *, own_ports: Collection[int]
) -> Browser | None:
    """The browser, or None where nothing of the configuration needs one.

    Its pages do not reach the daemon's `own_ports`, but for those that the marketplace has too (80,
    when the daemon listens there): without them there would be no portal.
    """
    if not settings.needs_browser:
        return None
    wanted = settings.browser
    return Browser(
        GenerationSettings(
            launch=LaunchSettings(
                executable=wanted.executable,
                user=wanted.user,
                no_sandbox=wanted.no_sandbox,
                start_timeout=wanted.start_timeout,
                closed_ports=tuple(sorted(set(own_ports) - _ports_of(_market(settings)))),
            ),
            contexts=wanted.contexts,
            idle=wanted.idle,
            recycle_after=wanted.recycle_after,
            recycle_memory=wanted.recycle_memory,
        ),
        queue=wanted.queue,
        backoff=BROWSER_BACKOFF,
        down=notifier.report_browser,
    )


def make_desk(
    settings: Settings,
    notifier: Notifier,
    http: HttpClient,
    browser: Browser | None,
    pauses: Pauses,
    *,
    history: History | None = None,
) -> Desk:
    """The conversion desk over the sources that are configured. `history` keeps what it makes."""
    marketplace, sightings = _market(settings), Sightings()
    for pause in pauses.kept:
        tell = notifier.mark_account_notified if pause.told else notifier.report_account
        tell(shown_name(pause.account), state_of(pause))
    return Desk(
        DeskSetup(
            market=marketplace,
            links=_link_source(settings, http, marketplace, browser, sightings.saw),
            products=_product_source(settings, http, marketplace, browser, sightings.saw),
            resolver=HttpResolver(http, marketplace),
            limits=_limits(settings),
            account_changed=notifier.report_account,
            account_replaced=notifier.report_replaced_account,
            cookie_missing=notifier.report_missing_cookie,
            converted=history.keep if history is not None else None,
            paused=pauses.kept,
            keep=pauses.keep,
            sightings=sightings,
        )
    )


def make_history(settings: Settings) -> History:
    """The history of converted links, in the state directory."""
    return History(settings.state.directory / HISTORY_FILE, retention=history_retention(settings))


def history_retention(settings: Settings) -> history.Retention:
    """How much of the history is kept."""
    kept = settings.history
    return history.Retention(
        timedelta(days=kept.retention_days), kept.retention_count, kept.max_bytes
    )


async def read_crews(settings: Settings, service_manager: ServiceManager) -> Catalog:
    """Look at every crew, in time that the service manager is asked for: at the start the
    reporter, who does so from then on, is only made of what is read here. Raises `NoThread`."""
    service_manager.extend_timeout(longest_read_s(settings) + EXTENSION_S)
    # Who ends the daemon does not wait for an interpreter that hangs.
    return await on_thread(read_catalog, settings, check_cancelled)


@dataclass(frozen=True)
class Crews:
    """The parts that crews are run by."""

    tokens: CrewTokens
    journal: Journal
    executor: Executor
    webhooks: WebhookDispatcher


def make_crews(
    settings: Settings,
    notifier: Notifier,
    catalog: Catalog,
    desk: Desk,
    vault: Vault,
) -> Crews:
    """All that crews need.

    Blocks for the disk. Raises what `load_master_secret` raises.
    """
    directory = settings.state.directory
    master = load_master_secret(directory, settings.crew_tokens.master_secret)
    journal = Journal(
        directory / "journal.sqlite3",
        key=derive(master, "journal"),
        retention=retention(settings),
        disk_full=notifier.report_disk,
    )
    webhooks = WebhookDispatcher(
        journal, allow=settings.webhooks.allow, key=settings.webhooks.secret
    )
    executor = Executor(
        catalog,
        journal,
        tools=tools(desk, vault),
        runs=directory / "runs",
        queued=webhooks.nudge,
    )
    return Crews(
        tokens=CrewTokens(directory, master, catalog.users()),
        journal=journal,
        executor=executor,
        webhooks=webhooks,
    )


def retention(settings: Settings) -> Retention:
    """How long ended executions are kept."""
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
    """Those that its pages are at, and the standard ones, where their pictures are."""
    urls = (marketplace.portal_url, marketplace.shop_url, *marketplace.short_urls)
    return {*STANDARD_PORTS, *(host_and_port(url)[1] for url in urls)}


def _link_source(
    settings: Settings, http: HttpClient, marketplace: Market, browser: Browser | None, saw: Saw
) -> LinkSource:
    if settings.links.source == "open_api" or browser is None:
        return OpenApiLinks(_open_api(settings, http, marketplace))
    return BrowserLinks(browser, marketplace, method=settings.marketplace.method, saw=saw)


def _product_source(
    settings: Settings, http: HttpClient, marketplace: Market, browser: Browser | None, saw: Saw
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
        case "portal" if browser is not None:
            return BrowserProducts(
                browser,
                marketplace,
                method=settings.products.method,
                default_cap=default_cap,
                saw=saw,
            )
        case _:
            return None


def _open_api(settings: Settings, http: HttpClient, marketplace: Market) -> OpenApi:
    return OpenApi(http, marketplace, settings.open_api.app_id, settings.open_api.secret)


def _limits(settings: Settings) -> DeskLimits:
    return DeskLimits(
        patience=settings.browser.job_timeout,
        chunk=settings.marketplace.chunk,
        queue=settings.browser.queue,
        remember=settings.links.remember,
        remember_limit=settings.links.remember_max,
        products_remember=settings.products.remember,
        products_remember_limit=settings.products.remember_max,
        products_pause=settings.products.pause,
    )
