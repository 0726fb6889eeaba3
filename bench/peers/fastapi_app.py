"""A trivial FastAPI app that answers row 6: `uvicorn bench.peers.fastapi_app:app`."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated, Any

import jwt
from fastapi import FastAPI, Header, HTTPException

from bench.peers.answers import COOKIE, CREWS, SECRET, check_token

app = FastAPI()


@app.get("/api/health")
async def health() -> dict[str, Any]:
    return {"ok": True, "browserReady": True, "timestamp": datetime.now(UTC).isoformat()}


@app.get("/api/crews")
async def crews(authorization: Annotated[str, Header()] = "") -> dict[str, Any]:
    try:
        check_token(authorization, SECRET)
    except jwt.PyJWTError:
        raise HTTPException(403, "log in first") from None
    return CREWS


@app.get("/api/sync-cookie")
async def cookie() -> dict[str, Any]:
    return COOKIE
