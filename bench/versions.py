"""Versions of the packages, programs and machine that were measured.

They are collected before the first row: afterwards the load is the rows' own, and the commit may
have changed.
"""

from __future__ import annotations

import os
import platform
import re
import subprocess
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Final

from bench.daemons import chromium, unsandboxed

PACKAGES: Final = (
    "trio",
    "hypercorn",
    "quart",
    "quart-trio",
    "pydantic",
    "playwright",
    "fastapi",
    "uvicorn",
    "celery",
    "redis",
)
PROGRAMS: Final = {
    "chromium": (str(chromium()), "--version"),
    "redis-server": ("redis-server", "--version"),
}
DEADLINE: Final = 20.0


def collect() -> dict[str, str]:
    """Return names and versions; a missing package or program is left out."""
    load, _, _ = os.getloadavg()  # the last minute's load, before the benchmark
    return {
        "smartlinkd": _output("git", "describe", "--always", "--dirty"),
        "python": platform.python_version(),
        **{name: told for name in PACKAGES if (told := _package(name))},
        **{name: told for name, words in PROGRAMS.items() if (told := _output(*words))},
        "Chromium's sandbox": "off" if unsandboxed() else "on",
        "kernel": platform.release(),
        "machine": f"{os.cpu_count()} x {_processor()}",
        "load before": f"{load:.1f}",
    }


def _package(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return ""


def _output(*words: str) -> str:
    try:
        done = subprocess.run(words, capture_output=True, text=True, timeout=DEADLINE, check=True)
    except (OSError, subprocess.SubprocessError):
        return ""
    return done.stdout.strip()


def _processor() -> str:
    text = Path("/proc/cpuinfo").read_text(encoding="utf-8")
    told = re.search(r"model name\s*:\s*(.+)", text)
    return told[1].strip() if told else platform.machine()
