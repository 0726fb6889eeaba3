"""Notifications are sent at once or not at all, and a failure is logged once."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from smartlinkd.systemd.notify_socket import NotifySocket
from tests.service_manager.conftest import Manager
from tests.shortage import Shortage


@pytest.mark.parametrize("is_abstract", [False, True])
def test_message_is_one_datagram_of_lines_and_a_replaced_manager_is_found_again(
    tmp_path: Path, is_abstract: bool
) -> None:
    path = tmp_path / "notify"
    address = f"@{path}" if is_abstract else str(path)
    notify_socket = NotifySocket(address)
    for _ in range(2):
        manager = Manager(address)
        assert notify_socket.send("READY=1", "STATUS=ü; all is well")
        assert [each.text for each in manager.listen()] == ["READY=1\nSTATUS=ü; all is well"]
        manager.close()
        assert not notify_socket.send("WATCHDOG=1")
        path.unlink(missing_ok=True)


def test_message_is_sent_without_a_free_descriptor(manager: Manager, shortage: Shortage) -> None:
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
        manager.fill()
        assert not notify_socket.send("WATCHDOG=1")
        manager.listen()
        assert notify_socket.send("WATCHDOG=1")
    assert caplog.text.count("cannot be told anything") == 2
    Path(manager.address).unlink()
    notify_socket.send("WATCHDOG=1")
    assert "No such file" in caplog.text
