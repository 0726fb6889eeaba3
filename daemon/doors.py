"""The addresses that the daemon answers at: its own, and those of crews with a `bind`.

They are opened before anything is started, so that a port that is taken ends the start at once. A
crew's own is no reason to: that crew is then served at the main address alone, and the log says so.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain
from socket import socket

import trio

from daemon.config.values import Bind
from daemon.errors import Invalid
from daemon.serving import GuardedQuart, bind, serve

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Doors:
    """Listening sockets; an address may have several. `crews` are by the crew's name."""

    main: Sequence[socket]
    crews: Mapping[str, Sequence[socket]]

    @property
    def urls(self) -> tuple[str, ...]:
        """The main address, as it is called."""
        return tuple(_url(door) for door in self.main)

    @property
    def crew_urls(self) -> dict[str, str]:
        """Those of crews."""
        return {name: _url(doors[0]) for name, doors in self.crews.items()}

    @property
    def ports(self) -> frozenset[int]:
        """Of all of them."""
        return frozenset(door.getsockname()[1] for door in chain(self.main, *self.crews.values()))


@contextmanager
def open_doors(main: Bind, crews: Mapping[str, Bind]) -> Iterator[Doors]:
    """Listen for the length of the block. Blocks. Raises `Invalid` for the main address."""
    doors = Doors(bind(main.host, main.port), _crew_doors(crews))
    try:
        yield doors
    finally:
        for door in chain(doors.main, *doors.crews.values()):
            door.close()


def _crew_doors(crews: Mapping[str, Bind]) -> dict[str, Sequence[socket]]:
    doors: dict[str, Sequence[socket]] = {}
    for name, where in crews.items():
        try:
            doors[name] = bind(where.host, where.port, setting=f"crew {name}: bind")
        except Invalid as fault:
            logger.error(  # noqa: TRY400 - its text is all there is to tell
                "%s; until then it is served at /crews/%s of the main address alone", fault, name
            )
    return doors


class Facade:
    """An app as a supervised part: each incarnation serves on the same sockets.

    They are closed with its last one, at `stop`.
    """

    def __init__(self, app: GuardedQuart, sockets: Sequence[socket], *, grace: float) -> None:
        self._app = app
        self._sockets = sockets
        self._grace = grace
        self._stop = trio.Event()

    async def run(self, task_status: trio.TaskStatus[None]) -> None:
        """One incarnation."""
        self._stop = trio.Event()
        await serve(
            self._app,
            self._sockets,
            grace=self._grace,
            stop=self._stop,
            task_status=task_status,
        )

    def stop(self) -> None:
        """Answer what was asked, and return."""
        self._stop.set()
        # Whoever connects from now on is refused at once, and not kept waiting by the kernel for a
        # daemon that will never look.
        for listening in self._sockets:
            listening.close()


def _url(listening: socket) -> str:
    host, port = listening.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
