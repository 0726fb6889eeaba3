"""Checks of several keys together: conflicts, warnings, and the changes that a reload can apply.

Conflicts are found in the values as they were given, not in checked sections: a key with a fault of
its own hides none of them. See docs/decisions/046-live-settings.md for the keys that a reload
applies.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Final

from smartlinkd.config.base import Section
from smartlinkd.config.problems import Problem
from smartlinkd.config.settings import SECTIONS, CookieSection, Settings
from smartlinkd.config.sources import Draft
from smartlinkd.marketplace.urls import host_and_port
from smartlinkd.net.addresses import is_loopback

LIVE: Final[Mapping[str, tuple[str, ...]]] = MappingProxyType(
    {
        "server": ("trusted_proxies", "public_hosts", "max_body"),
        "auth": ("password_hash", "password_hash_file"),
        "cookie": ("open_to", "extension_origins"),
        "journal": ("retention_days", "retention_count"),
        "history": ("retention_days", "retention_count", "max_bytes"),
        "logging": ("level",),
    }
)
"""The keys that can change without a restart, by section; all `[[crews]]` can, but their `bind`."""


def conflicts(draft: Draft) -> Iterator[Problem]:
    """Yield the problems of keys that are needed, by themselves or by the values of others."""
    if not draft.is_given("auth", "password_hash"):
        yield Problem(
            draft.name("auth", "password_hash"),
            "is missing, and there is no default password",
            "make one with `smartlinkd hash-password`, and set password_hash or "
            "password_hash_file in [auth]",
        )
    users = [user for user in ("links", "products") if draft.value(user, "source") == "open_api"]
    if users:
        yield from _missing(draft, users, "open_api", ("app_id", "secret"))
    if draft.value("products", "source") == "third_party":
        yield from _missing(draft, ["products"], "third_party", ("url",))


def warnings(settings: Settings) -> Iterator[Problem]:
    """Yield what leaves the owner with less protection, or less data, than they may think."""
    server, marketplace = settings.server, settings.marketplace
    if not server.bind.is_loopback:
        yield from open_cookie(settings.cookie, f"server.bind is {server.bind}")
    elif server.trusted_proxies:
        why = "a proxy (server.trusted_proxies) brings them here"
        yield from open_cookie(settings.cookie, why)
    if any(net.prefixlen == 0 for net in server.trusted_proxies):
        yield Problem(
            "server.trusted_proxies",
            "believes the forwarding headers of every address",
            "name your proxy's own address only",
        )
    for key in ("portal_url", "shop_url"):
        url = getattr(marketplace, key)
        if url.startswith("http://") and not is_loopback(host_and_port(url)[0]):
            yield Problem(
                f"marketplace.{key}", "sends the cookie over the network in clear", "use https://"
            )
    is_default = "source" not in settings.products.model_fields_set
    if is_default and settings.links.source == "open_api":
        yield Problem(
            "products.source",
            'is left at "portal", which wants a Chromium, and a cookie: without one every product '
            "is null, although links.source needs neither",
            'set source in [products]: "open_api", or "portal" if that is what you want',
        )


def open_cookie(cookie: CookieSection, why: str) -> Iterator[Problem]:
    """Yield a problem if other machines get the cookie. `why` is how they reach the daemon."""
    if not all(net.is_loopback for net in cookie.open_to):
        yield Problem(
            "cookie.open_to",
            f"lets other machines read and replace the cookie without a token, while {why}",
            "set open_to = [] and a sync_key_file",
        )


def out_of_reach(settings: Settings, memory: int) -> Iterator[Problem]:
    """Yield the limits of memory that are never reached, since `memory` (bytes) is all there is."""
    limits = {
        entry.key("memory"): entry.section.memory for entry in settings.crews if entry.section
    }
    if settings.needs_browser:
        limits = {"browser.recycle_memory": settings.browser.recycle_memory, **limits}
    for key, limit in limits.items():
        if limit > memory:
            yield Problem(
                key,
                f"is {limit >> 20} MiB, and there are at most {memory >> 20} MiB for the daemon "
                "and all that it starts: the kernel slows them down, and kills one, long before",
                "set less, on a machine of 1 GB 419430400 (400 MiB)",
            )


@dataclass(frozen=True)
class Changes:
    """The difference between the settings in force and those that were read.

    Attributes:
        settings: the old ones, with the new values of `applied` and their warnings.
        applied: the changed keys that a running daemon can apply.
        waiting: the changed keys that need a restart.
    """

    settings: Settings
    applied: tuple[str, ...]
    waiting: tuple[str, ...]


def changes(old: Settings, new: Settings) -> Changes:
    """Compare the settings in force with those that were read. See `LIVE`."""
    applied: list[str] = []
    waiting: list[str] = []
    sections: dict[str, Section] = {}
    for name in SECTIONS:
        before, after = getattr(old, name), getattr(new, name)
        live = LIVE.get(name, ())
        for key in type(before).model_fields:
            if getattr(before, key) != getattr(after, key):
                (applied if key in live else waiting).append(f"{name}.{key}")
        sections[name] = before.model_copy(update={key: getattr(after, key) for key in live})
    if old.crews != new.crews:
        applied.append("crews")
    settings = replace(old, **sections, crews=new.crews)  # type: ignore[arg-type]  # see SECTIONS
    # The mix of old and new may be worth a warning that neither is.
    together = tuple(dict.fromkeys((*new.warnings, *warnings(settings))))
    return Changes(replace(settings, warnings=together), tuple(applied), tuple(waiting))


def _missing(
    draft: Draft, users: list[str], section: str, keys: tuple[str, ...]
) -> Iterator[Problem]:
    sources = " and ".join(draft.name(user, "source") for user in users)
    for key in keys:
        if not draft.is_given(section, key):
            yield Problem(
                draft.name(section, key),
                f'is missing, and is needed by {sources} = "{section}"',
                f"set it in [{section}], or choose another source",
            )
