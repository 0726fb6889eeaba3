"""The log as it was before each test, and what a journal would read of it."""

from __future__ import annotations

import fcntl
import logging
import os
import socket
from array import array
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import pytest

SEALS = 15  # SEAL, SHRINK, GROW, WRITE
F_GET_SEALS = 1034

Entry = dict[str, list[bytes]]


@pytest.fixture(autouse=True)
def as_before() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level, ours = root.handlers[:], root.level, logging.getLogger("smartlinkd").level
    yield
    for added in [each for each in root.handlers if each not in handlers]:
        added.close()
    root.handlers[:] = handlers
    root.setLevel(level)
    logging.getLogger("smartlinkd").setLevel(ours)
    logging.captureWarnings(False)


def parse(content: bytes) -> Entry:
    """An entry, read as the protocol's description says; fails where it is not of that form."""
    fields: Entry = {}
    while content:
        line, end, content = content.partition(b"\n")
        assert end
        name, equals, value = line.partition(b"=")
        if not equals:
            size, content = int.from_bytes(content[:8], "little"), content[8:]
            value, content = content[:size], content[size:]
            assert content[:1] == b"\n"
            content = content[1:]
        assert name.replace(b"_", b"").isalnum()
        assert name == name.upper()
        assert not name.startswith(b"_")
        fields.setdefault(name.decode(), []).append(value)
    return fields


@dataclass
class Journal:
    """The journal's socket, and how many entries came in a file."""

    path: Path
    listening: socket.socket
    files: int = 0
    kept: list[Entry] = field(default_factory=list)

    def read(self) -> list[Entry]:
        """The entries that came since the last look."""
        with suppress(BlockingIOError):
            while True:
                self.kept.append(self._next())
        found, self.kept = self.kept, []
        return found

    def _next(self) -> Entry:
        size = 1 << 20
        content, given, _, _ = self.listening.recvmsg(size, 64, socket.MSG_DONTWAIT)
        if not given:
            return parse(content)
        assert content == b""
        ((_, _, raw),) = given
        (descriptor,) = array("i", raw)
        try:
            assert fcntl.fcntl(descriptor, F_GET_SEALS) == SEALS
            self.files += 1
            return parse(os.pread(descriptor, size, 0))
        finally:
            os.close(descriptor)


@pytest.fixture
def journal(tmp_path: Path) -> Iterator[Journal]:
    path = tmp_path / "journal"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listening:
        listening.bind(str(path))
        yield Journal(path, listening)
