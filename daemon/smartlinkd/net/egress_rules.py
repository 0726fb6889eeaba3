"""Rules for the addresses that webhooks may call.

Whoever may start a crew names addresses that this daemon calls from inside the owner's network. So
only addresses of the public internet are allowed, and what the operator names in `webhooks.allow`.
A literal address is checked here at the kickoff. A name may lead elsewhere at each lookup, so
`egress.py` checks the address that it connects to. See docs/decisions/020-egress.md.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address
from typing import Final

from httpx import URL, InvalidURL

from smartlinkd.errors import Invalid
from smartlinkd.net.addresses import HIGHEST_PORT, Network, parse_host_name
from smartlinkd.validation import BadValue

Address = IPv4Address | IPv6Address

LONGEST_URL: Final = 4096
"""Characters, before and after the encoding. The URLs of automation services have a few hundred."""

_REFUSED_4: Final = tuple(
    map(
        IPv4Network,
        (
            "0.0.0.0/8",  # this host
            "10.0.0.0/8",  # private
            "100.64.0.0/10",  # shared by a provider's customers (CGNAT)
            "127.0.0.0/8",  # loopback
            "168.63.129.16/32",  # Azure's WireServer, the host of its machines
            "169.254.0.0/16",  # link-local; the metadata services of clouds
            "172.16.0.0/12",  # private
            "192.0.0.0/24",  # protocol assignments
            "192.0.2.0/24",  # documentation
            "192.88.99.0/24",  # relays of 6to4
            "192.168.0.0/16",  # private
            "198.18.0.0/15",  # benchmarks
            "198.51.100.0/24",  # documentation
            "203.0.113.0/24",  # documentation
            "224.0.0.0/4",  # multicast
            "240.0.0.0/4",  # reserved, and broadcast
        ),
    )
)
_GLOBAL_6: Final = IPv6Network("2000::/3")
_REFUSED_6: Final = tuple(
    map(
        IPv6Network,
        (
            "2001::/23",  # protocol assignments, with Teredo
            "2001:db8::/32",  # documentation
            "2002::/16",  # 6to4
            "3fff::/20",  # documentation
        ),
    )
)
_CARRY_4: Final = (IPv6Network("::ffff:0:0/96"), IPv6Network("64:ff9b::/96"))

# Resolvers read these as IPv4 addresses (inet_aton): 127.1, 0x7f.1, 2130706433. No real name ends
# like that.
_NUMBER = re.compile(r"(.*\.)?([0-9]+|0x[0-9a-f]*)")
_LOOPBACK = (ip_address("127.0.0.1"), ip_address("::1"))


def is_allowed(address: Address, allow: Sequence[Network]) -> bool:
    """Return True for a public address, and for one in an `allow` network."""
    if is_allowlisted(address, allow):
        return True
    target = effective_address(address)
    if isinstance(target, IPv4Address):
        return not any(target in network for network in _REFUSED_4)
    return target in _GLOBAL_6 and not any(target in network for network in _REFUSED_6)


def is_allowlisted(address: Address, allow: Sequence[Network]) -> bool:
    """Return True if an `allow` network holds the address."""
    return any(
        each in network for network in allow for each in (address, effective_address(address))
    )


def is_same_link(one: Address, other: Address) -> bool:
    """Return True if both are in one /64. Links of IPv4 have no fixed size."""
    return one.version == other.version == 6 and int(one) >> 64 == int(other) >> 64


def effective_address(address: Address) -> Address:
    """Return the IPv4 address that an IPv6 one carries, else the address itself.

    The system (IPv4-mapped) or a gateway (NAT64) sends packets there.
    """
    if isinstance(address, IPv6Address) and any(address in network for network in _CARRY_4):
        return IPv4Address(address.packed[-4:])
    return address


def check_url(field: str, url: str, allow: Sequence[Network]) -> str:
    """Return the URL as it is to be called. A name is not resolved.

    Raises:
        Invalid: the URL breaks a rule. The text names `field` and never quotes the URL.
    """
    if len(url) > LONGEST_URL:
        raise Invalid(f"{field}: has more than {LONGEST_URL} characters; use a shorter address")
    if "\\" in url or not url.isprintable() or " " in url:
        raise Invalid(f"{field}: holds a blank, a backslash or a control character; encode it")
    try:
        parts = URL(url)
    except InvalidURL:
        raise Invalid(f"{field}: is not a URL; use one such as https://example.com/path") from None
    if parts.scheme not in ("http", "https"):
        raise Invalid(f"{field}: must begin with https:// or http://")
    if parts.userinfo:
        raise Invalid(
            f"{field}: holds a user name or a password; leave them out of the address (`webhooks` "
            "and `humanInputWebhook` have `authentication` for them)"
        )
    if parts.port is not None and not 1 <= parts.port <= HIGHEST_PORT:
        raise Invalid(f"{field}: has a port that is not between 1 and {HIGHEST_PORT}")
    called = str(parts.copy_with(host=_host(field, parts, allow), fragment=None))
    if len(called) > LONGEST_URL:
        raise Invalid(
            f"{field}: has more than {LONGEST_URL} characters when it is percent-encoded; use a "
            "shorter address"
        )
    return called


def _host(field: str, parts: URL, allow: Sequence[Network]) -> str:
    """Return the host in lower case, without a full stop at its end."""
    host = parts.raw_host.decode("ascii").removesuffix(".")
    try:
        address = ip_address(host)
    except ValueError:
        pass
    else:
        _check_literal(field, address, allow)
        return host
    try:
        name = parse_host_name(host)
    except BadValue:
        raise Invalid(f"{field}: has no host, or one whose name cannot be") from None
    if _NUMBER.fullmatch(name):
        raise Invalid(f"{field}: has an IPv4 address in an unusual form; write four numbers")
    # RFC 6761 section 6.3: these names are loopback, whatever a resolver says.
    is_localhost = name == "localhost" or name.endswith(".localhost")
    if is_localhost and not any(is_allowed(each, allow) for each in _LOOPBACK):
        _check_literal(field, _LOOPBACK[0], allow)
    return name


def _check_literal(field: str, address: Address, allow: Sequence[Network]) -> None:
    if not is_allowed(address, allow):
        raise Invalid(
            f"{field}: {address} is not an address of the public internet, and webhooks may call "
            "no other; use a public one, or have the operator name its network in webhooks.allow"
        )


def origin(url: str) -> str:
    """Return scheme, host and port. A log shows no more, since the rest may be a secret."""
    try:
        parts = URL(url)
    except InvalidURL:
        return "what is no address"
    return f"{parts.scheme}://{parts.netloc.decode('ascii')}"
