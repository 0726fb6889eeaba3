"""Who is signed in at the sandbox: a rule over the cookies of one request.

There is no table of accounts. Any number in SPC_U is an account, as long as the cookies that make
a session stand beside it, so a test has as many accounts as it needs. The affiliate id in every
longLink follows from the account's number and back, which is what proves who earns.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

EXPIRED: Final = "expired"
"""The value of SPC_EC that stands for a session that has run out."""

DEFAULT_ACCOUNT: Final = "100200300"
"""The account of the cookie string that the command prints."""

_NUMBER = re.compile(r"[0-9]{1,15}")
_AFFILIATE_BASE = 17_000_000_000


@dataclass(frozen=True)
class Session:
    """A signed-in account, and the token its calls have to bring."""

    account: str
    csrf_token: str


def session_of(cookies: Mapping[str, str]) -> Session | None:
    """The session these cookies make, or None: SPC_EC, SPC_ST, SPC_U and csrftoken are needed."""
    account = cookies.get("SPC_U", "")
    csrf_token = cookies.get("csrftoken", "")
    if not _NUMBER.fullmatch(account) or not csrf_token:
        return None
    if cookies.get("SPC_EC", EXPIRED) in ("", EXPIRED) or not cookies.get("SPC_ST"):
        return None
    return Session(account, csrf_token)


def cookies_of(account: str) -> dict[str, str]:
    """Name and value of the cookies of a session of `account`, the same ones every time."""
    digest = hashlib.sha256(f"session {account}".encode()).hexdigest()
    return {
        "SPC_F": digest[:32],
        "SPC_EC": f".{digest[:40]}==",
        "SPC_ST": f".{digest[8:48]}==",
        "SPC_U": account,
        "csrftoken": digest[32:],
    }


def cookie_header(account: str = DEFAULT_ACCOUNT) -> str:
    """The same as one string, ready for the daemon's cookie sync."""
    return "; ".join(f"{name}={value}" for name, value in cookies_of(account).items())


def affiliate_id(account: str) -> int:
    """The number in `utm_source=an_…`: no two accounts have the same."""
    return _AFFILIATE_BASE + int(account)
