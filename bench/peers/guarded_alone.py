"""The least that a worker with a guardian takes: the program, a guardian, and a line on a pipe.

    python -m bench.peers.guarded_alone    # a line of input: run it once; its result is printed

Nobody would do it like this: it answers to nobody over HTTP, asks for no token, gives no folder and
writes nothing to a disk. It shows what is left to save for anybody who has a program end with them.
"""

from __future__ import annotations

import os
import socket
import sys
from pathlib import Path
from typing import Final

import trio

from bench.program import INPUTS, PYTHON, result_of
from daemon.processes.guarded import Limits, guarded
from daemon.processes.guardians import shared_guardians

LIMITS: Final = Limits(memory=1 << 30, file_size=1 << 30)
ENVIRONMENT: Final = {"PATH": os.defpath}


async def run_once() -> str:
    """Run the program to its end; its result."""
    ours, theirs = socket.socketpair()
    with trio.socket.from_stdlib_socket(ours) as line, theirs:
        async with guarded(
            PYTHON,
            environment=ENVIRONMENT,
            working_folder=Path("/"),
            channel=theirs.fileno(),
            limits=LIMITS,
        ) as process:
            theirs.close()
            await line.send(INPUTS)
            said = b""
            while data := await line.recv(4096):
                said += data
            status = await process.wait()
    return result_of(said.decode(), status.code)


async def main() -> None:
    async with shared_guardians():
        while await trio.to_thread.run_sync(sys.stdin.readline):
            print(await run_once(), flush=True)


if __name__ == "__main__":
    trio.run(main)
