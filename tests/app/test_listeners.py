"""The addresses that the daemon answers at: which socket each has, and what is said of those that
cannot be had."""

from __future__ import annotations

import socket
from contextlib import ExitStack

import pytest

from smartlinkd.app.listeners import open_listeners
from smartlinkd.auth.passwords import hash_password
from smartlinkd.config import build
from smartlinkd.http_server import bind
from smartlinkd.net.addresses import Bind
from smartlinkd.systemd.sockets import ActivatedSockets
from tests.fakes.passed_sockets import is_open, passed

HASH = hash_password("correct horse")
ANYWHERE = Bind("127.0.0.1", 0)


def address_of(listening: socket.socket) -> Bind:
    return Bind(*listening.getsockname()[:2])


def test_given_ones_go_before_the_configured_and_a_crews_own_comes_by_its_name(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with ExitStack() as held:
        opened = [held.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(3)]
        *ours, crews = [address_of(each) for each in opened]
        *main, post = [passed(each) for each in opened]
        given = ActivatedSockets(main=tuple(main), crews={"post": (post,)})
        with open_listeners(ANYWHERE, {"post": crews}, given) as listeners:
            assert listeners.urls == tuple(f"http://{each}" for each in ours)
            assert listeners.crew_urls == {"post": f"http://{crews}"}
            assert listeners.ports == {each.port for each in (*ours, crews)}
    assert not caplog.text


def test_another_address_than_configured_is_told_with_which_one_counts(
    theirs: socket.socket, caplog: pytest.LogCaptureFixture
) -> None:
    host, port = theirs.getsockname()
    wanted = Bind(host, 1)
    with open_listeners(wanted, {}, ActivatedSockets(main=(passed(theirs),))) as listeners:
        assert listeners.urls == (f"http://127.0.0.1:{port}",)
    (record,) = caplog.records
    assert record.levelname == "WARNING"
    told = f"'http' listens at http://127.0.0.1:{port}, which counts"
    assert f"server.bind is 127.0.0.1:1, but the service manager's socket {told}" in caplog.text
    assert "`sudo ./run install`" in caplog.text


@pytest.mark.parametrize(
    ("host", "bind", "open_to", "told"),
    [
        ("0.0.0.0", "127.0.0.1:1", ["0.0.0.0/0"], True),
        ("0.0.0.0", "0.0.0.0:1", ["0.0.0.0/0"], False),  # of that the configuration has told
        ("0.0.0.0", "127.0.0.1:1", [], False),
        ("127.0.0.1", "127.0.0.1:1", ["0.0.0.0/0"], False),
    ],
)
def test_a_public_one_with_a_cookie_that_is_open_is_warned_of(
    host: str, bind: str, open_to: list[str], *, told: bool
) -> None:
    settings = build(
        {"auth": {"password_hash": HASH}, "server": {"bind": bind}, "cookie": {"open_to": open_to}}
    )
    with socket.create_server((host, 0)) as given:
        given_to_us = ActivatedSockets(main=(passed(given),))
        with open_listeners(settings.server.bind, {}, given_to_us) as listeners:
            found = [each.fault for each in listeners.warnings(settings)]
    where = f"while the daemon listens at http://{host}:"
    assert [where in each for each in found] == [True] * told


def test_one_at_an_address_that_this_machine_does_not_have_is_told(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """As the manager opens one with FreeBind=yes. 192.0.2.0/24 is nobody's (RFC 5737)."""
    (theirs,) = bind("192.0.2.1", 0, early=True)
    given = ActivatedSockets(main=(passed(theirs),))
    with (
        theirs,
        open_listeners(address_of(theirs), {"post": Bind("192.0.2.1", 0)}, given) as opened,
    ):
        assert opened.main[0].getsockname() == theirs.getsockname()
    assert caplog.messages == [
        f"{setting}: this machine has no address 192.0.2.1 yet; it is served there once it has"
        for setting in ("server.bind", "crew post: bind")
    ]


def test_one_that_is_taken_costs_no_other_address(
    theirs: socket.socket, caplog: pytest.LogCaptureFixture
) -> None:
    crews = {"post": address_of(theirs), "mail": ANYWHERE}
    with open_listeners(ANYWHERE, crews) as listeners:
        assert (list(listeners.crews), list(listeners.crew_binds)) == (["mail"], ["mail"])
        assert len(listeners.main) == 1
    assert "crew post: bind: cannot listen on 127.0.0.1" in caplog.text


@pytest.mark.skipif(not socket.has_dualstack_ipv6(), reason="this machine has no IPv6")
def test_an_ipv6_address_is_called_in_brackets() -> None:
    with open_listeners(Bind("::1", 0), {}) as listeners:
        (port,) = listeners.ports
        assert listeners.urls == (f"http://[::1]:{port}",)


def test_a_crews_wrong_one_costs_no_other_address(caplog: pytest.LogCaptureFixture) -> None:
    with socket.socket(type=socket.SOCK_DGRAM) as wrong:
        descriptor = passed(wrong, "crew-post")
    given = ActivatedSockets(crews={"post": (descriptor,)})
    with open_listeners(ANYWHERE, {"post": ANYWHERE}, given) as listeners:
        assert listeners.crews == {}
        assert len(listeners.main) == 1
    assert "'crew-post' is no listening TCP socket" in caplog.text
    assert "until then it is served at /crews/post" in caplog.text
    assert not is_open(descriptor.number)


def test_one_for_a_crew_without_an_address_is_told_and_closed(
    theirs: socket.socket, caplog: pytest.LogCaptureFixture
) -> None:
    descriptor = passed(theirs, "crew-gone")
    with open_listeners(ANYWHERE, {}, ActivatedSockets(crews={"gone": (descriptor,)})) as listeners:
        assert listeners.crews == {}
    assert "a socket for crew gone, and no crew of that name has a `bind`" in caplog.text
    assert not is_open(descriptor.number)


def test_whoever_waits_at_a_lent_one_waits_on_when_the_daemon_has_gone(
    theirs: socket.socket,
) -> None:
    with open_listeners(ANYWHERE, {}, ActivatedSockets(main=(passed(theirs),))) as listeners:
        listeners.main[0].close()
    with socket.create_connection(theirs.getsockname(), timeout=5) as early:
        early.sendall(b"hello")
        with open_listeners(ANYWHERE, {}, ActivatedSockets(main=(passed(theirs),))) as next_ones:
            accepted, _ = next_ones.main[0].accept()
            with accepted:
                assert accepted.recv(5) == b"hello"
