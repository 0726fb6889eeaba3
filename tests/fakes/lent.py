"""Listening sockets that the service manager opened before the daemon was started."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator

import pytest

from smartlinkd.systemd.environment import Descriptor


@pytest.fixture
def theirs() -> Iterator[socket.socket]:
    """A listening socket of the service manager's, who holds it for ever."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        yield listening


def lent(theirs: socket.socket, name: str = "http") -> Descriptor:
    """As it is given to the daemon."""
    return Descriptor(name, os.dup(theirs.fileno()))
