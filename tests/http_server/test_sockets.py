"""Listening sockets for the addresses of `server.bind`."""

from __future__ import annotations

import errno
import socket

import pytest

from smartlinkd.errors import Invalid
from smartlinkd.http_server import bind
from smartlinkd.http_server.sockets import is_absent


def test_address_gives_one_listening_socket() -> None:
    [made] = bind("127.0.0.1", 0)
    with made:
        assert made.getsockname()[0] == "127.0.0.1"
        assert made.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN)
        assert made.getsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR)
        assert not made.get_inheritable()


def test_ipv6_wildcard_takes_ipv4_too() -> None:
    [made] = bind("::", 0)
    with made, socket.create_connection(("127.0.0.1", made.getsockname()[1]), timeout=5):
        pass


@pytest.mark.parametrize(
    "addresses",
    [("127.0.0.1", "127.0.0.2"), ("192.0.2.1", "127.0.0.2"), ("127.0.0.2", "192.0.2.1")],
)
def test_name_gives_a_socket_for_each_of_its_addresses_that_this_machine_has(
    monkeypatch: pytest.MonkeyPatch, addresses: tuple[str, ...]
) -> None:
    found = [(socket.AF_INET, socket.SOCK_STREAM, 0, "", (each, 0)) for each in addresses]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: found)
    made = bind("two.example", 0)
    own = [each for each in addresses if each.startswith("127.")]
    assert [each.getsockname()[0] for each in made] == own
    for each in made:
        each.close()


@pytest.mark.parametrize(
    ("host", "family"), [("192.0.2.1", socket.AF_INET), ("2001:db8::1", socket.AF_INET6)]
)
def test_early_bind_listens_before_this_machine_has_the_address(host: str, family: int) -> None:
    """192.0.2.0/24 and 2001:db8::/32 are nobody's (RFC 5737, RFC 3849)."""
    (made,) = bind(host, 0, setting="crew c: bind", early=True)
    with made:
        assert made.family == family
        assert made.getsockname()[0] == host


def test_early_bind_listens_at_a_link_local_address() -> None:
    """An IPv6 address whose link it is on is told beside it."""
    (made,) = bind("fe80::dead%lo", 0, setting="crew c: bind", early=True)
    with made:
        assert made.getsockname() == ("fe80::dead", made.getsockname()[1], 0, 1)


@pytest.mark.parametrize(
    ("address", "absent"),
    [
        ("0.0.0.0", False),
        ("::", False),
        ("127.0.0.1", False),
        ("127.0.0.2", False),
        ("192.0.2.1", True),
        ("2001:db8::1", True),
    ],
)
def test_address_is_absent_if_this_machine_has_it_not(address: str, *, absent: bool) -> None:
    assert is_absent(address) is absent


def test_port_that_needs_a_privilege_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    class Refusing(socket.socket):
        def bind(self, _: object) -> None:
            raise OSError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(socket, "socket", Refusing)
    with pytest.raises(Invalid, match=r"server\.bind.*privilege"):
        bind("127.0.0.1", 80)


def test_socket_is_closed_when_the_second_address_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        where = taken.getsockname()
        found = [
            (socket.AF_INET, socket.SOCK_STREAM, 0, "", ("127.0.0.2", where[1])),
            (socket.AF_INET, socket.SOCK_STREAM, 0, "", where),
        ]
        monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: found)
        with pytest.raises(Invalid, match="another program"):
            bind("two.example", where[1])
        found.pop()
        bind("two.example", where[1])[0].close()
