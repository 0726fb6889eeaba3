"""A process that converts links one after the other while something else is measured.

`python -m bench.converting` reads one line of JSON: the daemon's address, the token, the portal's
origins and the first item. It prints `converting` after the first conversion, and goes on until its
standard input ends.
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

from bench.asking import JsonClient
from bench.daemons import PATIENCE, link
from bench.stage import ask_daemon
from smartlinkd.sandbox.batch import Origins
from tests.programs import ROOT

BEGUN: Final = "converting"


class NotConverted(Exception):  # noqa: N818 - it names what happened
    """A conversion failed. The text is the end of the process's log."""


@contextmanager
def converting(url: str, token: str, portal: Origins, first: int, log: Path) -> Iterator[None]:
    """Let the daemon at `url` convert during the block, which begins after the first conversion.

    Raises `NotConverted` if a conversion failed.
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
            raise NotConverted(_end_of_log(log))
        yield
    finally:
        process.stdin.close()
        process.stdout.close()
        code = _wait_for_end(process)
    if code != 0:
        raise NotConverted(_end_of_log(log))


def _end_of_log(log: Path) -> str:
    return log.read_text(encoding="utf-8")[-2000:]


def _wait_for_end(process: subprocess.Popen[str]) -> int:
    try:
        return process.wait(PATIENCE)
    except subprocess.TimeoutExpired:
        process.kill()
        return process.wait()


def main() -> None:
    """Convert links until standard input ends."""
    told = json.loads(sys.stdin.readline())
    portal, first = Origins(**told["portal"]), told["first"]
    with JsonClient(told["url"], {"Authorization": f"Bearer {told['token']}"}) as client:
        for item in count(first):
            ask_daemon(client, ([link(portal, item)], []))
            if item == first:
                print(BEGUN, flush=True)
            if select.select([sys.stdin], [], [], 0)[0]:
                return


if __name__ == "__main__":
    main()
