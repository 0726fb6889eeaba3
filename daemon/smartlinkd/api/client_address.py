"""The address that a request counts as, and if it is local (docs/api.md, "Credentials").

Open endpoints are open to a client that is surely one of the addresses of `cookie.open_to`. A proxy
makes everybody look like itself, a forged header makes anybody look like anybody, and a web page in
the owner's browser calls from the owner's address. So whatever is unclear is not local, and needs a
token or the sync key.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address

from werkzeug.datastructures import Headers

from smartlinkd.net.addresses import Network
from smartlinkd.untrusted import escape_unprintable

Address = IPv4Address | IPv6Address

FORWARDING_HEADERS = (
    "forwarded",  # RFC 7239
    "x-forwarded",  # with all that begins like it
    "x-original-forwarded-for",
    "x-real-ip",
    "x-client-ip",
    "x-cluster-client-ip",
    "true-client-ip",
    "cf-connecting-ip",
    "fastly-client-ip",
    "via",  # RFC 9110, section 7.6.3
)
"""Beginnings of header names, in lower case, that only a request through a proxy has."""
EXTENSIONS = ("chrome-extension://", "moz-extension://", "safari-web-extension://")
"""Beginnings of the origins of extensions, which sync. They are no web pages."""
MAX_SHOWN = 100
"""Characters of a `Host` or an `Origin` that a refusal quotes."""


@dataclass(frozen=True)
class ClientAccess:
    """The settings that decide who is local."""

    open_to: Sequence[Network]
    trusted_proxies: Sequence[Network]
    public_hosts: Collection[str]


@dataclass(frozen=True)
class ApiClient:
    """The client of a request."""

    address: str
    """Throttling goes by it."""
    reason_refused: str = ""
    """Why it is not local, naming the setting that decides; empty if it is."""

    @property
    def is_local(self) -> bool:
        """True if it is surely one of `cookie.open_to`."""
        return not self.reason_refused


def identify(peer: str | None, headers: Headers, access: ClientAccess) -> ApiClient:
    """Return the client behind a connection from `peer`. Never raises."""
    address = _address(peer or "")
    if address is None:
        return ApiClient(peer or "unknown", "its address is none that could be in cookie.open_to")
    if any(name.lower().startswith(FORWARDING_HEADERS) for name, _ in headers):
        if not _within(address, access.trusted_proxies):
            reason = f"it has a forwarding header, and {address} is not in server.trusted_proxies"
            return ApiClient(str(address), reason)
        origin = _forwarded_by(address, headers, access)
        if origin is None:
            reason = "what the headers of server.trusted_proxies say of its address is not clear"
            return ApiClient(str(address), reason)
        address = origin
    return ApiClient(str(address), _reason_not_local(address, headers, access))


def _reason_not_local(address: Address, headers: Headers, access: ClientAccess) -> str:
    host = headers.get("Host", "")
    if not _within(address, access.open_to):
        return f"{address} is not in cookie.open_to"
    if not _is_our_name(host, access):
        return f'its Host, "{escape_unprintable(host[:MAX_SHOWN])}", is not in server.public_hosts'
    origin = headers.get("Origin")
    if origin is None or origin.startswith(EXTENSIONS) or _is_origin_of(host, origin):
        return ""
    shown = escape_unprintable(origin[:MAX_SHOWN])
    return f'its Origin, "{shown}", is not that of its Host (a proxy has to pass that on)'


def _forwarded_by(proxy: Address, headers: Headers, access: ClientAccess) -> Address | None:
    """Return the nearest address that is not a trusted proxy, or None if that is unclear."""
    chains = (
        _elements(headers, "X-Forwarded-For"),
        [_parameter(element, "for") for element in _elements(headers, "Forwarded")],
        _elements(headers, "X-Real-IP"),
    )
    nearest = {_nearest(hops, access) for hops in chains if hops}
    # One that names our own proxies alone says nothing. Of the others all must say the same: a
    # proxy that writes one of these headers may pass on another one as the client sent it.
    origins = {one for one in nearest if one is None or not _within(one, access.trusted_proxies)}
    origin = origins.pop() if len(origins) == 1 else None
    # Another machine's own loopback is not ours, nor is it who asks.
    return None if origin and origin.is_loopback and not proxy.is_loopback else origin


def _nearest(hops: Sequence[str], access: ClientAccess) -> Address | None:
    """Return the last address that is not a trusted proxy, else the first of the proxies.

    Returns None for one that cannot be read.
    """
    address = None
    # The last entry was written by the proxy that called us, the one before it by the one before.
    for hop in reversed(hops):
        address = _address(_without_port(hop.strip().strip('"')))
        if address is None or not _within(address, access.trusted_proxies):
            return address
    return address


def _is_our_name(host: str, access: ClientAccess) -> bool:
    """Return True for an address, `localhost`, or a configured name: none that others may own."""
    name = _without_port(host).lower().removesuffix(".")
    return name == "localhost" or name in access.public_hosts or _address(name) is not None


def _is_origin_of(host: str, origin: str) -> bool:
    return origin.lower() in (f"http://{host}".lower(), f"https://{host}".lower())


def is_own_page(method: str, headers: Headers) -> bool:
    """Return True if a browser says that a page of the daemon's own sent the request."""
    site = headers.get("Sec-Fetch-Site")
    if site is not None:
        return site == "same-origin"
    # Browsers send that header only to https and to loopback.
    host = headers.get("Host", "")
    origin = headers.get("Origin")
    if origin is None and method in ("GET", "HEAD"):
        # These have no Origin within one origin (Fetch, "append a request `Origin` header").
        scheme, _, rest = headers.get("Referer", "").partition("://")
        origin = f"{scheme}://{rest.partition('/')[0]}"
    return origin is not None and _is_origin_of(host, origin)


def came_over_https(peer: str | None, headers: Headers, access: ClientAccess) -> bool:
    """Return True if a trusted proxy says that its client used https."""
    address = _address(peer or "")
    if address is None or not _within(address, access.trusted_proxies):
        return False
    # Of several proxies the first has talked to the client.
    schemes = [
        *_elements(headers, "X-Forwarded-Proto"),
        *(_parameter(element, "proto") for element in _elements(headers, "Forwarded")),
    ]
    return bool(schemes) and schemes[0].strip().strip('"').lower() == "https"


def _within(address: Address, networks: Sequence[Network]) -> bool:
    return any(address in network for network in networks if network.version == address.version)


def _address(text: str) -> Address | None:
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        return None
    if isinstance(address, IPv6Address):
        # Without its zone: that is the interface it came by, and not who it is.
        return address.ipv4_mapped or IPv6Address(int(address))
    return address


_HOST_AND_PORT = re.compile(r"(?:\[([0-9A-Fa-f:.]+)\]|([^:\[\]]+))(?::[0-9]{0,5})?")


def _without_port(text: str) -> str:
    """Return the host of `host:port`; any other text, as IPv6 without brackets, as it is."""
    parts = _HOST_AND_PORT.fullmatch(text)
    return (parts[1] or parts[2]) if parts else text


def _elements(headers: Headers, name: str) -> list[str]:
    """Return the elements of a list header: a client's own line first, the proxy's after it."""
    return [element for line in headers.getlist(name) for element in line.split(",")]


def _parameter(element: str, wanted: str) -> str:
    """Return a parameter of one element of a `Forwarded` header (RFC 7239, section 4), or ""."""
    for parameter in element.split(";"):
        name, _, value = parameter.partition("=")
        if name.strip().lower() == wanted:
            return value.strip()
    return ""
