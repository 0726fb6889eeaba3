"""Listening sockets that systemd opened, and the errors of those that are of no use."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable

import pytest

from smartlinkd.errors import Invalid
from smartlinkd.net.addresses import Bind
from smartlinkd.systemd.environment import UNNAMED, Descriptor
from smartlinkd.systemd.sockets import (
    ActivatedSockets,
    listens_at,
    open_sockets,
    select_sockets,
)
from tests.fakes.passed_sockets import is_open, passed


def test_sockets_are_selected_by_their_names_alone() -> None:
    http, one, two, other = (
        Descriptor(name, 3) for name in ("http", "crew-a", "crew-a", "crew-b-2")
    )
    # A socket without a name has its unit's, which may be that of a crew's address.
    units = ("smartlinkd.socket", "smartlinkd-research.socket")
    unknown = ("https", "cookie-1", "stored", "xcrew-a", "", UNNAMED, *units)
    selected = select_sockets([one, http, other, *(Descriptor(name, 3) for name in unknown), two])
    assert selected == ActivatedSockets((http,), {"a": (one, two), "b-2": (other,)})


@pytest.mark.parametrize("family", [socket.AF_INET, socket.AF_INET6])
def test_listening_socket_is_opened(family: socket.AddressFamily) -> None:
    if family is socket.AF_INET6 and not socket.has_dualstack_ipv6():
        pytest.skip("this machine has no IPv6")
    host = "127.0.0.1" if family is socket.AF_INET else "::1"
    with socket.create_server((host, 0), family=family) as theirs:
        (ours,) = open_sockets([passed(theirs)])
        with ours, socket.create_connection(theirs.getsockname()[:2]), ours.accept()[0]:
            assert type(ours) is socket.socket  # trio takes no other


def unix_socket() -> int:
    with socket.socket(socket.AF_UNIX) as made:
        made.bind("")  # the kernel chooses an abstract name
        made.listen()
        return os.dup(made.fileno())


@pytest.mark.parametrize(
    "make",
    [
        unix_socket,
        lambda: socket.socket(type=socket.SOCK_DGRAM).detach(),
        lambda: socket.socket().detach(),  # not listening
        lambda: os.memfd_create("no socket"),
    ],
)
def test_other_descriptor_is_refused_with_its_remedy_and_all_are_closed(
    make: Callable[[], int], theirs: socket.socket
) -> None:
    given = [passed(theirs), Descriptor("http", make()), passed(theirs)]
    text = r"descriptor 'http' is no listening TCP socket: .*ListenStream=.*Accept=no"
    with pytest.raises(Invalid, match=text):
        open_sockets(given)
    assert not any(is_open(each.number) for each in given)


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
@pytest.mark.parametrize("port", [0, None])
def test_socket_listens_at_the_address_that_it_has(
    host: str, port: int | None, theirs: socket.socket
) -> None:
    where = Bind(host, theirs.getsockname()[1] if port is None else port)
    assert listens_at(where, [theirs])


def test_socket_does_not_listen_at_another_address(theirs: socket.socket) -> None:
    host, port = theirs.getsockname()
    assert not listens_at(Bind("127.0.0.2", port), [theirs])
    assert not listens_at(Bind(host, port - 1), [theirs])
    assert not listens_at(Bind("nowhere.invalid", port), [theirs])
