"""What the facade is given: the parts behind it, and the settings that are its own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pydantic import SecretStr

from smartlinkd.admin.prometheus import Metrics
from smartlinkd.admin.status import Operator
from smartlinkd.api.access import Neighbourhood
from smartlinkd.auth.actor import Auth
from smartlinkd.browser.actor import Browser
from smartlinkd.conversion.service import ConversionService
from smartlinkd.crews.catalog.catalog import Catalog
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
    """What is asked about crews.

    `webhook_networks` are those that webhooks may call beside the public internet.
    `own_addresses` has the URL at which a crew with a `bind` of its own listens, by its name.
    """

    catalog: Catalog
    executor: Executor
    tokens: CrewTokens
    webhook_networks: Sequence[Network]
    own_addresses: Mapping[str, str]


@dataclass(frozen=True)
class Rules:
    """What the facade itself goes by: who is local, which extensions may call, how many bytes a
    body may have. They are others after a reload."""

    neighbourhood: Neighbourhood
    extension_origins: frozenset[str]
    max_body: int


@dataclass(frozen=True)
class Services:
    """`browser` is None where nothing of the configuration needs one."""

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
