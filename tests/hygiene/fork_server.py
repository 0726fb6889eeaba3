"""The sockets between daemons and their fork servers, which start at first use."""

from __future__ import annotations

import socket
from pathlib import Path


def fork_server_sockets() -> set[str]:
    """Return the machine's SOCK_SEQPACKET sockets, as in /proc/PID/fd. A daemon has no others."""
    _, *lines = Path("/proc/net/unix").read_text(encoding="utf-8").splitlines()
    sockets = [line.split() for line in lines]
    return {f"socket:[{each[6]}]" for each in sockets if int(each[4]) == socket.SOCK_SEQPACKET}
