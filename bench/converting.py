"""Conversions one after the other, in a process of their own: what is measured beside them must not
share an interpreter with who asks for them.

`python -m bench.converting` is told in a line of JSON at its standard input where the daemon is, by
what token, the portal's origins, and the first item. It says so when that one is converted, goes on
with those after it, and ends with its input.
"""

from __future__ import annotations

import json
import select
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from itertools import count
from pathlib import Path
from typing import Final

from bench.asking import Asking
from bench.daemons import PATIENCE, link
from bench.stage import ask_daemon
from smartlinkd.sandbox.batch import Origins
from tests.programs import ROOT

BEGUN: Final = "converting"


class NotConverted(Exception):  # noqa: N818 - it names what happened
    """The text is what the process said."""


@contextmanager
def converting(url: str, token: str, portal: Origins, first: int, log: Path) -> Iterator[None]:
    """The daemon at `url` converts for as long as the block runs; the first link before it begins.

    Raises `NotConverted` when one of them was not: nothing is measured beside work that failed.
    """
    told = {"url": url, "token": token, "portal": asdict(portal), "first": first}
    with log.open("wb") as errors:
        process = subprocess.Popen(
            [sys.executable, "-m", "bench.converting"],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            process_group=0,
        )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        print(json.dumps(told), file=process.stdin, flush=True)
        if process.stdout.readline().strip() != BEGUN:
            raise NotConverted(_said(log))
        yield
    finally:
        process.stdin.close()
        process.stdout.close()
        code = _ended(process)
    if code != 0:
        raise NotConverted(_said(log))


def _said(log: Path) -> str:
    return log.read_text(encoding="utf-8")[-2000:]


def _ended(process: subprocess.Popen[str]) -> int:
    try:
        return process.wait(PATIENCE)
    except subprocess.TimeoutExpired:
        process.kill()
        return process.wait()


def main() -> None:
    """Convert until the input is at its end."""
    told = json.loads(sys.stdin.readline())
    portal, first = Origins(**told["portal"]), told["first"]
    with Asking(told["url"], {"Authorization": f"Bearer {told['token']}"}) as asking:
        for item in count(first):
            ask_daemon(asking, ([link(portal, item)], []))
            if item == first:
                print(BEGUN, flush=True)
            if select.select([sys.stdin], [], [], 0)[0]:
                return


if __name__ == "__main__":
    main()
