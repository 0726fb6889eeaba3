"""Notifications are sent at once or not at all, and a failure is logged once."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from smartlinkd.systemd.notify_socket import NotifySocket

if TYPE_CHECKING:
    from tests.service_manager.conftest import Manager


def fill(notify_socket: NotifySocket) -> None:
    """Send until the queue is full."""
    for _ in range(10_000):
        if not notify_socket.send("STATUS=again"):
            return
    pytest.fail("the queue has no end")


def test_message_is_one_datagram_of_lines_and_a_replaced_manager_is_found_again(
    address: str, manager_at: Callable[[str], Manager], tmp_path: Path
) -> None:
    notify_socket = NotifySocket(address)
    for _ in range(2):
        manager = manager_at(address)
        assert notify_socket.send("READY=1", "STATUS=ü; all is well")
        assert [each.text for each in manager.listen()] == ["READY=1\nSTATUS=ü; all is well"]
        manager.close()
        assert not notify_socket.send("WATCHDOG=1")
        (tmp_path / "notify").unlink(missing_ok=True)


def test_descriptor_is_sent_with_its_message(manager: Manager) -> None:
    ours, other = os.pipe()
    try:
        assert NotifySocket(manager.address).send("FDSTORE=1", "FDNAME=it", descriptor=ours)
        (message,) = manager.listen()
        (theirs,) = message.descriptors
        assert os.fstat(theirs).st_ino == os.fstat(ours).st_ino
    finally:
        os.close(ours)
        os.close(other)


def test_message_is_sent_without_a_free_descriptor(
    manager: Manager, shortage: Callable[[], AbstractContextManager[None]]
) -> None:
    notify_socket = NotifySocket(manager.address)
    assert notify_socket.send("READY=1")
    with shortage():
        assert notify_socket.send("WATCHDOG=1")
    assert [each.text for each in manager.listen()] == ["READY=1", "WATCHDOG=1"]


@pytest.mark.parametrize(
    "address", ["/nowhere/notify", "/" + "long" * 50, "/", "nonsense", "vsock:2:1234"]
)
def test_useless_address_is_logged_once(address: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    notify_socket = NotifySocket(address)
    assert [notify_socket.send("READY=1") for _ in range(3)] == [False] * 3
    assert caplog.text.count("the service manager cannot be told anything") == 1


def test_full_queue_is_not_waited_for_and_each_new_failure_is_logged(
    manager: Manager, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    notify_socket = NotifySocket(manager.address)
    for _ in range(2):
        fill(notify_socket)
        assert not notify_socket.send("WATCHDOG=1")
        manager.listen()
        assert notify_socket.send("WATCHDOG=1")
    assert caplog.text.count("cannot be told anything") == 2
    Path(manager.address).unlink()
    notify_socket.send("WATCHDOG=1")
    assert "No such file" in caplog.text


def test_socket_without_an_address_sends_and_logs_nothing(caplog: pytest.LogCaptureFixture) -> None:
    notify_socket = NotifySocket("")
    assert not notify_socket.has_address
    assert not notify_socket.send("READY=1")
    assert not caplog.text
