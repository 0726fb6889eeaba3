"""The page's session cookie, as it is set and cleared (RFC 6265bis)."""

from __future__ import annotations

from dataclasses import dataclass

from quart import after_this_request
from quart.typing import ResponseTypes

from smartlinkd.auth.tokens import LIFETIME


@dataclass(frozen=True)
class SessionCookie:
    """How the cookie goes to the client of the current request."""

    name: str
    is_secure: bool
    """True if the client used https, so that the browser may keep the cookie to that."""

    def set(self, token: str) -> None:
        """Have the answer to the current request set the cookie."""
        self._send(token, LIFETIME["session"])

    def clear(self) -> None:
        """Have the answer to the current request make a browser forget the cookie."""
        self._send("", 0)

    def _send(self, value: str, max_age_s: int) -> None:
        cookie = f"{self.name}={value}; Max-Age={max_age_s}; Path=/; HttpOnly; SameSite=Strict"

        async def add(response: ResponseTypes) -> ResponseTypes:
            response.headers["Set-Cookie"] = cookie + ("; Secure" if self.is_secure else "")
            return response

        after_this_request(add)
