"""Networks, host names, and addresses to listen on: text in, typed value out.

The problem: what an IPv6 address with a port looks like, or a name that can be one, is decided anew
by everybody who meets it. So it is parsed here, once, for the configuration, for addresses that
somebody has named, and for sockets that were made elsewhere.

A rule that is broken is a `BadValue`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network

from smartlinkd.bad_value import BadValue, text

Network = IPv4Network | IPv6Network

HIGHEST_PORT = 65535

_PORT = re.compile(r"[0-9]{1,5}")
# A label, and so a name, as in RFC 1123; underscores are let in because private zones use them.
_HOST_NAME = re.compile(r"(?=.{1,253}\Z)[a-z0-9_]([a-z0-9_-]{0,62})(\.[a-z0-9_][a-z0-9_-]{0,62})*")


@dataclass(frozen=True)
class Bind:
    """Where to listen: an IP address or a host name, and a port (0: any that is free)."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def loopback(self) -> bool:
        """Whether only this machine can connect, as far as the name alone tells."""
        try:
            return ip_address(self.host).is_loopback
        except ValueError:
            return self.host == "localhost"


def bind(value: object) -> Bind:
    """`127.0.0.1:8787`, `[::1]:8787`, `localhost:8787`."""
    if isinstance(value, Bind):
        return value
    host, colon, port = text(value).rpartition(":")
    if not colon:
        raise BadValue("must be an address and a port, HOST:PORT")
    if not (_PORT.fullmatch(port) and int(port) <= HIGHEST_PORT):
        raise BadValue(f"must end in a port from 0 to {HIGHEST_PORT}")
    if host.startswith("[") and host.endswith("]"):
        if not _is_ip(host[1:-1], IPv6Address):
            raise BadValue("must have an IPv6 address, and nothing else, in brackets")
        # In its one spelling; an interface's name behind it may have capitals, and keeps them.
        return Bind(str(IPv6Address(host[1:-1])), int(port))
    if ":" in host:
        raise BadValue("must have its IPv6 address in brackets")
    if not _is_ip(host, IPv4Address) and (
        not _HOST_NAME.fullmatch(host.lower()) or host.replace(".", "").isdigit()
    ):
        raise BadValue("must begin with an IP address or a host name")
    return Bind(host.lower(), int(port))


def optional_bind(value: object) -> Bind | None:
    """Where to listen, or nothing when empty."""
    return None if value in ("", None) else bind(value)


def network(value: object) -> Network:
    """A CIDR network, or a single address, which is a network of one."""
    given = text(value)
    try:
        wider = ip_network(given, strict=False)
    except ValueError:
        raise BadValue("must be an IP address or a network in CIDR form") from None
    try:
        return ip_network(given)
    except ValueError:
        raise BadValue("names an address inside a network", f'write "{wider}"') from None


def host_name(value: object) -> str:
    """A DNS name as it stands in a `Host` header, without its port; lower-case."""
    name = text(value).lower().removesuffix(".")
    if not _HOST_NAME.fullmatch(name):
        raise BadValue("must be a bare host name, without scheme, port or path")
    return name


def _is_ip(host: str, kind: type[IPv4Address | IPv6Address]) -> bool:
    try:
        kind(host)
    except ValueError:
        return False
    return True
