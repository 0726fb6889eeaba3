"""Run the Playwright scripts for the benchmark; settings and commands are lines of JSON.

`python -m bench.peers.playwright_main SETTINGS` prints the browser's version, and reads a command
from each line of standard input: a script, a method, the orders of some concurrent clients, and
`seconds` or null. After `seconds` unfinished orders are cancelled. It answers with a line: the
seconds of each order, and those until the last one ended. A failed order ends the process.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import Mapping, Sequence
from typing import Any, Final, cast

from playwright.async_api import BrowserContext, async_playwright

from bench.peers.bare_cdp import CdpPage
from bench.peers.playwright_each import PagePerRequest
from bench.peers.playwright_kept import KeptPage, Method, Row

Script = KeptPage | PagePerRequest | CdpPage
Order = tuple[Sequence[str], Sequence[str]]

LINE_LIMIT: Final = 16 * 1024 * 1024


class _Scripts:
    """The scripts that were asked for, each opened once."""

    def __init__(self, context: BrowserContext, settings: Mapping[str, Any]) -> None:
        self._context = context
        self._settings = settings
        self._portal = str(settings["portal"])
        self._open: dict[tuple[str, str], Script] = {}

    async def get(self, name: str, method: Method) -> Script:
        if (name, method) not in self._open:
            self._open[name, method] = await self._open_script(name, method)
        return self._open[name, method]

    async def _open_script(self, name: str, method: Method) -> Script:
        if name == "each":
            return PagePerRequest(self._context, self._portal, method)
        if name == "kept":
            return await KeptPage.open(self._context, self._portal, method)
        if (port := self._settings["port"]) is None:
            raise ValueError(f"port: is null, and {name} needs one where its Chromium listens")
        return CdpPage.open(self._portal, self._settings["cookies"], method, port)

    async def drop(self, name: str, method: Method) -> None:
        """Close a script that was cancelled: the state of its page is unknown."""
        await self._open.pop((name, method)).close()


class _Clients:
    """Clients that convert their orders, and the seconds of each order."""

    def __init__(self, script: Script) -> None:
        self._script = script
        self._began = time.perf_counter()
        self.took: list[float] = []
        self.last = 0.0

    async def run_client(self, orders: Sequence[Order]) -> None:
        for links, sub_ids in orders:
            began = time.perf_counter()
            rows = await self._script.convert(links, sub_ids)
            ended = time.perf_counter()
            _check(links, rows)
            self.took.append(ended - began)
            self.last = ended - self._began


def _check(links: Sequence[str], rows: Sequence[Row]) -> None:
    made = {row["shortLink"] for row in rows if row["shortLink"]}
    if not len(rows) == len(made) == len(links):
        raise ValueError(f"{links} became {rows}")


async def _run_command(scripts: _Scripts, asked: dict[str, Any]) -> dict[str, Any]:
    name, method = asked["script"], cast(Method, asked["method"])
    script = await scripts.get(name, method)
    load = _Clients(script)
    try:
        async with asyncio.timeout(asked["seconds"]), asyncio.TaskGroup() as clients:
            for orders in asked["clients"]:
                clients.create_task(load.run_client(orders))
    except TimeoutError:
        await scripts.drop(name, method)
    else:
        await script.settle()
    return {"seconds": load.last, "orders": load.took}


async def main(settings: dict[str, Any]) -> None:
    reader = asyncio.StreamReader(limit=LINE_LIMIT)
    await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), sys.stdin
    )
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(
            executable_path=settings["executable"],
            chromium_sandbox=settings["sandbox"],
        )
        context = await browser.new_context()
        await context.add_cookies(
            [
                {"name": name, "value": value, "url": settings["portal"]}
                for name, value in settings["cookies"].items()
            ]
        )
        scripts = _Scripts(context, settings)
        print(json.dumps({"version": browser.version}), flush=True)
        while line := await reader.readline():
            print(json.dumps(await _run_command(scripts, json.loads(line))), flush=True)
        await browser.close()


if __name__ == "__main__":
    asyncio.run(main(json.loads(sys.argv[1])))
