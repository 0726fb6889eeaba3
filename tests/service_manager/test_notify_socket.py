"""What is said arrives, or is a False: at once, and without a word too many in the log."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from smartlinkd.systemd.notify_socket import NotifySocket

if TYPE_CHECKING:
    from tests.service_manager.conftest import Manager

AT_ONCE = 0.5  # seconds; far above what a system call takes, far below any wait


def fill(notify_socket: NotifySocket) -> None:
    """Say so much that the manager's queue has no room."""
    for _ in range(10_000):
        if not notify_socket.send("STATUS=again"):
            return
    pytest.fail("the queue has no end")


def test_a_message_is_one_datagram_of_lines(
    address: str, manager_at: Callable[[str], Manager]
) -> None:
    manager = manager_at(address)
    assert NotifySocket(address).send("READY=1", "STATUS=ü; all is well")
    assert [each.text for each in manager.listen()] == ["READY=1\nSTATUS=ü; all is well"]


def test_a_descriptor_comes_with_its_message(manager: Manager) -> None:
    ours, other = os.pipe()
    try:
        assert NotifySocket(manager.address).send("FDSTORE=1", "FDNAME=it", descriptor=ours)
        (message,) = manager.listen()
        (theirs,) = message.descriptors
        assert os.fstat(theirs).st_ino == os.fstat(ours).st_ino
    finally:
        os.close(ours)
        os.close(other)


def test_a_full_queue_is_never_waited_for(manager: Manager) -> None:
    notify_socket = NotifySocket(manager.address)
    fill(notify_socket)
    began = time.monotonic()
    assert not notify_socket.send("WATCHDOG=1")
    assert time.monotonic() - began < AT_ONCE
    manager.listen()
    assert notify_socket.send("WATCHDOG=1")


def test_with_no_descriptor_left_it_is_told_as_before(
    manager: Manager, shortage: Callable[[], AbstractContextManager[None]]
) -> None:
    notify_socket = NotifySocket(manager.address)
    assert notify_socket.send("READY=1")
    with shortage():
        assert notify_socket.send("WATCHDOG=1")
    assert [each.text for each in manager.listen()] == ["READY=1", "WATCHDOG=1"]


def test_a_manager_that_is_replaced_is_found_again(
    address: str, manager_at: Callable[[str], Manager], tmp_path: Path
) -> None:
    notify_socket = NotifySocket(address)
    manager_at(address).close()
    assert not notify_socket.send("WATCHDOG=1")
    (tmp_path / "notify").unlink(missing_ok=True)
    manager = manager_at(address)
    assert notify_socket.send("WATCHDOG=1")
    assert manager.said("WATCHDOG") == ["1"]


@pytest.mark.parametrize(
    "address", ["/nowhere/notify", "/" + "long" * 50, "/", "nonsense", "vsock:2:1234"]
)
def test_an_address_of_no_use_is_told_once(address: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    notify_socket = NotifySocket(address)
    assert [notify_socket.send("READY=1") for _ in range(3)] == [False] * 3
    assert caplog.text.count("the service manager cannot be told anything") == 1


def test_each_new_kind_of_failure_is_told(
    manager: Manager, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    notify_socket = NotifySocket(manager.address)
    for _ in range(2):
        fill(notify_socket)
        manager.listen()
        assert notify_socket.send("STATUS=again")
    assert caplog.text.count("cannot be told anything") == 2
    Path(manager.address).unlink()
    notify_socket.send("STATUS=again")
    assert "No such file" in caplog.text


def test_without_an_address_nothing_is_said_and_nothing_is_wrong(
    caplog: pytest.LogCaptureFixture,
) -> None:
    notify_socket = NotifySocket("")
    assert not notify_socket.has_address
    assert not notify_socket.send("READY=1")
    assert not caplog.text
