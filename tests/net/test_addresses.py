"""Networks, host names and addresses: what is taken, what it becomes, and what is refused."""

from __future__ import annotations

from collections.abc import Callable
from ipaddress import ip_network

import pytest

from smartlinkd.net import addresses
from smartlinkd.net.addresses import Bind
from smartlinkd.validation import BadValue

LONGEST_NAME = f"{63 * 'x'}." * 3 + 61 * "x"


@pytest.mark.parametrize(
    ("rule", "given", "value"),
    [
        (addresses.parse_bind, "127.0.0.1:8787", Bind("127.0.0.1", 8787)),
        (addresses.parse_bind, "[::1]:0", Bind("::1", 0)),
        (addresses.parse_bind, "localhost:65535", Bind("localhost", 65535)),
        (addresses.parse_bind, "LocalHost:00080", Bind("localhost", 80)),
        (addresses.parse_bind, "[FE80:0::1%enP4p1s0]:80", Bind("fe80::1%enP4p1s0", 80)),
        (addresses.parse_network, "10.0.0.0/8", ip_network("10.0.0.0/8")),
        (addresses.parse_network, "::1", ip_network("::1/128")),
        (addresses.parse_host_name, "Links.Example.org.", "links.example.org"),
        (addresses.parse_host_name, LONGEST_NAME, LONGEST_NAME),
    ],
)
def test_valid_address_is_parsed(
    rule: Callable[[object], object], given: str, value: object
) -> None:
    assert rule(given) == value


@pytest.mark.parametrize(
    ("rule", "given", "fault"),
    [
        (addresses.parse_bind, "8787", "HOST:PORT"),
        (addresses.parse_bind, "127.0.0.1:65536", "port"),
        (addresses.parse_bind, "127.0.0.1:²", "port"),
        (addresses.parse_bind, "127.0.0.1:", "port"),
        (addresses.parse_bind, "127.0.0.1:0000099999", "port"),
        (addresses.parse_bind, "127.0.0.1:000080", "port"),
        (addresses.parse_bind, "[::1]x:80", "IPv6 address in brackets"),
        (addresses.parse_bind, "::1:8787", "brackets"),
        (addresses.parse_bind, "[127.0.0.1]:8787", "brackets"),
        (addresses.parse_bind, "300.0.0.1:80", "begin with"),
        (addresses.parse_bind, "http://x:80", "brackets"),
        (addresses.parse_bind, ":80", "begin with"),
        (addresses.parse_bind, 8787, "text"),
        (addresses.parse_network, "10.0.0.1/8", "inside a network"),
        (addresses.parse_network, "everybody", "CIDR"),
        (addresses.parse_network, "no host bits", "CIDR"),
        (addresses.parse_network, 10, "text"),
        (addresses.parse_host_name, "https://links.example", "bare host name"),
        (addresses.parse_host_name, "links.example:443", "bare host name"),
        (addresses.parse_host_name, LONGEST_NAME + "x", "bare host name"),
        (addresses.parse_host_name, 64 * "x", "bare host name"),
        (addresses.parse_host_name, "links." + 64 * "x", "bare host name"),
        (addresses.parse_host_name, "-links.example", "bare host name"),
        (addresses.parse_host_name, "links.-example", "bare host name"),
        (addresses.parse_host_name, "links..example", "bare host name"),
        (addresses.parse_host_name, "", "bare host name"),
    ],
)
def test_invalid_address_is_refused_with_its_rule(
    rule: Callable[[object], object], given: object, fault: str
) -> None:
    with pytest.raises(BadValue) as refused:
        rule(given)
    assert fault in refused.value.fault


@pytest.mark.parametrize(
    ("given", "shown", "loopback"),
    [
        (Bind("127.0.0.1", 80), "127.0.0.1:80", True),
        (Bind("::1", 80), "[::1]:80", True),
        (Bind("localhost", 80), "localhost:80", True),
        (Bind("0.0.0.0", 80), "0.0.0.0:80", False),
        (Bind("links.example", 80), "links.example:80", False),
    ],
)
def test_bind_is_shown_as_it_is_written(given: Bind, shown: str, loopback: bool) -> None:
    assert (str(given), given.is_loopback) == (shown, loopback)
