"""A service manager: the real socket that a daemon notifies, and a store for descriptors."""

from __future__ import annotations

import array
import fcntl
import os
import socket
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import pytest
import trio

from smartlinkd.admin.reports import (
    AccountReport,
    BrowserReport,
    CookieReport,
    CrewReport,
    PartReport,
    StatusReport,
)

PATIENCE = 20.0  # seconds; what takes longer hangs
MOST_RIGHTS = 4 * array.array("i").itemsize


@dataclass(frozen=True)
class Message:
    """One datagram, and the descriptors beside it."""

    text: str
    descriptors: tuple[int, ...] = ()

    @property
    def fields(self) -> dict[str, str]:
        return dict(line.split("=", 1) for line in self.text.split("\n"))


class Manager:
    """A stand-in for systemd: it reads notifications in order, and stores and drops descriptors."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.heard: list[Message] = []
        self.store: dict[str, int] = {}
        self._news = trio.Event()
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)
        self._socket.bind(f"\0{address[1:]}" if address.startswith("@") else address)

    def listen(self) -> list[Message]:
        """Return the messages since the last call. `heard` has all of them."""
        new: list[Message] = []
        while True:
            try:
                text, ancillary, _, _ = self._socket.recvmsg(4096, socket.CMSG_SPACE(MOST_RIGHTS))
            except BlockingIOError:
                self.heard += new
                if new:
                    self._news.set()
                    self._news = trio.Event()
                return new
            found = array.array("i")
            for _, _, rights in ancillary:
                found.frombytes(rights)
            new.append(Message(text.decode(), tuple(found)))
            self._keep(new[-1])

    async def attend(self) -> None:
        """Listen all the time. The queue holds about ten messages."""
        while True:
            await trio.lowlevel.wait_readable(self._socket)
            self.listen()

    async def until(self, text: str) -> Message:
        """Wait for a message that begins so, and return it. `attend` has to run."""
        with trio.fail_after(PATIENCE):
            while True:
                for message in self.heard:
                    if message.text.startswith(text):
                        return message
                await self._news.wait()

    def said(self, name: str) -> list[str]:
        """Return the values of a field, in their order."""
        self.listen()
        return [each.fields[name] for each in self.heard if name in each.fields]

    def close(self) -> None:
        if self._socket.fileno() < 0:
            return
        self.listen()
        self._socket.close()
        for descriptor in self.store.values():
            os.close(descriptor)

    def _keep(self, message: Message) -> None:
        fields = message.fields
        name = fields.get("FDNAME", "stored")
        if fields.get("FDSTORE") == "1":
            (descriptor,) = message.descriptors
            assert name not in self.store, "removing one would remove both"
            self.store[name] = descriptor
        if fields.get("FDSTOREREMOVE") == "1" and name in self.store:
            os.close(self.store.pop(name))


@pytest.fixture(params=["path", "abstract"])
def address(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """An address of each of the two kinds where a service manager may listen."""
    if request.param == "path":
        return str(tmp_path / "notify")
    return f"@smartlinkd-test-{os.getpid()}-{id(request)}"


@pytest.fixture
def manager(tmp_path: Path) -> Iterator[Manager]:
    manager = Manager(str(tmp_path / "notify"))
    yield manager
    manager.close()


@pytest.fixture
def manager_at() -> Iterator[Callable[[str], Manager]]:
    """Make a manager that listens at a given address."""
    made: list[Manager] = []

    def make(address: str) -> Manager:
        made.append(Manager(address))
        return made[-1]

    yield make
    for each in made:
        each.close()


MemfdWith = Callable[..., int]


@pytest.fixture
def memfd_with() -> MemfdWith:
    """A memfd with a content, sealed as the daemon does it, or with other `seals`."""

    def make(content: bytes, *, seals: int = 0b1111) -> int:
        descriptor = os.memfd_create("kept", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        os.write(descriptor, content)
        fcntl.fcntl(descriptor, 1033, seals)  # F_ADD_SEALS
        return descriptor

    return make


@pytest.fixture
def is_open() -> Callable[[int], bool]:
    def look(descriptor: int) -> bool:
        try:
            os.fstat(descriptor)
        except OSError:
            return False
        return True

    return look


def report(
    *parts: PartReport,
    browser: BrowserReport | None = None,
    cookie: CookieReport | None = None,
    accounts: list[AccountReport] | None = None,
    crews: Sequence[CrewReport] = (),
) -> StatusReport:
    """The report of a daemon, as `smartlinkd status` has it."""
    return StatusReport(
        version="1",
        started_at=datetime(2026, 5, 4, 3, 2, 1, tzinfo=UTC),
        second_factor=None,
        actors=list(parts),
        browser=browser,
        conversion=None,
        cookie=cookie,
        accounts=accounts,
        crews=list(crews),
    )
