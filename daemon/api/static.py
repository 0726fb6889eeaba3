"""Pages that are files of ours, read once and served as they are, to anyone.

The usual pages load scripts from other people's servers; these ask nobody but the daemon for
anything, and their policy keeps it that way. Their addresses are relative, so that they work behind
a proxy that puts the daemon under a path.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Final

from quart import Quart
from quart.typing import ResponseReturnValue

POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
"""Content Security Policy: our own files and our own API, and nothing else."""

_PAGES = Path(__file__).parent / "pages"
_MEDIA_TYPES = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
}


def serve_page(target: Quart, files: Mapping[str, str], *, policy: str) -> None:
    """Serve files of the folder `pages`, by the paths that they get."""
    headers = {
        "Content-Security-Policy": policy,
        "X-Content-Type-Options": "nosniff",
        "Referrer-Policy": "no-referrer",
        "Cache-Control": "no-cache",
    }
    for path, name in files.items():
        _serve_file(target, path, _PAGES / name, headers)


@cache
def _read(file: Path) -> str:
    """Once for all apps that are ever made: a reload makes new ones, and is all or nothing."""
    return file.read_text("utf-8")


def _serve_file(target: Quart, path: str, file: Path, headers: Mapping[str, str]) -> None:
    text = _read(file)
    sent = {**headers, "Content-Type": _MEDIA_TYPES[file.suffix]}

    async def page() -> ResponseReturnValue:
        return text, 200, sent

    target.add_url_rule(
        path, f"page {path}", page, methods=["GET"], provide_automatic_options=False
    )
