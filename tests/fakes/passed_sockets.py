"""Listening sockets that the service manager passes to the daemon (sd_listen_fds(3))."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from smartlinkd.systemd.environment import Descriptor


@pytest.fixture
def theirs() -> Iterator[socket.socket]:
    """The service manager's listening socket."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        yield listening


def passed(theirs: socket.socket, name: str = "http") -> Descriptor:
    """Return a duplicate of the socket, as the daemon receives it."""
    return Descriptor(name, os.dup(theirs.fileno()))


def is_open(descriptor: int) -> bool:
    return Path(f"/proc/self/fd/{descriptor}").exists()
