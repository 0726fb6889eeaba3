"""Rules between keys: what must not be combined, and what should be known at every start.

Conflicts are looked for in the values as they were given, not in the checked sections: so a key
with a fault of its own hides none of them, and all are reported at once.
"""

from __future__ import annotations

from collections.abc import Iterator
from ipaddress import ip_address

from smartlinkd.config.draft import Draft
from smartlinkd.config.problems import Problem
from smartlinkd.config.settings import Cookie, Marketplace, Server, Settings
from smartlinkd.marketplace.markets import host_and_port


def conflicts(draft: Draft) -> Iterator[Problem]:
    """What makes the configuration unusable although each value is right by itself."""
    if not _given(draft, "auth", "password_hash"):
        yield Problem(
            draft.name("auth", "password_hash"),
            "is missing, and there is no default password",
            "make one with `smartlinkd hash-password`, and set password_hash or "
            "password_hash_file in [auth]",
        )
    users = [place for place in ("links", "products") if draft.value(place, "source") == "open_api"]
    if users:
        yield from _needed(draft, users, "open_api", ("app_id", "secret"))
    if draft.value("products", "source") == "third_party":
        yield from _needed(draft, ["products"], "third_party", ("url",))


def warnings(settings: Settings) -> Iterator[Problem]:
    """What works, and leaves the owner less protected, or with less, than they may think."""
    yield from _exposed(settings.server, settings.cookie, settings.marketplace)
    left = "source" not in settings.products.model_fields_set
    if left and settings.links.source == "open_api":
        yield Problem(
            "products.source",
            'is left at "portal", which wants a Chromium, and a cookie: without one every product '
            "is null, although links.source needs neither",
            'set source in [products]: "open_api", or "portal" if that is what you want',
        )


def _exposed(server: Server, cookie: Cookie, marketplace: Marketplace) -> Iterator[Problem]:
    if not server.bind.is_loopback:
        yield from open_cookie(cookie, f"server.bind is {server.bind}")
    elif server.trusted_proxies:
        yield from open_cookie(cookie, "a proxy (server.trusted_proxies) brings them here")
    if any(net.prefixlen == 0 for net in server.trusted_proxies):
        yield Problem(
            "server.trusted_proxies",
            "believes the forwarding headers of every address",
            "name your proxy's own address only",
        )
    for key in ("portal_url", "shop_url"):
        url = getattr(marketplace, key)
        if url.startswith("http://") and not _is_local(url):
            yield Problem(
                f"marketplace.{key}", "sends the cookie over the network in clear", "use https://"
            )


def open_cookie(cookie: Cookie, why: str) -> Iterator[Problem]:
    """That others than this machine get the cookie, if so. `why` is how they come to us."""
    if not all(net.is_loopback for net in cookie.open_to):
        yield Problem(
            "cookie.open_to",
            f"lets other machines read and replace the cookie without a token, while {why}",
            "set open_to = [] and a sync_key_file",
        )


def out_of_reach(settings: Settings, memory: int) -> Iterator[Problem]:
    """Which limits are never met, as the daemon and all that it starts may use so many bytes."""
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


def _needed(
    draft: Draft, users: list[str], section: str, keys: tuple[str, ...]
) -> Iterator[Problem]:
    sources = " and ".join(draft.name(user, "source") for user in users)
    for key in keys:
        if not _given(draft, section, key):
            yield Problem(
                draft.name(section, key),
                f'is missing, and is needed by {sources} = "{section}"',
                f"set it in [{section}], or choose another source",
            )


def _given(draft: Draft, section: str, key: str) -> bool:
    """Whether there is a value, in place or by a file; a file without one was reported already."""
    by_file = draft.value(section, f"{key}_file") or (section, key) in draft.files
    return bool(draft.value(section, key) or by_file)


def _is_local(origin: str) -> bool:
    host, _ = host_and_port(origin)
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
