"""The cookies that people have: of an account there may be two."""

from __future__ import annotations

from smartlinkd.sandbox.session import EXPIRED as OVER
from smartlinkd.sandbox.session import cookies_of
from tests.simulation.books import EXPIRED, Whose
from tests.simulation.upstream import VARIANT


def cookie_of(whose: Whose) -> str:
    """As a browser would send it."""
    account, variant = whose
    cookies = cookies_of(account)
    if variant:
        cookies[VARIANT] = variant
    if variant == EXPIRED:
        cookies["SPC_EC"] = OVER
    return "; ".join(f"{name}={value}" for name, value in cookies.items())
