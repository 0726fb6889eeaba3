"""What must arrive does, in its order; what is of no use is closed and forgotten."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest

from smartlinkd.service_manager.given import NOTHING, Descriptor, Given
from smartlinkd.service_manager.link import Link
from smartlinkd.service_manager.messenger import LONGEST_STATUS, Messenger
from smartlinkd.service_manager.sockets import NO_SOCKETS
from smartlinkd.supervision.supervisor import Escalated

if TYPE_CHECKING:
    from tests.service_manager.conftest import Manager, MemfdWith


@pytest.fixture
def link(manager: Manager) -> Link:
    return Link(Given(manager.address, watchdog=20.0))


def fill(manager: Manager) -> None:
    messenger = Messenger(manager.address)
    while messenger.send("STATUS=again"):
        pass


def words(manager: Manager) -> list[str]:
    manager.listen()
    return [each.text for each in manager.heard if each.text != "STATUS=again"]


def test_each_message_is_in_the_managers_words(manager: Manager, link: Link) -> None:
    link.ready()
    link.status("All parts run")
    link.alive()
    link.stopping()
    link.extend(12.5)
    assert words(manager) == [
        "READY=1",
        "STATUS=All parts run",
        "WATCHDOG=1",
        "STOPPING=1",
        "EXTEND_TIMEOUT_USEC=12500000",
    ]


def test_what_must_arrive_is_sent_later_in_its_order(manager: Manager, link: Link) -> None:
    fill(manager)
    link.ready()
    link.stopping()
    assert words(manager) == []
    link.retry()
    assert words(manager) == ["READY=1", "STOPPING=1"]
    link.retry()
    assert words(manager) == ["READY=1", "STOPPING=1"]


def test_a_cookie_that_could_not_be_sent_is_sent_later(
    manager: Manager, link: Link, memfd_with: MemfdWith
) -> None:
    fill(manager)
    cookie = memfd_with(b"cookie")
    link.cookies.keep(cookie)
    os.close(cookie)
    assert words(manager) == []
    link.retry()
    manager.listen()
    assert list(manager.store) == ["cookie-1"]
    assert link.cookies.kept


def test_a_reload_begins_with_its_time_and_ends_with_ready(manager: Manager, link: Link) -> None:
    before = time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1000
    with link.reloading():
        (message,) = manager.listen()
        assert message.fields["RELOADING"] == "1"
        after = time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1000
        assert before <= int(message.fields["MONOTONIC_USEC"]) <= after
    assert words(manager)[1:] == ["READY=1"]


def test_a_reload_that_fails_ends_with_ready_too(manager: Manager, link: Link) -> None:
    with pytest.raises(ValueError, match="no"), link.reloading():
        raise ValueError("no")
    assert words(manager)[1:] == ["READY=1"]


def test_a_status_is_told_once(manager: Manager, link: Link) -> None:
    for line in ("a", "a", "b", "a"):
        link.status(line)
    assert manager.said("STATUS") == ["a", "b", "a"]


def test_a_status_that_could_not_be_sent_is_told_the_next_time(
    manager: Manager, link: Link
) -> None:
    fill(manager)
    link.status("a")
    manager.listen()
    link.status("a")
    assert words(manager) == ["STATUS=a"]


def test_a_status_is_one_line_and_no_second_field(manager: Manager, link: Link) -> None:
    link.status("the portal said:\nREADY=1\x1b[2J" + "x" * LONGEST_STATUS)
    (message,) = manager.listen()
    assert message.fields.keys() == {"STATUS"}
    assert message.fields["STATUS"].startswith("the portal said: READY=1 [2Jxxx")
    assert len(message.fields["STATUS"]) == LONGEST_STATUS


def test_why_it_ended_is_the_last_that_is_told(manager: Manager, link: Link) -> None:
    with pytest.raises(Escalated), link.telling_why():
        raise Escalated("auth needed more than 5 restarts")
    assert manager.said("STATUS") == ["Ended: Escalated: auth needed more than 5 restarts"]


def test_without_a_manager_it_is_false_and_mute() -> None:
    link = Link(Given(watchdog=20.0))
    assert not link
    assert link.watchdog is None
    link.ready()
    link.status("well")
    link.retry()
    assert not link.cookies.kept


def test_with_one_it_has_what_was_given(
    manager: Manager, link: Link, memfd_with: MemfdWith
) -> None:
    assert link
    assert link.watchdog == 20.0
    with socket.create_server(("127.0.0.1", 0)) as listening:
        http = Descriptor("http", os.dup(listening.fileno()))
    cookie = Descriptor("cookie-1", memfd_with(b"broken"))
    link = Link(Given(manager.address, None, (http, cookie)))
    assert link.sockets.main == (http,)
    assert link.cookies.take_back() is None
    assert manager.said("FDNAME") == ["cookie-1"]
    os.close(http.number)


def test_a_socket_of_a_crew_is_left_open_for_it(
    manager: Manager, is_open: Callable[[int], bool]
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        crew = Descriptor("crew-research", os.dup(listening.fileno()))
    link = Link(Given(manager.address, None, (crew,)))
    assert link.sockets.crews == {"research": (crew,)}
    assert is_open(crew.number)
    assert manager.listen() == []
    os.close(crew.number)


def test_an_unknown_descriptor_is_closed_and_forgotten(
    manager: Manager,
    memfd_with: MemfdWith,
    is_open: Callable[[int], bool],
    caplog: pytest.LogCaptureFixture,
) -> None:
    unknown = Descriptor("stored", memfd_with(b"?"))
    Link(Given(manager.address, None, (unknown,)))
    assert not is_open(unknown.number)
    (message,) = manager.listen()
    assert message.fields == {"FDSTOREREMOVE": "1", "FDNAME": "stored"}
    assert "of no use here, closed: 'stored'" in caplog.text


def test_a_socket_that_is_nobodys_is_closed_and_told_with_what_its_unit_needs(
    manager: Manager, is_open: Callable[[int], bool], caplog: pytest.LogCaptureFixture
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        unnamed = Descriptor("smartlinkd-research.socket", os.dup(listening.fileno()))
    link = Link(Given(manager.address, None, (unnamed,)))
    assert link.sockets == NO_SOCKETS
    assert not is_open(unnamed.number)
    (record,) = caplog.records
    assert record.levelname == "ERROR"
    assert "socket 'smartlinkd-research.socket': its unit needs FileDescriptorName=" in caplog.text


def test_a_name_cannot_say_more_than_a_name(manager: Manager, memfd_with: MemfdWith) -> None:
    Link(Given(manager.address, None, (Descriptor("x\nSTOPPING=1", memfd_with(b"")),)))
    assert manager.listen() == []


def test_nothing_given_is_nothing_done(manager: Manager) -> None:
    link = Link(NOTHING)
    assert link.cookies.take_back() is None
    assert manager.listen() == []
