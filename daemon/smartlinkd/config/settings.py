"""The settings: every key with its type, default and bounds, section by section.

`config.example.toml` explains the keys; a test compares it with this file. A number's description
is its unit, and `examples` are for remedies. Every number has both bounds, so a typing error of
three zeros is found at the start. A secret `x` may stand in a file of its own that `x_file` names:
`config/secret_files.py` reads it into `x`.
"""

from __future__ import annotations

from dataclasses import MISSING, dataclass, field, fields
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Literal, cast

from pydantic import AfterValidator, Field, PlainValidator, SecretBytes, SecretStr

from smartlinkd.config import values
from smartlinkd.config.base import (
    DAY,
    GIB,
    KIB,
    MIB,
    ListOf,
    NetworkList,
    OptionalPath,
    Secret,
    SecretFile,
    Section,
    Words,
)
from smartlinkd.config.crews import CrewSection, CrewTable
from smartlinkd.config.problems import Problem
from smartlinkd.net import addresses
from smartlinkd.net.addresses import Bind
from smartlinkd.validation import BadValue

Origin = Annotated[
    str, PlainValidator(values.parse_origin), Field(examples=["https://portal.example:8443"])
]


class ServerSection(Section):
    """The daemon's address, its proxies and its limits for requests."""

    bind: Annotated[Bind, PlainValidator(addresses.parse_bind)] = Field(
        default=Bind("127.0.0.1", 8787), examples=["127.0.0.1:8787"]
    )
    trusted_proxies: NetworkList = ()
    public_hosts: ListOf[Annotated[str, PlainValidator(addresses.parse_host_name)]] = Field(
        default=(), examples=[["links.example.org"]]
    )
    # Each of `http_server.HttpLimits.connections` may hold one: the bound is 8 GiB of memory.
    max_body: int = Field(default=MIB, ge=KIB, le=16 * MIB, description="bytes")
    grace: float = Field(default=10.0, ge=0, le=300, description="seconds")


class StateSection(Section):
    """The folder of all that survives the daemon."""

    directory: Annotated[Path, PlainValidator(values.parse_path)] = Field(
        default=Path("/var/lib/smartlinkd"), examples=["/var/lib/smartlinkd"]
    )


class AuthSection(Section):
    """The owner's password, and the key that signs tokens."""

    password_hash: Annotated[SecretStr, PlainValidator(values.parse_password_hash)] = SecretStr("")
    password_hash_file: SecretFile = None
    signing_secret: Annotated[SecretStr, PlainValidator(values.parse_signing_key)] = SecretStr("")
    signing_secret_file: SecretFile = None


class CookieSection(Section):
    """Access to the affiliate cookie: storing and reading it."""

    open_to: NetworkList = (
        addresses.parse_network("127.0.0.0/8"),
        addresses.parse_network("::1/128"),
    )
    sync_key: Annotated[SecretStr, PlainValidator(values.parse_bearer_key)] = SecretStr("")
    sync_key_file: SecretFile = None
    extension_origins: ListOf[Annotated[str, PlainValidator(values.parse_extension_origin)]] = ()


class BrowserSection(Section):
    """The headless Chromium."""

    executable: OptionalPath = Field(
        default=None, examples=["/usr/lib/chromium/chromium-headless-shell"]
    )
    user: Annotated[str, PlainValidator(values.parse_user_name)] = "nobody"
    no_sandbox: bool = False
    start_timeout: float = Field(default=20.0, ge=1, le=300, description="seconds")
    job_timeout: float = Field(default=60.0, ge=1, le=600, description="seconds")
    queue: int = Field(default=32, ge=1, le=10_000, description="jobs")
    contexts: int = Field(default=8, ge=1, le=256, description="contexts")
    idle: float = Field(default=600.0, ge=1, le=DAY, description="seconds")
    recycle_after: float = Field(default=float(DAY), ge=60, le=30 * DAY, description="seconds")
    recycle_memory: int = Field(default=GIB, ge=256 * MIB, le=64 * GIB, description="bytes")


class MarketplaceSection(Section):
    """The portal, and how links are submitted to it."""

    market: Annotated[str, PlainValidator(values.parse_market)] = "vn"
    portal_url: Origin = ""
    shop_url: Origin = ""
    short_urls: ListOf[Annotated[str, PlainValidator(values.parse_required_origin)]] = Field(
        default=(), examples=[["https://s.portal.example"]]
    )
    method: Literal["form", "fetch"] = "form"
    chunk: int = Field(default=5, ge=1, le=50, description="links")
    default_cap: int = Field(default=40_000, ge=0, le=1_000_000_000, description="currency units")


class LinksSection(Section):
    """The source of affiliate links, and their cache."""

    source: Literal["browser", "open_api"] = "browser"
    remember: float = Field(default=float(DAY), ge=0, le=30 * DAY, description="seconds")
    remember_max: int = Field(default=10_000, ge=0, le=1_000_000, description="links")


class ProductsSection(Section):
    """The source of product data, and its cache."""

    source: Literal["portal", "open_api", "third_party", "none"] = "portal"
    method: Literal["fetch", "page"] = "fetch"
    remember: float = Field(default=600.0, ge=0, le=DAY, description="seconds")
    remember_max: int = Field(default=10_000, ge=0, le=1_000_000, description="products")
    pause: float = Field(default=900.0, ge=0, le=DAY, description="seconds")


class OpenApiSection(Section):
    """Access to the marketplace's official Affiliate Open API."""

    app_id: Annotated[str, PlainValidator(values.parse_app_id)] = Field(
        default="", examples=["123456"]
    )
    secret: Secret = SecretStr("")
    secret_file: SecretFile = None
    url: Annotated[str, PlainValidator(values.parse_endpoint)] = Field(
        default="", examples=["https://open-api.example/graphql"]
    )


class ThirdPartySection(Section):
    """A third party's service for product data."""

    url: Annotated[str, PlainValidator(values.parse_url_template)] = Field(
        default="", examples=["https://estimates.example/item?shop={shop_id}&item={item_id}"]
    )
    fields: dict[
        Annotated[str, PlainValidator(values.parse_product_field)],
        Annotated[str, PlainValidator(values.parse_key_path)],
    ] = Field(default_factory=dict, examples=[{"name": "data.title", "price": "data.price"}])


class JournalSection(Section):
    """Retention of crews' ended executions: the first limit that is reached counts."""

    retention_days: int = Field(default=30, ge=1, le=3650, description="days")
    retention_count: int = Field(default=1000, ge=1, le=1_000_000, description="executions")


class HistorySection(Section):
    """Retention of converted links: the first limit that is reached counts."""

    retention_days: int = Field(default=90, ge=0, le=3650, description="days")
    retention_count: int = Field(default=100_000, ge=1, le=1_000_000, description="entries")
    max_bytes: int = Field(default=256 * MIB, ge=MIB, le=64 * GIB, description="bytes")


class WebhooksSection(Section):
    """Private networks that webhook calls may reach, and the key that signs the calls."""

    allow: NetworkList = ()
    secret: Annotated[SecretBytes | None, PlainValidator(values.parse_webhook_key)] = None
    secret_file: SecretFile = None


class CrewTokensSection(Section):
    """The secret from which all crews' bearer tokens are derived."""

    master_secret: Annotated[SecretStr, PlainValidator(values.parse_signing_key)] = SecretStr("")
    master_secret_file: SecretFile = None


def _require_absolute_program(words: tuple[str, ...]) -> tuple[str, ...]:
    if words and not words[0].startswith("/"):
        raise BadValue("must begin with the program's absolute path")
    return words


class NotifySection(Section):
    """Notices to the owner: a URL, a command, and services that Apprise knows."""

    url: Annotated[SecretStr, PlainValidator(values.parse_url)] = Field(
        default=SecretStr(""), examples=["https://tell.example/a-topic"]
    )
    url_file: SecretFile = None
    command: Annotated[Words, AfterValidator(_require_absolute_program)] = Field(
        default=(), examples=[["/usr/local/bin/tell-me"]]
    )
    apprise: Annotated[tuple[SecretStr, ...], PlainValidator(values.parse_apprise_urls)] = Field(
        default=(), examples=[["tgram://TOKEN/CHAT"]]
    )
    apprise_file: SecretFile = None
    language: Literal["en", "vi"] = "en"


def _require_mcp(is_enabled: bool) -> bool:
    if is_enabled and find_spec("mcp") is None:
        raise BadValue("needs the package mcp", "install it: pip install 'smartlinkd[mcp]'")
    return is_enabled


class McpSection(Section):
    """The tools for language models at `/mcp`."""

    enabled: Annotated[bool, AfterValidator(_require_mcp)] = False


class LoggingSection(Section):
    """The log."""

    level: Literal["debug", "info", "warning", "error"] = "info"


@dataclass(frozen=True)
class Settings:
    """The whole configuration, checked. `warnings` are logged at every start.

    `crews` are all entries, broken ones too. `smartlinkd/crews/catalog/catalog.py` knows which can
    run. `encrypted` are the secrets that have no value here, since only the service can read them.
    """

    server: ServerSection = field(default_factory=ServerSection)
    state: StateSection = field(default_factory=StateSection)
    auth: AuthSection = field(default_factory=AuthSection)
    cookie: CookieSection = field(default_factory=CookieSection)
    browser: BrowserSection = field(default_factory=BrowserSection)
    marketplace: MarketplaceSection = field(default_factory=MarketplaceSection)
    links: LinksSection = field(default_factory=LinksSection)
    products: ProductsSection = field(default_factory=ProductsSection)
    open_api: OpenApiSection = field(default_factory=OpenApiSection)
    third_party: ThirdPartySection = field(default_factory=ThirdPartySection)
    journal: JournalSection = field(default_factory=JournalSection)
    history: HistorySection = field(default_factory=HistorySection)
    webhooks: WebhooksSection = field(default_factory=WebhooksSection)
    crew_tokens: CrewTokensSection = field(default_factory=CrewTokensSection)
    notify: NotifySection = field(default_factory=NotifySection)
    mcp: McpSection = field(default_factory=McpSection)
    logging: LoggingSection = field(default_factory=LoggingSection)
    crews: tuple[CrewTable, ...] = ()
    warnings: tuple[Problem, ...] = ()
    encrypted: tuple[str, ...] = ()

    @property
    def needs_browser(self) -> bool:
        """True if links or product data come from a Chromium."""
        return self.links.source == "browser" or self.products.source == "portal"


SECTIONS: dict[str, type[Section]] = {
    each.name: cast("type[Section]", each.default_factory)
    for each in fields(Settings)
    if each.default_factory is not MISSING
}
"""The sections by their names in the file, in its order."""

TABLES: dict[str, type[Section]] = {**SECTIONS, "crews": CrewSection}
"""The sections, and the table that there may be many of."""

SECRETS: tuple[tuple[str, str], ...] = tuple(
    (section, key)
    for section, model in SECTIONS.items()
    for key in model.model_fields
    if f"{key}_file" in model.model_fields
)
"""Section and key of every secret, which has a twin `key_file`."""
