"""The smallest HTTP program that imports the daemon's libraries.

    python -m bench.peers.health_alone PORT    # serves `/api/health` until it is killed

The server and the app are as shipped, and the answer is a constant. It reads no configuration,
hashes no password, opens nothing and supervises nothing.
"""

# ruff: noqa: F401 - the daemon imports these modules, so this program does, too

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
