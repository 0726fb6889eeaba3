"""Local clients: by address, forwarding headers, `Host` and `Origin`."""

from __future__ import annotations

from ipaddress import ip_network
from typing import NamedTuple

import pytest
from werkzeug.datastructures import Headers

from smartlinkd.api.client_address import ClientAccess, came_over_https, identify

HOST = ("Host", "127.0.0.1:8787")
PROXY = "10.0.0.1"
FURTHER_PROXY = "10.0.0.2"
VISITOR = "203.0.113.9"
NEIGHBOUR = "192.168.1.7"
LOOPBACK = ["127.0.0.0/8", "::1/128"]


class Identity(NamedTuple):
    """The client address, and True if the client counts as local."""

    address: str
    local: bool


def rules(
    *open_to: str, proxies: tuple[str, ...] = ("10.0.0.0/24",), hosts: tuple[str, ...] = ()
) -> ClientAccess:
    return ClientAccess(
        open_to=[ip_network(one) for one in open_to or LOOPBACK],
        trusted_proxies=[ip_network(one) for one in proxies],
        public_hosts=frozenset(hosts),
    )


def identify_peer(
    peer: str | None, *headers: tuple[str, str], by: ClientAccess | None = None
) -> Identity:
    """Identify a request with a good `Host`, unless the headers have another one."""
    given = list(headers)
    if not any(name.lower() == "host" for name, _ in given):
        given.insert(0, HOST)
    found = identify(peer, Headers(given), by or rules())
    return Identity(found.address, found.is_local)


def identify_forwarded(*headers: tuple[str, str], by: ClientAccess | None = None) -> Identity:
    """Identify a request that the trusted proxy forwards; a neighbour and loopback are in
    open_to."""
    return identify_peer(PROXY, *headers, by=by or rules("127.0.0.0/8", f"{NEIGHBOUR}/32"))


UNCLEAR = Identity(PROXY, local=False)


# The address


@pytest.mark.parametrize(
    ("peer", "open_to", "seen"),
    [
        ("127.0.0.1", LOOPBACK, Identity("127.0.0.1", local=True)),
        ("127.255.255.254", LOOPBACK, Identity("127.255.255.254", local=True)),
        ("::1", LOOPBACK, Identity("::1", local=True)),
        ("::ffff:127.0.0.1", LOOPBACK, Identity("127.0.0.1", local=True)),
        (VISITOR, LOOPBACK, Identity(VISITOR, local=False)),
        ("128.0.0.1", LOOPBACK, Identity("128.0.0.1", local=False)),
        ("0.0.0.0", LOOPBACK, Identity("0.0.0.0", local=False)),
        ("::7f00:1", LOOPBACK, Identity("::7f00:1", local=False)),
        (f"::ffff:{VISITOR}", LOOPBACK, Identity(VISITOR, local=False)),
        ("127.0.0.1", ["192.168.0.0/16"], Identity("127.0.0.1", local=False)),
        ("::1", ["0.0.0.0/0"], Identity("::1", local=False)),
        ("2001:db8::5", ["0.0.0.0/0", "::/0"], Identity("2001:db8::5", local=True)),
        # A zone is a network interface.
        ("fe80::1%eth0", ["fe80::/10"], Identity("fe80::1", local=True)),
        (None, LOOPBACK, Identity("unknown", local=False)),
        ("<local>", LOOPBACK, Identity("<local>", local=False)),
        ("127.1", LOOPBACK, Identity("127.1", local=False)),
        ("127.0.0.1%lo", LOOPBACK, Identity("127.0.0.1%lo", local=False)),
    ],
)
def test_peer_is_local_if_its_address_is_in_open_to(
    peer: str | None, open_to: list[str], seen: Identity
) -> None:
    assert identify_peer(peer, by=rules(*open_to)) == seen


# Forwarding headers of an untrusted client


@pytest.mark.parametrize(
    "header",
    [
        ("Forwarded", "for=127.0.0.1"),
        ("X-Forwarded-For", "127.0.0.1"),
        ("x-forwarded-for", "127.0.0.1"),
        ("X-FORWARDED-FOR", ""),
        ("X-Forwarded-Host", "localhost"),
        ("X-Forwarded-Proto", "https"),
        ("X-Forwarded-Server", "proxy"),
        ("X-Original-Forwarded-For", "127.0.0.1"),
        ("X-Real-IP", "127.0.0.1"),
        ("X-Client-IP", "127.0.0.1"),
        ("X-Cluster-Client-IP", "127.0.0.1"),
        ("True-Client-IP", "127.0.0.1"),
        ("CF-Connecting-IP", "127.0.0.1"),
        ("Fastly-Client-IP", "127.0.0.1"),
        ("Via", "1.1 proxy"),
    ],
    ids=lambda header: header[0],
)
def test_forwarding_header_of_a_stranger_is_not_local(
    header: tuple[str, str],
) -> None:
    assert identify_peer("127.0.0.1", header) == Identity("127.0.0.1", local=False)


def test_other_headers_do_not_matter() -> None:
    assert identify_peer(
        "127.0.0.1", ("X-Forward", "1"), ("Cookie", "a=1"), ("Accept", "*/*")
    ).local


# Forwarding headers of a trusted proxy


@pytest.mark.parametrize(
    "headers",
    [
        [("X-Forwarded-For", NEIGHBOUR)],
        [("X-Forwarded-For", f" {NEIGHBOUR} ")],
        [("X-Forwarded-For", f"{NEIGHBOUR}:4711")],
        [("X-Forwarded-For", f"evil, {VISITOR},{NEIGHBOUR}")],
        [("X-Forwarded-For", f"::ffff:{NEIGHBOUR}")],
        [("X-Forwarded-For", f"{VISITOR}, {NEIGHBOUR}, {FURTHER_PROXY}")],
        [("X-Forwarded-For", f"{NEIGHBOUR}, {FURTHER_PROXY}"), ("X-Real-IP", FURTHER_PROXY)],
        # Several header lines are one list in their order.
        [("X-Forwarded-For", VISITOR), ("X-Forwarded-For", f"{NEIGHBOUR}, {FURTHER_PROXY}")],
        [("Forwarded", f"for={VISITOR}"), ("Forwarded", f"for={NEIGHBOUR}")],
        [("Forwarded", f'For="{NEIGHBOUR}"')],
        [("Forwarded", f'for="{NEIGHBOUR}:4711"')],
        [("Forwarded", f"proto=https;for={NEIGHBOUR};by=10.0.0.1")],
        [("Forwarded", f"for=127.0.0.1, proto=https ; for = {NEIGHBOUR}")],
        [("X-Real-IP", NEIGHBOUR)],
        [
            ("X-Forwarded-For", f"127.0.0.1, {NEIGHBOUR}"),
            ("X-Real-IP", NEIGHBOUR),
            ("Forwarded", f"for={NEIGHBOUR}"),
        ],
    ],
)
def test_trusted_proxy_tells_the_address(headers: list[tuple[str, str]]) -> None:
    assert identify_forwarded(*headers) == Identity(NEIGHBOUR, local=True)
    others = [(name, value.replace(NEIGHBOUR, "198.51.100.1")) for name, value in headers]
    assert identify_forwarded(*others) == Identity("198.51.100.1", local=False)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("X-Forwarded-For", "2001:DB8:0::5"),
        ("X-Forwarded-For", "[2001:db8::5]:4711"),
        ("Forwarded", 'for="[2001:db8::5]:4711";proto=https'),
    ],
)
def test_ipv6_address_from_a_trusted_proxy_is_read(name: str, value: str) -> None:
    assert identify_forwarded((name, value), by=rules("2001:db8::/32")) == Identity(
        "2001:db8::5", local=True
    )


@pytest.mark.parametrize(
    "headers",
    [
        *(
            [("X-Forwarded-For", value)]
            for value in (
                "", "unknown", "localhost", "127.0.0.1 127.0.0.1", f"{NEIGHBOUR}, ",
                f"{NEIGHBOUR}, garbage, {FURTHER_PROXY}", f"{NEIGHBOUR}:http",
                f"{NEIGHBOUR}:4711:4712", f"{NEIGHBOUR}%eth0", f"[{NEIGHBOUR}", f"[{NEIGHBOUR}]x",
                "3232235783", "192.168.1.07", "192.168.263", "\N{FULLWIDTH DIGIT ONE}92.168.1.7",
                f"{FURTHER_PROXY}, {PROXY}",
            )
        ),
        *(
            [("Forwarded", value)]
            for value in (
                "", "for=_hidden", "for=", "proto=https", f"by={NEIGHBOUR}", f"xfor={NEIGHBOUR}",
                f"for={NEIGHBOUR}, for=unknown", f"for={NEIGHBOUR}, proto=https",
                'for="[2001:db8::5', "=;,;=",
            )
        ),
        [("X-Forwarded-Proto", "https")],
        [("Via", "1.1 proxy")],
        # A proxy writes one of these headers, and passes the client's other ones on.
        [("X-Real-IP", VISITOR), ("X-Forwarded-For", NEIGHBOUR)],
        [("Forwarded", f"for={VISITOR}"), ("X-Real-IP", NEIGHBOUR)],
        [("X-Forwarded-For", NEIGHBOUR), ("Forwarded", "garbage")],
        [("Forwarded", "garbage"), ("X-Forwarded-For", NEIGHBOUR)],
    ],
)  # fmt: skip
def test_unclear_forwarding_header_is_not_local(headers: list[tuple[str, str]]) -> None:
    by = rules("127.0.0.0/8", f"{NEIGHBOUR}/32", "10.0.0.0/24")
    assert identify_forwarded(*headers, by=by) == UNCLEAR


@pytest.mark.parametrize("address", ["127.0.0.1", "::1", "::ffff:127.0.0.1", "127.9.9.9"])
@pytest.mark.parametrize(
    ("name", "form"), [("X-Forwarded-For", "{}"), ("Forwarded", 'for="[{}]"'), ("X-Real-IP", "{}")]
)
def test_forwarded_loopback_is_not_local(name: str, form: str, address: str) -> None:
    """The client asks from the proxy's machine, or forged the header that the proxy passes on."""
    header = (name, form.format(address))
    assert identify_forwarded(header, by=rules("127.0.0.0/8", "::1/128")) == UNCLEAR


def test_proxy_on_loopback_is_trusted_only_if_configured() -> None:
    header = ("X-Forwarded-For", VISITOR)
    assert identify_peer("127.0.0.1", header) == Identity("127.0.0.1", local=False)
    by = rules(proxies=("127.0.0.1/32",))
    assert identify_peer("127.0.0.1", header, by=by) == Identity(VISITOR, local=False)


def test_trusted_proxy_that_calls_itself_is_an_ordinary_address() -> None:
    assert identify_peer(PROXY) == Identity(PROXY, local=False)
    assert identify_peer(PROXY, by=rules("10.0.0.0/24")).local


# The Host header


@pytest.mark.parametrize(
    "host",
    [
        "127.0.0.1", "192.168.1.7:8787", "[::1]", "[::ffff:127.0.0.1]:8787", "localhost",
        "LOCALHOST:8787", "localhost.", "links.example.org", "Links.Example.ORG:8443",
        "links.example.org.:8443",
    ],
)  # fmt: skip
def test_own_host_is_local(host: str) -> None:
    assert identify_peer("127.0.0.1", ("Host", host), by=rules(hosts=("links.example.org",))).local


@pytest.mark.parametrize(
    "host",
    [
        "", ":8787", "evil.example", "localhost.evil.example", "127.0.0.1.evil.example:8787",
        "evil.localhost", "below.links.example.org", "127.0.0.1:8787@evil.example",
        "evil.example@127.0.0.1", "[::1]evil.example", "[::1].evil.example:8787", "[::1", "127.1",
        "2130706433", "0x7f.0.0.1", "localhost:8787:8787", "localhost:evil",
        "127.0.0.1%2eevil.example", "127.0.0.1, 127.0.0.1",
    ],
)  # fmt: skip
def test_foreign_host_is_not_local(host: str) -> None:
    by = rules("127.0.0.0/8", f"{NEIGHBOUR}/32", hosts=("links.example.org",))
    assert identify_peer("127.0.0.1", ("Host", host), by=by) == Identity("127.0.0.1", local=False)
    forwarded = identify_forwarded(("X-Forwarded-For", NEIGHBOUR), ("Host", host), by=by)
    assert forwarded == Identity(NEIGHBOUR, local=False)


# The Origin header


@pytest.mark.parametrize(
    ("host", "origin"),
    [
        ("127.0.0.1:8787", "http://127.0.0.1:8787"),
        ("127.0.0.1:8787", "https://127.0.0.1:8787"),
        ("localhost:8787", "http://LOCALHOST:8787"),
        ("LocalHost", "http://localhost"),
        ("127.0.0.1:8787", "chrome-extension://abcdefghijklmnopabcdefghijklmnop"),
        ("127.0.0.1:8787", "moz-extension://0b2a7ac6-6d4f-4a3e-9c0a-000000000000"),
        ("127.0.0.1:8787", "safari-web-extension://0B2A7AC6-6D4F-4A3E-9C0A-000000000000"),
    ],
)
def test_own_page_or_extension_is_local(host: str, origin: str) -> None:
    assert identify_peer("127.0.0.1", ("Host", host), ("Origin", origin)).local


@pytest.mark.parametrize(
    "origin",
    [
        "https://evil.example", "http://127.0.0.1", "http://127.0.0.1:8788",
        "http://localhost:8787", "http://127.0.0.1:8787.evil.example",
        "http://evil.example/127.0.0.1:8787", "http://127.0.0.1:8787@evil.example",
        "http://evil.example@127.0.0.1:8787", "https://chrome-extension://x",
        "file://127.0.0.1:8787", "127.0.0.1:8787", "null", "", "http://[::1", "://",
    ],
)  # fmt: skip
def test_foreign_or_broken_origin_is_not_local(origin: str) -> None:
    assert identify_peer("127.0.0.1", ("Origin", origin)) == Identity("127.0.0.1", local=False)


@pytest.mark.parametrize(
    ("peer", "header", "reason"),
    [
        (VISITOR, ("Accept", "*/*"), f"{VISITOR} is not in cookie.open_to"),
        (
            "127.0.0.1",
            ("Via", "1.1 proxy"),
            "it has a forwarding header, and 127.0.0.1 is not in server.trusted_proxies",
        ),
        (
            PROXY,
            ("X-Forwarded-For", "unknown"),
            "what the headers of server.trusted_proxies say of its address is not clear",
        ),
        (
            "127.0.0.1",
            ("Origin", "https://a.test"),
            'its Origin, "https://a.test", is not that of its Host (a proxy has to pass that on)',
        ),
        # A Host is cut and escaped in the reason.
        (
            "127.0.0.1",
            ("Host", "\x9b" + "a" * 200),
            f'its Host, "\\x9b{"a" * 99}", is not in server.public_hosts',
        ),
    ],
)
def test_client_that_is_not_local_has_a_reason(
    peer: str, header: tuple[str, str], reason: str
) -> None:
    headers = Headers([header] if header[0] == "Host" else [HOST, header])
    assert identify(peer, headers, rules()).reason_refused == reason


# Garbage


@pytest.mark.parametrize(
    "text", ["[", "]", "[]", "[]:", "%", "::", ":::", "\x00", "é", ",;=", "a" * 70000]
)
def test_garbage_in_any_header_is_not_local(text: str) -> None:
    for name in ("Host", "Origin", "X-Forwarded-For", "Forwarded", "X-Real-IP"):
        assert not identify_peer(PROXY, (name, text)).local
    assert not identify_peer(text).local


# https


@pytest.mark.parametrize(
    ("headers", "https"),
    [
        ([("X-Forwarded-Proto", "https")], True),
        ([("X-Forwarded-Proto", " HTTPS ")], True),
        ([("X-Forwarded-Proto", "https, http")], True),
        ([("Forwarded", 'for=203.0.113.9;Proto="https"')], True),
        ([("X-Forwarded-Proto", "http, https")], False),
        ([("X-Forwarded-Proto", "http")], False),
        ([("X-Forwarded-Proto", "")], False),
        ([("Forwarded", "for=203.0.113.9")], False),
        ([], False),
    ],
)
def test_https_is_what_the_first_proxy_forwards_if_it_is_trusted(
    headers: list[tuple[str, str]], https: bool
) -> None:
    assert came_over_https(PROXY, Headers(headers), rules()) is https
    for stranger in (VISITOR, "127.0.0.1", "", None):
        assert not came_over_https(stranger, Headers(headers), rules())
