"""Completion in a shell: `smartlinkd completion bash`, and crews' names for it.

The names are asked of the daemon, and kept for a minute in the user's cache folder. When it does
not answer within a second there are none, and nothing is said.
"""

from __future__ import annotations

import argparse
import os
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from argcomplete.shell_integration import shellcode
from pydantic import BaseModel, ValidationError

from smartlinkd.client import ClientError
from smartlinkd.commands.codes import GOOD
from smartlinkd.commands.server import Server, find_server
from smartlinkd.state_files import NotSaved, StateUnusable, read_private, replace_file

SHELLS: Final = ("bash", "zsh", "fish")
KEPT_S: Final = 60.0
ANSWER_S: Final = 1.0
MAX_CACHE: Final = 1024 * 1024
"""Bytes."""


class CachedNames(BaseModel):
    """Crews' names of a daemon, and when they were asked for (seconds since 1970)."""

    url: str
    at: float
    names: list[str]


def main(chosen: argparse.Namespace) -> int:
    """Print the code that a shell evaluates."""
    print(shellcode(["smartlinkd"], shell=chosen.shell))
    return GOOD


def crew_names(prefix: str, parsed_args: argparse.Namespace, **_: object) -> list[str]:
    """Return the crews' names for the completion of `prefix`. Called by argcomplete."""
    try:
        server = find_server(parsed_args, os.environ)
    except ClientError:
        return []
    if server is None or server.key is None:
        return []
    path = _cache_path()
    names = _cached(path, server.url)
    if names is None:
        names = _asked(server)
        if names is not None:
            _keep(path, CachedNames(url=server.url, at=time.time(), names=names))
    return [name for name in names or [] if name.startswith(prefix)]


def _asked(server: Server) -> list[str] | None:
    """Return the names as the daemon has them; None if it does not answer in time."""
    found: list[str] = []
    asked = threading.Event()

    def ask() -> None:
        try:
            with server.open() as daemon:
                found.extend(crew.name for crew in daemon.crews() if crew.name)
            asked.set()
        except ClientError:
            pass  # a person who is typing wants no message

    # The thread of a daemon that hangs ends with the process, which ends after the completion.
    threading.Thread(target=ask, daemon=True).start()
    return found if asked.wait(ANSWER_S) else None


def _cached(path: Path, url: str) -> Sequence[str] | None:
    try:
        content = read_private(path, most=MAX_CACHE)
        cached = CachedNames.model_validate_json(content or b"")
    except (StateUnusable, ValidationError):
        return None
    is_fresh = 0 <= time.time() - cached.at < KEPT_S
    return cached.names if is_fresh and cached.url == url else None


def _keep(path: Path, cached: CachedNames) -> None:
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        replace_file(path, cached.model_dump_json().encode())
    except (NotSaved, OSError):
        pass  # the next completion asks again


def _cache_path() -> Path:
    folder = os.environ.get("XDG_CACHE_HOME") or Path(os.environ.get("HOME", "/"), ".cache")
    return Path(folder) / "smartlinkd" / "crews.json"
