"""Static files, read once and answered to anyone, compressed and with an ETag."""

from __future__ import annotations

import hashlib
import zlib
from collections.abc import Awaitable, Callable, Mapping
from functools import cached_property
from typing import Final

from quart import Quart, Response, request
from quart.wrappers.response import DataBody

_MEDIA_TYPES: Final = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".mjs": "text/javascript; charset=utf-8",
    ".json": "application/json",
    ".webmanifest": "application/manifest+json",
    ".svg": "image/svg+xml",
    ".png": "image/png",
    ".zip": "application/zip",
}
_COMPRESSED_ALREADY: Final = frozenset({".png", ".zip"})
_GZIP: Final = 16 + zlib.MAX_WBITS
"""`wbits` for a gzip header and trailer, in which zlib writes no time."""

REVALIDATE: Final = "no-cache"
IMMUTABLE: Final = "public, max-age=31536000, immutable"
"""For an address that names the content: it never has another one."""


class Asset:
    """One file in memory, and the answers that it gives."""

    def __init__(self, name: str, body: bytes) -> None:
        """`name` is the file's name; its suffix decides the media type."""
        self._suffix = "." + name.rpartition(".")[2]
        self.body = body
        self.media_type = _MEDIA_TYPES[self._suffix]
        self.etag = hashlib.sha256(body).hexdigest()[:32]

    @cached_property
    def compressed(self) -> bytes | None:
        """The gzip copy, made when it is first asked for; None where it would save nothing."""
        if self._suffix in _COMPRESSED_ALREADY:
            return None
        packer = zlib.compressobj(level=9, wbits=_GZIP)
        packed = packer.compress(self.body) + packer.flush()
        return packed if len(packed) < len(self.body) else None

    def answer(self, headers: Mapping[str, str], *, cache: str) -> Response:
        """Answer the current GET or HEAD request: 304 where the client has this content already."""
        packed = self.compressed if request.accept_encodings.quality("gzip") > 0 else None
        etag = f"{self.etag}-gzip" if packed is not None else self.etag
        sent = {
            **headers,
            "Content-Type": self.media_type,
            "Cache-Control": cache,
            "ETag": f'"{etag}"',
            "Vary": "Accept-Encoding",
            "X-Content-Type-Options": "nosniff",
        }
        if request.if_none_match.contains_weak(etag):
            del sent["Content-Type"]
            return Response(DataBody(b""), 304, sent)
        if packed is not None:
            sent["Content-Encoding"] = "gzip"
        return Response(packed or self.body, 200, sent)


def serve(target: Quart, rule: str, view: Callable[..., Awaitable[Response]]) -> None:
    """Serve GET and HEAD at an address that is not in the API's document."""
    target.add_url_rule(
        rule, f"asset {rule}", view, methods=["GET"], provide_automatic_options=False
    )
