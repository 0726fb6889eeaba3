"""The least program that answers over HTTP and imports the libraries that the daemon imports.

    python -m bench.peers.health_alone PORT    # `/api/health`, until it is ended

They are imported, the server and the app are as shipped, and the answer is always the same: there
is no configuration, no password to hash a word with, nothing to open and nobody to supervise.
"""

# ruff: noqa: F401 - the daemon has to import them

from __future__ import annotations

import sys
from typing import Any

import argon2
import certifi
import httpx
import jwt
import prometheus_client
import pydantic
import pyotp
import segno
import trio
import trio_websocket
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from hypercorn.config import Config
from hypercorn.trio import serve
from quart_trio import QuartTrio

app = QuartTrio(__name__)


@app.get("/api/health")
async def health() -> dict[str, Any]:
    return {"ok": True}


if __name__ == "__main__":
    config = Config()
    config.bind = [f"127.0.0.1:{sys.argv[1]}"]
    trio.run(serve, app, config)
