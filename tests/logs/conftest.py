"""Fixtures: the log as it was before each test, and the journal's view of records."""

from __future__ import annotations

import io
import json
import logging
import socket
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from smartlinkd import logs
from tests.fakes.terminal import Terminal

Entry = dict[str, list[bytes]]


@pytest.fixture(autouse=True)
def restore_logging() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level, ours = root.handlers[:], root.level, logging.getLogger("smartlinkd").level
    yield
    for added in [each for each in root.handlers if each not in handlers]:
        added.close()
    root.handlers[:] = handlers
    root.setLevel(level)
    logging.getLogger("smartlinkd").setLevel(ours)
    logging.captureWarnings(False)


class LogLines(io.StringIO):
    """The logged JSON lines."""

    def lines(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.getvalue().splitlines()]


@pytest.fixture
def log_lines() -> LogLines:
    made = LogLines()
    logs.set_up("info", made)
    return made


@pytest.fixture
def terminal() -> Terminal:
    made = Terminal()
    logs.set_up("info", made)
    return made


def parse(content: bytes) -> Entry:
    """Parse an entry of the journal's native protocol; fail if it is malformed."""
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


class Journal:
    """The journal's socket."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.start()

    def start(self) -> None:
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind(str(self.path))

    def stop(self) -> None:
        self._socket.close()
        self.path.unlink()

    def read(self) -> list[Entry]:
        """Return the entries since the last call."""
        found: list[Entry] = []
        with suppress(BlockingIOError):
            while True:
                found.append(parse(self._socket.recv(1 << 20, socket.MSG_DONTWAIT)))
        return found


@pytest.fixture
def journal(tmp_path: Path) -> Iterator[Journal]:
    journal = Journal(tmp_path / "journal")
    yield journal
    journal.stop()
