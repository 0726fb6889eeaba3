"""The actors behind the HTTP apps, and the settings that are the apps' own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pydantic import SecretStr

from smartlinkd.admin.prometheus import Metrics
from smartlinkd.admin.status import Operator
from smartlinkd.api.client_address import ClientAccess
from smartlinkd.auth.actor import Auth
from smartlinkd.browser.actor import Browser
from smartlinkd.conversion.service import ConversionService
from smartlinkd.crews.executor import Executor
from smartlinkd.crews.tokens import CrewTokens
from smartlinkd.history.actor import History
from smartlinkd.monitoring.log_buffer import LogBuffer
from smartlinkd.monitoring.series import Recorder
from smartlinkd.net.addresses import Network
from smartlinkd.vault.actor import Vault
from smartlinkd.web.bundle import Site


@dataclass(frozen=True)
class CrewServices:
    """The actors and settings of the crews' API.

    `webhook_networks` are those that webhooks may call beside the public internet.
    `own_addresses` has the URL at which a crew with a `bind` of its own listens, by its name.
    """

    executor: Executor
    tokens: CrewTokens
    webhook_networks: Sequence[Network]
    own_addresses: Mapping[str, str]


@dataclass(frozen=True)
class Rules:
    """The apps' own settings, which a reload replaces: who is local, which extensions may call, and
    how many bytes a body may have."""

    client_access: ClientAccess
    extension_origins: frozenset[str]
    max_body: int


@dataclass(frozen=True)
class Services:
    """The actors and settings. `browser` is None if the configuration needs none."""

    auth: Auth
    vault: Vault
    conversion: ConversionService
    history: History
    browser: Browser | None
    operator: Operator
    metrics: Metrics
    crews: CrewServices
    log_buffer: LogBuffer
    recorder: Recorder
    site: Site
    sync_key: SecretStr
    rules: Rules
