"""Sessions at the sandbox: a rule over the cookies of one request. Pure.

Any number in SPC_U is an account, if the other cookies of a session stand beside it, so a test has
as many accounts as it needs. The affiliate id in every longLink follows from the account's number,
which proves who earns.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from typing import Final

EXPIRED: Final = "expired"
"""The value of SPC_EC in an expired session."""

DEFAULT_ACCOUNT: Final = "100200300"
"""The account of the cookie string that the command prints."""

_NUMBER = re.compile(r"[0-9]{1,15}")
_AFFILIATE_BASE = 17_000_000_000


def account_of(cookies: Mapping[str, str]) -> str:
    """Return the account that these cookies sign in; "" if they sign in none."""
    account = cookies.get("SPC_U", "")
    if not _NUMBER.fullmatch(account) or not cookies.get("csrftoken"):
        return ""
    if cookies.get("SPC_EC", EXPIRED) in ("", EXPIRED) or not cookies.get("SPC_ST"):
        return ""
    return account


def cookies_of(account: str) -> dict[str, str]:
    """Return the cookies of a session of an account, by name. They are always the same."""
    digest = hashlib.sha256(f"session {account}".encode()).hexdigest()
    return {
        "SPC_F": digest[:32],
        "SPC_EC": f".{digest[:40]}==",
        "SPC_ST": f".{digest[8:48]}==",
        "SPC_U": account,
        "csrftoken": digest[32:],
    }


def cookie_header(account: str = DEFAULT_ACCOUNT) -> str:
    """Return the cookies of an account as one string, ready for the daemon's cookie sync."""
    return "; ".join(f"{name}={value}" for name, value in cookies_of(account).items())


def affiliate_id(account: str) -> int:
    """Return the number in `utm_source=an_…`: each account has its own."""
    return _AFFILIATE_BASE + int(account)
