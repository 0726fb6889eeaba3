"""A service manager: the real socket that a daemon notifies, and a store for descriptors."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
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
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)
        self._socket.bind(f"\0{address[1:]}" if address.startswith("@") else address)

    def listen(self) -> list[Message]:
        """Return the messages since the last call. `heard` has all of them."""
        new: list[Message] = []
        while True:
            try:
                text, descriptors, _, _ = socket.recv_fds(self._socket, 4096, 4)
            except BlockingIOError:
                self.heard += new
                return new
            new.append(Message(text.decode(), tuple(descriptors)))
            self._keep(new[-1])

    async def attend(self) -> None:
        """Listen all the time. The queue holds about ten messages."""
        while True:
            await trio.lowlevel.wait_readable(self._socket)
            self.listen()

    def fill(self) -> None:
        """Send to it what nobody needs, until its queue is full."""
        kind = socket.SOCK_DGRAM | socket.SOCK_NONBLOCK
        with socket.socket(socket.AF_UNIX, kind) as sender, suppress(BlockingIOError):
            while True:
                sender.sendto(b"FILLING=1", self.address)

    def said(self, name: str) -> list[str]:
        """Return the values of a field, in their order."""
        self.listen()
        return [each.fields[name] for each in self.heard if name in each.fields]

    def close(self) -> None:
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


@pytest.fixture
def manager(tmp_path: Path) -> Iterator[Manager]:
    manager = Manager(str(tmp_path / "notify"))
    yield manager
    manager.close()


def report(
    *parts: PartReport,
    browser: BrowserReport | None = None,
    cookie: CookieReport | None = None,
    accounts: list[AccountReport] | None = None,
    crews: Sequence[CrewReport] = (),
) -> StatusReport:
    """Return what the line of the status is made from."""
    return StatusReport.model_construct(
        actors=list(parts), browser=browser, cookie=cookie, accounts=accounts, crews=list(crews)
    )
