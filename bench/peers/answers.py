"""The constant answers and the token check of the trivial apps."""

from __future__ import annotations

import time
from typing import Any, Final

import jwt

SECRET: Final = "a secret of no account, at least 32 bytes long"
CREWS: Final[dict[str, Any]] = {
    "ok": True,
    "crews": [
        {
            "name": "bench",
            "default": False,
            "baseUrls": ["/crews/bench"],
            "inputs": [],
            "users": [],
            "problems": [],
            "running": 0,
            "queued": 0,
        }
    ],
}
COOKIE: Final[dict[str, Any]] = {
    "ok": True,
    "cookie": "SPC_F=0123456789abcdef0123456789abcdef; SPC_EC=.0123456789abcdef0123456789abcdef==; "
    "SPC_ST=.0123456789abcdef0123456789abcdef==; SPC_U=100200300; csrftoken=0123456789abcdef",
    "accountName": "Affiliate",
    "syncedAt": "2026-01-01T00:00:00Z",
}


def new_token() -> str:
    return jwt.encode({"sub": "owner", "exp": int(time.time()) + 3600}, SECRET, "HS256")


def check_token(authorization: str, secret: str) -> None:
    """Check the header's token. Raises `jwt.PyJWTError` if it is not valid."""
    jwt.decode(
        authorization.removeprefix("Bearer "),
        secret,
        algorithms=["HS256"],
        options={"require": ["sub", "exp"]},
    )
