"""Networks, host names and addresses to listen on: text in, typed value out.

The one parser for the configuration, for URLs of users and for sockets that systemd made. Text that
breaks a rule raises `BadValue`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network

from smartlinkd.validation import BadValue, require_text

Network = IPv4Network | IPv6Network

HIGHEST_PORT = 65535

_PORT = re.compile(r"[0-9]{1,5}")
# As in RFC 1123, but a label may end in a hyphen, and have underscores, as in private zones.
_HOST_NAME = re.compile(r"(?=.{1,253}\Z)[a-z0-9_]([a-z0-9_-]{0,62})(\.[a-z0-9_][a-z0-9_-]{0,62})*")


@dataclass(frozen=True)
class Bind:
    """An address to listen on: an IP address or a host name, and a port (0: any free one)."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def is_loopback(self) -> bool:
        """True if only this machine can connect."""
        return is_loopback(self.host)


def is_loopback(host: str) -> bool:
    """Return True for a loopback address and `localhost`. Other names are not resolved."""
    try:
        return ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host == "localhost"


def parse_bind(value: object) -> Bind:
    """Parse an address and a port: `127.0.0.1:8787`, `[::1]:8787`, `localhost:8787`."""
    if isinstance(value, Bind):
        return value
    host, colon, port = require_text(value).rpartition(":")
    if not colon:
        raise BadValue("must be an address and a port, HOST:PORT")
    if not (_PORT.fullmatch(port) and int(port) <= HIGHEST_PORT):
        raise BadValue(f"must end in a port from 0 to {HIGHEST_PORT}")
    if host.startswith("[") and host.endswith("]"):
        try:
            # `str` gives the address its canonical spelling; a zone (RFC 4007) keeps its capitals.
            return Bind(str(IPv6Address(host[1:-1])), int(port))
        except ValueError:
            raise BadValue("must have an IPv6 address, and nothing else, in brackets") from None
    if ":" in host:
        raise BadValue("must have its IPv6 address in brackets")
    try:
        IPv4Address(host)
    except ValueError:
        if not _HOST_NAME.fullmatch(host.lower()) or host.replace(".", "").isdigit():
            raise BadValue("must begin with an IP address or a host name") from None
    return Bind(host.lower(), int(port))


def parse_optional_bind(value: object) -> Bind | None:
    """Parse an address and a port. Empty text gives None: do not listen."""
    return None if value in ("", None) else parse_bind(value)


def parse_network(value: object) -> Network:
    """Parse a CIDR network, or a single address, which is a network of one."""
    given = require_text(value)
    try:
        wider = ip_network(given, strict=False)
    except ValueError:
        raise BadValue("must be an IP address or a network in CIDR form") from None
    try:
        return ip_network(given)
    except ValueError:
        raise BadValue("names an address inside a network", f'write "{wider}"') from None


def parse_host_name(value: object) -> str:
    """Parse a DNS name as in a `Host` header without its port. The result is lower-case."""
    name = require_text(value).lower().removesuffix(".")
    if not _HOST_NAME.fullmatch(name):
        raise BadValue("must be a bare host name, without scheme, port or path")
    return name
