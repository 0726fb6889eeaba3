"""Run the fast tests repeatedly, each time in another order: `./run test --repeat 50`.

A rare failure depends on the order of the tests, trio's order of tasks, or timing. The first
failure ends the runs; its seed repeats both orders. Fast tests are those in FOLDERS without a real
Chromium: the daemon's parts, and the whole daemon in one process.
"""

from __future__ import annotations

import argparse
import random
import subprocess
import sys
from collections.abc import Sequence

FOLDERS = (
    "auth",
    "config",
    "conversion",
    "crews/webhooks",
    "fakes",
    "faults",
    "http_server",
    "store",
    "marketplace",
    "net",
    "sandbox",
    "supervision",
    "vault",
)


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="./run test --repeat", allow_abbrev=False)
    parser.add_argument("times", type=int, metavar="TIMES")
    parser.add_argument("--randomly-seed", type=int, help="to have one run again")
    asked, more = parser.parse_known_args(arguments)
    times = asked.times
    for number in range(1, times + 1):
        seed = asked.randomly_seed or random.SystemRandom().getrandbits(32)
        done = run_once(seed, more)
        if done.returncode != 0:
            print(done.stdout)
            print(f"repeat: run {number} of {times} failed; the same orders again:")
            print(f"    ./run test --repeat 1 --randomly-seed={seed}", *more)
            return 1
        told = done.stdout.rstrip().rpartition("\n")[2].strip("= ")
        print(f"repeat: run {number} of {times}, seed {seed}: {told}", flush=True)
    print(f"repeat: {times} of {times} runs without a failure")
    return 0


def run_once(seed: int, more: Sequence[str]) -> subprocess.CompletedProcess[str]:
    """Run the tests once, in two processes, with these further arguments to pytest."""
    # As `testpaths`, because a folder that is named would run whole (`nightly.py`).
    folders = " ".join(f"tests/{folder}" for folder in FOLDERS)
    command = [sys.executable, "-m", "pytest", "-o", f"testpaths={folders}"]
    command += ["-m", "not chromium", "-n", "2", "--dist", "loadfile", "--no-loadscope-reorder"]
    command += [f"--randomly-seed={seed}", *more]
    return subprocess.run(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
