"""The sandbox as a whole: three listeners on loopback, and the command that runs them.

To the daemon it is one more portal, reached through `portal_url`, `shop_url` and `short_urls`.
Tests and the demo open it in their own nursery; the command runs it alone. Like the marketplace's
three hosts it has three listeners, so a redirect or a cookie that goes to the wrong one shows.
"""

from __future__ import annotations

import logging
import signal
import socket
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import ExitStack, asynccontextmanager
from functools import partial
from typing import Final

import trio

from smartlinkd.errors import Invalid
from smartlinkd.http_server import ServedApp, serve
from smartlinkd.sandbox.batch import Origins
from smartlinkd.sandbox.faults import FAULTS
from smartlinkd.sandbox.open_api import APP_ID, SECRET
from smartlinkd.sandbox.portal import portal_app
from smartlinkd.sandbox.products import PRODUCTS, product_link
from smartlinkd.sandbox.session import cookie_header
from smartlinkd.sandbox.shop import shop_app, short_links_app
from smartlinkd.sandbox.shortlinks import CODES
from smartlinkd.sandbox.state import SandboxState

logger = logging.getLogger(__name__)

HOLD: Final = 300.0
"""Seconds that a slow answer takes: longer than the daemon waits for the portal by default."""

GRACE: Final = 1.0
"""Seconds that running requests have when the sandbox closes."""

_BACKLOG = 256
_LAST_PORT = 65535


@asynccontextmanager
async def open_sandbox(
    host: str = "127.0.0.1",
    ports: Sequence[int] = (0, 0, 0),
    *,
    hold: float = HOLD,
) -> AsyncIterator[SandboxState]:
    """Serve a sandbox for as long as the block runs.

    The block runs inside a nursery: an exception leaves it in an exception group.

    Args:
        ports: of the portal, the shop and the short links; 0 lets the kernel choose.
        hold: the seconds that a slow answer takes.

    Raises:
        Invalid: a port cannot be had.
    """
    with ExitStack() as stack:
        # All are bound before one is served, so each part knows the others' addresses.
        listening = [stack.enter_context(_listen(host, port)) for port in ports]
        state = SandboxState(Origins(*(_origin(bound) for bound in listening)), hold)
        apps = (portal_app(state), shop_app(state), short_links_app(state))
        stop = trio.Event()
        async with trio.open_nursery() as nursery:
            for app, bound in zip(apps, listening, strict=True):
                await nursery.start(partial(serve, ServedApp(app), [bound], grace=GRACE, stop=stop))
            logger.info("sandbox portal at %s", state.origins.portal)
            try:
                yield state
            finally:
                state.closing.set()
                stop.set()


def main(*, host: str, port: int) -> int:
    """Run `smartlinkd sandbox` until SIGTERM or Ctrl-C; return exit code 0.

    It listens at `port` and the two after it, or at any three for 0.

    Raises:
        Invalid: as `open_sandbox`.
    """
    ports = [port + n if port else 0 for n in range(3)]

    async def run_until_signal() -> None:
        with trio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
            async with open_sandbox(host, ports) as sandbox:
                print(usage(sandbox), flush=True)
                await anext(signals)

    trio.run(run_until_signal)
    return 0


def usage(sandbox: SandboxState) -> str:
    """Return how to use a sandbox: addresses, configuration, cookie, products and faults."""
    portal, shop, short = sandbox.origins.portal, sandbox.origins.shop, sandbox.origins.short
    return f"""\
The sandbox is running
  portal       {portal}/   (log at /_sandbox/log)
  shop         {shop}/
  short links  {short}/

Configuration for the daemon
  [marketplace]
  portal_url = "{portal}"
  shop_url = "{shop}"
  short_urls = ["{short}"]

  # with links.source or products.source = "open_api":
  [open_api]
  app_id = "{APP_ID}"
  secret = "{SECRET}"
  url = "{sandbox.origins.open_api}"

  # with products.source = "third_party":
  [third_party]
  url = "{sandbox.origins.estimate}"
  fields = {{ price = "price" }}   # the others have our own names

A cookie that is signed in
  {cookie_header()}

Products (any other item id is one, too)
{_table((product_link(product, shop), product.why) for product in PRODUCTS)}

Short links
{_table((f"{short}/{row.code}", row.shows) for row in CODES)}
  {short}/p<shop>i<item>  one 302 to that product

Faults, by magic item, or switched on (for all, or an "account": SPC_U, app_id) with
curl {portal}/_sandbox/faults -d '{{"fault": "NAME", "times": 1}}'
{_table((fault.name, str(fault.item or ""), fault.shows) for fault in FAULTS)}
"""


def _table(rows: Iterable[Sequence[str]]) -> str:
    rows = list(rows)
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join("  " + "  ".join(map(str.ljust, row, widths)).rstrip() for row in rows)


def _listen(host: str, port: int) -> socket.socket:
    why = f"{_LAST_PORT} is the last port"
    try:
        if port <= _LAST_PORT:
            return socket.create_server((host, port), backlog=_BACKLOG)
    except OSError as error:
        why = str(error)
    raise Invalid(
        f"cannot listen on {host}:{port} ({why}); choose another --port (the next two must be free "
        "as well), and an IPv4 address of this machine as --host"
    )


def _origin(listening: socket.socket) -> str:
    host, port = listening.getsockname()
    return f"http://{host}:{port}"
