"""Runs the Playwright scripts, told what to do by lines of JSON, and takes the time in its own
process: `python -m bench.peers.playwright_main '{"executable": …, "sandbox": …, "port": …,
"portal": …, "cookies": {…}}'`. `port` is where the Chromium of the script `bare` listens, or null.

A line is `{"script": "kept", "method": "form", "clients": [[[links, sub_ids], …], …], "seconds":
null}`: orders for each of some clients that are at work at the same time, each doing its own in
turn. With `seconds` they stop after so long, and leave what they are about. The answer is a line
with what each order took, and when the last one was done, in seconds. An order that fails ends it
all. It ends with its standard input.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import Mapping, Sequence
from typing import Any, Final, cast

from playwright.async_api import BrowserContext, async_playwright

from bench.peers.bare_cdp import Bare
from bench.peers.playwright_each import Each
from bench.peers.playwright_kept import Kept, Method, Row

Script = Kept | Each | Bare
Order = tuple[Sequence[str], Sequence[str]]

LINE_LIMIT: Final = 16 * 1024 * 1024


class _Scripts:
    """Those that were asked for, each set up once."""

    def __init__(self, context: BrowserContext, settings: Mapping[str, Any]) -> None:
        self._context = context
        self._settings = settings
        self._portal = str(settings["portal"])
        self._open: dict[tuple[str, str], Script] = {}

    async def of(self, name: str, method: Method) -> Script:
        if (name, method) not in self._open:
            self._open[name, method] = await self._begin(name, method)
        return self._open[name, method]

    async def _begin(self, name: str, method: Method) -> Script:
        if name == "each":
            return Each(self._context, self._portal, method)
        if name == "kept":
            return await Kept.open(self._context, self._portal, method)
        if (port := self._settings["port"]) is None:
            raise ValueError(f"port: is null, and {name} needs one where its Chromium listens")
        return Bare.open(self._portal, self._settings["cookies"], method, port)

    async def drop(self, name: str, method: Method) -> None:
        """For one that was left at its work: nobody knows what its page shows."""
        await self._open.pop((name, method)).close()


class _Load:
    """Clients at work, and what their orders took until each had its answer."""

    def __init__(self, script: Script) -> None:
        self._script = script
        self._began = time.perf_counter()
        self.took: list[float] = []
        self.last = 0.0

    async def client(self, orders: Sequence[Order]) -> None:
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


async def _do(scripts: _Scripts, asked: dict[str, Any]) -> dict[str, Any]:
    name, method = asked["script"], cast(Method, asked["method"])
    script = await scripts.of(name, method)
    load = _Load(script)
    try:
        async with asyncio.timeout(asked["seconds"]), asyncio.TaskGroup() as clients:
            for orders in asked["clients"]:
                clients.create_task(load.client(orders))
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
            print(json.dumps(await _do(scripts, json.loads(line))), flush=True)
        await browser.close()


if __name__ == "__main__":
    asyncio.run(main(json.loads(sys.argv[1])))
