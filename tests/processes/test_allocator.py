"""What a password check has needed goes back to the kernel, in whichever thread it was."""

from __future__ import annotations

import platform
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
THREADS = 3
CHECK = f"""
import re, threading
from pathlib import Path
from smartlinkd.auth.passwords import hash_password
from smartlinkd.processes.allocator import return_large_blocks

def anonymous() -> int:
    return int(re.search(r"RssAnon:\\s+(\\d+)", Path("/proc/self/status").read_text())[1])

return_large_blocks()
hash_password("the first one")
before, end = anonymous(), threading.Event()
for _ in range({THREADS}):
    done = threading.Event()
    def check(done: threading.Event = done) -> None:
        hash_password("one in a thread that stays")
        done.set()
        end.wait()
    threading.Thread(target=check).start()
    done.wait()
print(anonymous() - before)
end.set()
"""
KEPT = 2048
"""KiB for the threads themselves. Each would keep 19 MiB else."""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only its malloc keeps them")
def test_it_is_given_back() -> None:
    done = subprocess.run(
        [sys.executable, "-c", CHECK], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert int(done.stdout) < KEPT
