"""The settings: every key, its type, its default and its bounds, section by section.

What a key means is told where an operator reads it, in `config.example.toml`; a test holds that
file and this one together. A number's description is its unit; `examples` are what a message about
a wrong value offers. Every number has both bounds: a typing error of three zeros is found at the
start and not in the night.

A secret `x` may stand in the configuration itself or in a file of its own, named by `x_file`. The
reader (`config/loading.py`) puts the file's content into `x`: nobody else looks at files.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Literal

from pydantic import AfterValidator, Field, PlainValidator, SecretBytes, SecretStr

from smartlinkd.config import crew_values, values
from smartlinkd.config.crews import CrewSection, CrewTable
from smartlinkd.config.problems import Problem
from smartlinkd.config.section import (
    DAY,
    GIB,
    KIB,
    MIB,
    MOST_ENTRIES,
    NetworkList,
    Secret,
    SecretFile,
    Section,
)
from smartlinkd.net import addresses
from smartlinkd.net.addresses import Bind
from smartlinkd.validation import BadValue

Origin = Annotated[
    str, PlainValidator(values.origin), Field(examples=["https://portal.example:8443"])
]


class Server(Section):
    """Where and for whom the daemon listens."""

    bind: Annotated[Bind, PlainValidator(addresses.parse_bind)] = Field(
        default=Bind("127.0.0.1", 8787), examples=["127.0.0.1:8787"]
    )
    trusted_proxies: NetworkList = ()
    public_hosts: tuple[Annotated[str, PlainValidator(addresses.parse_host_name)], ...] = Field(
        default=(), strict=False, max_length=MOST_ENTRIES, examples=[["links.example.org"]]
    )
    # Each of `http_server.HttpLimits.connections` may hold one: the bound is 8 GiB of memory.
    max_body: int = Field(default=MIB, ge=KIB, le=16 * MIB, description="bytes")
    grace: float = Field(default=10.0, ge=0, le=300, description="seconds")


class State(Section):
    """Where the daemon keeps what survives it."""

    directory: Annotated[Path, PlainValidator(values.directory)] = Field(
        default=Path("/var/lib/smartlinkd"), examples=["/var/lib/smartlinkd"]
    )


class Auth(Section):
    """The owner's password, and the key that signs tokens."""

    password_hash: Annotated[SecretStr, PlainValidator(values.password_hash)] = SecretStr("")
    password_hash_file: SecretFile = None
    signing_secret: Annotated[SecretStr, PlainValidator(values.signing_secret)] = SecretStr("")
    signing_secret_file: SecretFile = None


class Cookie(Section):
    """Who may store and read the affiliate cookie."""

    open_to: NetworkList = (
        addresses.parse_network("127.0.0.0/8"),
        addresses.parse_network("::1/128"),
    )
    sync_key: Annotated[SecretStr, PlainValidator(values.bearer_key)] = SecretStr("")
    sync_key_file: SecretFile = None
    extension_origins: tuple[Annotated[str, PlainValidator(values.extension_origin)], ...] = Field(
        default=(), strict=False, max_length=MOST_ENTRIES
    )


class Browser(Section):
    """The headless Chromium."""

    executable: Annotated[Path | None, PlainValidator(values.optional_path)] = Field(
        default=None, examples=["/usr/lib/chromium/chromium-headless-shell"]
    )
    user: Annotated[str, PlainValidator(values.user_name)] = "nobody"
    no_sandbox: bool = False
    start_timeout: float = Field(default=20.0, ge=1, le=300, description="seconds")
    job_timeout: float = Field(default=60.0, ge=1, le=600, description="seconds")
    queue: int = Field(default=32, ge=1, le=10_000, description="jobs")
    contexts: int = Field(default=8, ge=1, le=256, description="contexts")
    idle: float = Field(default=600.0, ge=1, le=DAY, description="seconds")
    recycle_after: float = Field(default=float(DAY), ge=60, le=30 * DAY, description="seconds")
    recycle_memory: int = Field(default=GIB, ge=256 * MIB, le=64 * GIB, description="bytes")


class Marketplace(Section):
    """Which portal is worked with, and how."""

    market: Annotated[str, PlainValidator(values.market)] = "vn"
    portal_url: Origin = ""
    shop_url: Origin = ""
    short_urls: tuple[Annotated[str, PlainValidator(values.required_origin)], ...] = Field(
        default=(), strict=False, max_length=MOST_ENTRIES, examples=[["https://s.portal.example"]]
    )
    method: Literal["form", "fetch"] = "form"
    chunk: int = Field(default=5, ge=1, le=50, description="links")
    default_cap: int = Field(default=40_000, ge=0, le=1_000_000_000, description="currency units")


class Links(Section):
    """Where affiliate links come from, and how long they are remembered."""

    source: Literal["browser", "open_api"] = "browser"
    remember: float = Field(default=float(DAY), ge=0, le=30 * DAY, description="seconds")
    remember_max: int = Field(default=10_000, ge=0, le=1_000_000, description="links")


class Products(Section):
    """Where product data comes from, and how long it is remembered."""

    source: Literal["portal", "open_api", "third_party", "none"] = "portal"
    method: Literal["fetch", "page"] = "fetch"
    remember: float = Field(default=600.0, ge=0, le=DAY, description="seconds")
    remember_max: int = Field(default=10_000, ge=0, le=1_000_000, description="products")
    pause: float = Field(default=900.0, ge=0, le=DAY, description="seconds")


class OpenApi(Section):
    """Access to the marketplace's official Affiliate Open API."""

    app_id: Annotated[str, PlainValidator(values.app_id)] = Field(default="", examples=["123456"])
    secret: Secret = SecretStr("")
    secret_file: SecretFile = None
    url: Annotated[str, PlainValidator(values.endpoint)] = Field(
        default="", examples=["https://open-api.example/graphql"]
    )


class ThirdParty(Section):
    """An estimate service of somebody else's."""

    url: Annotated[str, PlainValidator(values.url_template)] = Field(
        default="", examples=["https://estimates.example/item?shop={shop_id}&item={item_id}"]
    )
    fields: dict[
        Annotated[str, PlainValidator(values.answer_field)],
        Annotated[str, PlainValidator(values.key_path)],
    ] = Field(default_factory=dict, examples=[{"name": "data.title", "price": "data.price"}])


class Journal(Section):
    """How long ended executions of crews are kept: until the first of the two limits."""

    retention_days: int = Field(default=30, ge=1, le=3650, description="days")
    retention_count: int = Field(default=1000, ge=1, le=1_000_000, description="executions")


class History(Section):
    """How much of the history of converted links is kept: until the first of the limits."""

    retention_days: int = Field(default=90, ge=0, le=3650, description="days")
    retention_count: int = Field(default=100_000, ge=1, le=1_000_000, description="entries")
    max_bytes: int = Field(default=256 * MIB, ge=MIB, le=64 * GIB, description="bytes")


class Webhooks(Section):
    """Whom crews' progress may be told to, and what the telling is signed with."""

    allow: NetworkList = ()
    secret: Annotated[SecretBytes | None, PlainValidator(values.webhook_key)] = None
    secret_file: SecretFile = None


class CrewTokens(Section):
    """What the bearer tokens of all crews are derived from."""

    master_secret: Annotated[SecretStr, PlainValidator(values.signing_secret)] = SecretStr("")
    master_secret_file: SecretFile = None


def _starts_with_path(words: tuple[str, ...]) -> tuple[str, ...]:
    if words and not words[0].startswith("/"):
        raise BadValue("must begin with the program's absolute path")
    return words


class Notify(Section):
    """How the owner is told of what needs them."""

    url: Annotated[SecretStr, PlainValidator(values.whole_url)] = Field(
        default=SecretStr(""), examples=["https://tell.example/a-topic"]
    )
    url_file: SecretFile = None
    command: Annotated[
        tuple[Annotated[str, PlainValidator(crew_values.argument)], ...],
        Field(strict=False),
        AfterValidator(_starts_with_path),
    ] = Field(default=(), max_length=MOST_ENTRIES, examples=[["/usr/local/bin/tell-me"]])


class Logging(Section):
    """What is worth a log line."""

    level: Literal["debug", "info", "warning", "error"] = "info"


@dataclass(frozen=True)
class Settings:
    """The whole configuration, checked. `warnings` are for the log of every start.

    `crews` are the entries as far as the file alone tells, the broken ones among them: see
    `smartlinkd/crews/reading/catalog.py` for which can run.
    """

    server: Server = field(default_factory=Server)
    state: State = field(default_factory=State)
    auth: Auth = field(default_factory=Auth)
    cookie: Cookie = field(default_factory=Cookie)
    browser: Browser = field(default_factory=Browser)
    marketplace: Marketplace = field(default_factory=Marketplace)
    links: Links = field(default_factory=Links)
    products: Products = field(default_factory=Products)
    open_api: OpenApi = field(default_factory=OpenApi)
    third_party: ThirdParty = field(default_factory=ThirdParty)
    journal: Journal = field(default_factory=Journal)
    history: History = field(default_factory=History)
    webhooks: Webhooks = field(default_factory=Webhooks)
    crew_tokens: CrewTokens = field(default_factory=CrewTokens)
    notify: Notify = field(default_factory=Notify)
    logging: Logging = field(default_factory=Logging)
    crews: tuple[CrewTable, ...] = ()
    warnings: tuple[Problem, ...] = ()

    @property
    def needs_browser(self) -> bool:
        """Whether anything of it is done by a Chromium."""
        return self.links.source == "browser" or self.products.source == "portal"


# By the names they have in the file.
SECTIONS: dict[str, type[Section]] = {
    "server": Server,
    "state": State,
    "auth": Auth,
    "cookie": Cookie,
    "browser": Browser,
    "marketplace": Marketplace,
    "links": Links,
    "products": Products,
    "open_api": OpenApi,
    "third_party": ThirdParty,
    "journal": Journal,
    "history": History,
    "webhooks": Webhooks,
    "crew_tokens": CrewTokens,
    "notify": Notify,
    "logging": Logging,
}

# With the tables that there may be many of: for saying where a key belongs.
TABLES: dict[str, type[Section]] = {**SECTIONS, "crews": CrewSection}
