"""Which addresses webhooks may call."""

from __future__ import annotations

from ipaddress import ip_address, ip_network

import pytest

from smartlinkd.errors import Invalid
from smartlinkd.net.egress_rules import LONGEST_URL, check_url, is_allowed, is_same_link, origin

HOME = (ip_network("192.168.1.0/24"), ip_network("fd00::/8"))


@pytest.mark.parametrize(
    "address",
    [
        "8.8.8.8",
        "100.63.255.255",
        "172.15.0.1",
        "172.32.0.1",
        "168.63.129.15",
        "168.63.129.17",
        "223.255.255.255",
        "2606:4700::1111",
        "2a00:1450::1",
        "::ffff:8.8.8.8",
        "64:ff9b::808:808",
    ],
)
def test_public_address_may_be_called(address: str) -> None:
    assert is_allowed(ip_address(address), ())


@pytest.mark.parametrize(
    "address",
    [
        "0.0.0.0",
        "0.1.2.3",
        "10.1.2.3",
        "100.64.0.1",
        "127.0.0.1",
        "127.255.255.254",
        "168.63.129.16",  # Azure's WireServer
        "169.254.169.254",
        "172.16.0.1",
        "172.31.255.255",
        "192.0.0.1",
        "192.0.2.1",
        "192.88.99.1",
        "192.168.1.1",
        "198.19.0.1",
        "198.51.100.1",
        "203.0.113.1",
        "224.0.0.1",
        "239.255.255.255",
        "240.0.0.1",
        "255.255.255.255",
        "::",
        "::1",
        "::127.0.0.1",  # IPv4-compatible
        "::ffff:127.0.0.1",  # IPv4-mapped
        "::ffff:10.0.0.1",
        "64:ff9b::7f00:1",  # NAT64 of 127.0.0.1
        "64:ff9b::a9fe:a9fe",  # and of 169.254.169.254
        "::ffff:168.63.129.16",
        "64:ff9b::a83f:8110",  # NAT64 of 168.63.129.16
        "64:ff9b:1::808:808",  # NAT64 of a local prefix
        "100::1",  # discard
        "2001:0:7f00:1::1",  # Teredo
        "2001:db8::1",
        "2002:7f00:1::1",  # 6to4 of 127.0.0.1
        "2002:808:808::1",  # 6to4 of a public address
        "3fff::1",
        "4000::1",
        "5f00::1",
        "fc00::1",
        "fd12:3456::1",
        "fe80::1",
        "fe80::1%eth0",
        "fec0::1",
        "ff02::1",
    ],
)
def test_other_address_needs_to_be_named(address: str) -> None:
    assert not is_allowed(ip_address(address), HOME[:0])
    assert is_allowed(ip_address(address), (ip_network("0.0.0.0/0"), ip_network("::/0")))


@pytest.mark.parametrize("address", ["192.168.1.7", "fd00::7", "::ffff:192.168.1.7"])
def test_address_of_a_named_network_may_be_called(address: str) -> None:
    assert is_allowed(ip_address(address), HOME)


def test_named_network_allows_no_other() -> None:
    assert not is_allowed(ip_address("192.168.2.7"), HOME)


@pytest.mark.parametrize(
    ("url", "called"),
    [
        ("https://hooks.example.com/a/b?c=d", "https://hooks.example.com/a/b?c=d"),
        ("HTTP://Hooks.Example.Com:8080", "http://hooks.example.com:8080"),
        ("https://hooks.example.com./x#part", "https://hooks.example.com/x"),
        ("https://bücher.example/ü", "https://xn--bcher-kva.example/%C3%BC"),
        ("http://8.8.8.8/x", "http://8.8.8.8/x"),
        ("http://[2606:4700::1111]:81/x", "http://[2606:4700::1111]:81/x"),
        ("http://192.168.1.7/x", "http://192.168.1.7/x"),
        ("http://intranet/x", "http://intranet/x"),  # a name: judged by where it leads
    ],
)
def test_url_is_normalised_to_what_is_called(url: str, called: str) -> None:
    assert check_url("crewWebhookUrl", url, HOME) == called
    assert check_url("crewWebhookUrl", called, HOME) == called


@pytest.mark.parametrize(
    ("url", "fault"),
    [
        ("", "https:// or http://"),
        ("hooks.example.com/secret", "https:// or http://"),
        ("ftp://hooks.example.com/secret", "https:// or http://"),
        ("file:///etc/secret", "https:// or http://"),
        ("https:///secret", "no host"),
        ("https://./secret", "no host"),
        ("https://a..b/secret", "no host"),
        ("https://*.example.com/secret", "no host"),
        ("https://%31/secret", "no host"),
        ("https://[fe80::1%25eth0]/secret", "is not an address of the public internet"),
        ("https://[::1/secret", "is not a URL"),
        ("https://user:secret@hooks.example.com/", "user name or a password"),
        ("https://secret@hooks.example.com/", "user name or a password"),
        ("https://hooks.example.com:0/secret", "port"),
        ("https://hooks.example.com:65536/secret", "port"),
        ("https://hooks.example.com/a secret", "blank"),
        ("https://hooks.example.com/secret\n", "control character"),
        ("https://hooks.example.com\\@127.0.0.1/secret", "backslash"),
        ("https://hooks.example.com/secret" + "x" * LONGEST_URL, "shorter"),
        ("https://hooks.example.com/secret" + "ế" * 1000, "shorter"),
        ("http://127.0.0.1/secret", "127.0.0.1 is not an address of the public internet"),
        ("http://127.0.0.1./secret", "127.0.0.1 is not"),
        ("http://127。0。0。1/secret", "127.0.0.1 is not"),
        ("http://[::1]/secret", "::1 is not"),
        ("http://[::ffff:7f00:1]/secret", "is not an address of the public internet"),
        ("http://localhost:8787/secret", "127.0.0.1 is not"),
        ("http://app.LOCALHOST/secret", "127.0.0.1 is not"),
        ("http://2130706433/secret", "unusual form"),
        ("http://0x7f.1/secret", "unusual form"),
        ("http://0177.0.0.1/secret", "is not a URL"),
        ("http://hooks.0x7f000001/secret", "unusual form"),
    ],
)
def test_invalid_url_is_refused_without_repeating_it(url: str, fault: str) -> None:
    with pytest.raises(Invalid, match=r"^stepWebhookUrl: ") as refused:
        check_url("stepWebhookUrl", url, HOME)
    assert fault in str(refused.value)
    assert "secret" not in str(refused.value)


@pytest.mark.parametrize("network", ["127.0.0.0/8", "::1/128"])
def test_localhost_may_be_called_when_its_address_may(network: str) -> None:
    url = "http://localhost:8787/x"
    assert check_url("crewWebhookUrl", url, [ip_network(network)]) == url


@pytest.mark.parametrize(
    ("url", "told"),
    [
        ("https://h.example/secret?secret=1", "https://h.example"),
        ("http://user:secret@[::1]:81/secret", "http://[::1]:81"),
        ("http://secret\n", "what is no address"),
    ],
)
def test_url_in_a_log_has_no_secret(url: str, told: str) -> None:
    assert origin(url) == told


@pytest.mark.parametrize(
    ("one", "other", "is_one"),
    [
        ("2a01:4f8:1:2::1", "2a01:4f8:1:2:aaaa::9", True),
        ("2a01:4f8:1:3::1", "2a01:4f8:1:2::1", False),
        ("51.15.20.30", "51.15.20.31", False),
        ("51.15.20.30", "2a01:4f8:1:2::1", False),
    ],
)
def test_same_link_is_recognised(one: str, other: str, is_one: bool) -> None:
    assert is_same_link(ip_address(one), ip_address(other)) == is_one
