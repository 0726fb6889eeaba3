"""A trivial Quart-Trio app that answers row 6: `hypercorn -k trio bench.peers.quart_app:app`."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import jwt
from quart import request
from quart_trio import QuartTrio

from bench.peers.answers import COOKIE, CREWS, SECRET, check_token

app = QuartTrio(__name__)


@app.get("/api/health")
async def health() -> dict[str, Any]:
    return {"ok": True, "browserReady": True, "timestamp": datetime.now(UTC).isoformat()}


@app.get("/api/crews")
async def crews() -> Any:
    try:
        check_token(request.headers.get("Authorization", ""), SECRET)
    except jwt.PyJWTError:
        return {"ok": False, "error": "log in first"}, 403
    return CREWS


@app.get("/api/sync-cookie")
async def cookie() -> dict[str, Any]:
    return COOKIE
