"""The sandbox as a whole: three listeners on loopback, and what a caller needs to use them.

To the daemon it is one more portal: it is reached through `portal_url`, `shop_url` and
`short_urls`, over HTTP, and shares nothing else with it. So the same object serves three callers:
tests and the demo open it in their own nursery, and the command runs it alone.

The listeners stand on three ports because the marketplace stands on three hosts: a redirect or a
cookie that goes to the wrong one shows. They are bound before anything is served, so every part
knows the others' addresses from the start, also when the kernel chose the ports.
"""

from __future__ import annotations

import logging
import signal
import socket
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import ExitStack, asynccontextmanager
from functools import partial
from typing import Final

import trio

from smartlinkd.errors import Invalid, leaves
from smartlinkd.http_server import ServedApp, serve
from smartlinkd.sandbox.batch import Origins
from smartlinkd.sandbox.portal import portal_app
from smartlinkd.sandbox.print_out import print_out
from smartlinkd.sandbox.running import Sandbox
from smartlinkd.sandbox.shop import shop_app
from smartlinkd.sandbox.shorts import shorts_app
from smartlinkd.sandbox.state import State

logger = logging.getLogger(__name__)

ROWS: Final = 5
"""Links that the portal takes in one submit, as its page in this market does."""

HOLD: Final = 300.0
"""Seconds that a slow answer takes: longer than any deadline of the daemon."""

GRACE: Final = 1.0
"""Seconds that running requests have when the sandbox closes."""

_BACKLOG = 256
_LAST_PORT = 65535


@asynccontextmanager
async def open_sandbox(
    host: str = "127.0.0.1",
    ports: Sequence[int] = (0, 0, 0),
    *,
    rows: int = ROWS,
    hold: float = HOLD,
) -> AsyncIterator[Sandbox]:
    """Serve a sandbox for as long as the block runs; `ports` of portal, shop and short links.

    Port 0 lets the kernel choose. `rows` is the most links of a submit, `hold` the seconds that a
    slow answer takes. Raises `Invalid` when a port cannot be had. The block runs inside a nursery:
    what it raises leaves in an exception group.
    """
    with ExitStack() as stack:
        listening = [stack.enter_context(_listen(host, port)) for port in ports]
        state = State(Origins(*(_origin(bound) for bound in listening)), rows, hold)
        apps = (portal_app(state), shop_app(state), shorts_app(state))
        stop = trio.Event()
        async with trio.open_nursery() as nursery:
            for app, bound in zip(apps, listening, strict=True):
                await nursery.start(partial(serve, ServedApp(app), [bound], grace=GRACE, stop=stop))
            logger.info("sandbox portal at %s", state.origins.portal)
            try:
                yield Sandbox(state)
            finally:
                state.closing.set()
                stop.set()


async def run(host: str, port: int, write: Callable[[str], object]) -> None:
    """Serve a sandbox until cancelled: `port` and the two after it, or any three for 0.

    `write` is given the text that says how to use it. Raises `Invalid` as `open_sandbox`.
    """
    ports = [port + n if port else 0 for n in range(3)]
    async with open_sandbox(host, ports) as sandbox:
        write(print_out(sandbox))
        await trio.sleep_forever()


def main(*, host: str, port: int) -> int:
    """The command `smartlinkd sandbox`: until SIGTERM or Ctrl-C, then exit code 0."""

    async def until_told() -> None:
        with trio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(run, host, port, partial(print, flush=True))
                async for _ in signals:
                    nursery.cancel_scope.cancel()

    refused: list[Invalid] = []
    try:
        trio.run(until_told)
    except* Invalid as refusals:
        # What is raised in here would be put in a group again.
        refused.append(next(leaves(refusals)))
    if refused:
        raise refused[0]
    return 0


def _listen(host: str, port: int) -> socket.socket:
    if port > _LAST_PORT:
        raise _no_port(host, port, f"{_LAST_PORT} is the last one")
    try:
        return socket.create_server((host, port), backlog=_BACKLOG)
    except OSError as error:
        raise _no_port(host, port, str(error)) from None


def _no_port(host: str, port: int, why: str) -> Invalid:
    return Invalid(
        f"cannot listen on {host}:{port} ({why}); choose another --port (the next two must be free "
        "as well), and an IPv4 address of this machine as --host"
    )


def _origin(listening: socket.socket) -> str:
    host, port = listening.getsockname()
    return f"http://{host}:{port}"
