"""The sockets by which daemons ask their fork servers, which are started at first use."""

from __future__ import annotations

import socket
from pathlib import Path


def fork_server_sockets() -> set[str]:
    """Return all of the machine's, as /proc/PID/fd names them. Nothing else is of that kind."""
    _, *lines = Path("/proc/net/unix").read_text(encoding="utf-8").splitlines()
    sockets = [line.split() for line in lines]
    return {f"socket:[{each[6]}]" for each in sockets if int(each[4]) == socket.SOCK_SEQPACKET}
