"""Signs of a lost session or a human check, in whatever the portal shows.

The two must never be mixed up: a lost session is mended with a new cookie, while every further call
on an account that is asked for a person makes things worse for it. So a human check wins wherever
both could be read.
"""

from __future__ import annotations

from enum import Enum
from typing import Any

from smartlinkd.marketplace.errors import HumanCheck, MarketplaceFailed, PortalDown, SessionLost
from smartlinkd.marketplace.markets import Market, covers, host_and_port
from smartlinkd.marketplace.portal_page import PageResponse
from smartlinkd.marketplace.values import json_object, parts_of, to_dict

# The shop's risk control answers with this one code, also with HTTP 200. What it means hangs on
# whether it takes the caller for logged in.
RISK_CONTROL = 90309999
# Some answers carry numbers for names; "2" stands for is_login.
_IS_LOGIN_KEYS = ("is_login", "2")

_HUMAN_CHECK_PATHS = ("/verify/captcha", "/verify/traffic")
_LOGIN_PATHS = ("/buyer/login", "/login")
SIGN_PATHS = (*_HUMAN_CHECK_PATHS, *_LOGIN_PATHS)
"""A page at one of these, or below it, is a sign by itself: nothing is called from there."""
_LOGIN_HOST_PREFIX = "accounts."
PARTS_OF_SIGNS = (*SIGN_PATHS, f"//{_LOGIN_HOST_PREFIX}")
"""One of these is in each URL that is a sign. Others have them, too."""

NO_PERMISSION = (401, 403)


class Sign(Enum):
    """What stands between the account and the portal."""

    LOST = "the session is lost"
    HUMAN_CHECK = "a person is wanted"

    def error(self) -> MarketplaceFailed:
        """The error to raise for it."""
        return SessionLost() if self is Sign.LOST else HumanCheck()


def raise_gravest(*signs: Sign | None) -> None:
    """Raise the error of a human check, if there is one among `signs`, else of a lost session."""
    for sign in (Sign.HUMAN_CHECK, Sign.LOST):
        if sign in signs:
            raise sign.error() from None


def sign_of_url(url: str) -> Sign | None:
    """What it means to have ended up at `url`."""
    parts = parts_of(url)
    if _below(parts.path, _HUMAN_CHECK_PATHS):
        return Sign.HUMAN_CHECK
    if _below(parts.path, _LOGIN_PATHS) or (parts.hostname or "").startswith(_LOGIN_HOST_PREFIX):
        return Sign.LOST
    return None


def is_check_beside(url: str, market: Market) -> bool:
    """Whether a frame of the portal's page, or a window that it opens, asks for a person.

    At the shop and its sub-domains, or at the portal: what others show there, as an advertisement,
    is not the portal's word.
    """
    if sign_of_url(url) is not Sign.HUMAN_CHECK:
        return False
    try:
        host, port = host_and_port(url)
    except ValueError:  # a port that is none
        return False
    return any(covers(own, host, port) for own in (market.portal_url, market.shop_url))


def sign_of_json(answer: dict[str, Any]) -> Sign | None:
    """What a JSON answer says of the session, if anything: GraphQL's answers in one of their
    errors, or in the place of what they were asked for."""
    data = to_dict(answer.get("data"))
    said = [*answer.values(), data.get("error")]  # what else is in there may be any number
    if not _gives(data):
        said += _codes(answer.get("errors"))
    risky = any(_is_risk_control(value) for value in said)
    logged_out = answer.get("is_login") is False
    if risky:
        logged_out = logged_out or any(answer.get(key) is False for key in _IS_LOGIN_KEYS)
        return Sign.LOST if logged_out else Sign.HUMAN_CHECK
    return Sign.LOST if logged_out else None


def read_json(response: PageResponse) -> dict[str, Any]:
    """The JSON object that an in-session call of the portal answered with.

    `response` is the last one, after redirects. Raises `SessionLost`, `HumanCheck` or `PortalDown`
    for anything else, as far as can be told from what came instead.
    """
    if sign := sign_of_url(response.url):
        raise sign.error()
    answer = json_object(response.body)
    if answer is not None and (sign := sign_of_json(answer)):
        raise sign.error()
    if response.status in NO_PERMISSION:
        raise SessionLost
    if response.status != 200:
        raise PortalDown(f"it answered with HTTP {response.status}")
    if answer is None and _is_page(response):
        raise SessionLost  # the login page, served in the answer's place
    if answer is None:
        raise PortalDown("its answer is not JSON")
    return answer


def _is_page(response: PageResponse) -> bool:
    return "html" in response.mime_type.lower() or response.body.lstrip().startswith("<")


def _below(path: str, roots: tuple[str, ...]) -> bool:
    return any(path == root or path.startswith(f"{root}/") for root in roots)


def _gives(data: dict[str, Any]) -> bool:
    """Whether there is anything in it: a call that was refused may give `[null]`."""
    return any(
        any(item is not None for item in each) if isinstance(each, list) else each is not None
        for each in data.values()
    )


def _codes(errors: object) -> list[object]:
    """The codes of GraphQL's errors (`extensions.code`)."""
    found = errors if isinstance(errors, list) else []
    return [to_dict(to_dict(error).get("extensions")).get("code") for error in found]


def _is_risk_control(value: object) -> bool:
    return value in (RISK_CONTROL, str(RISK_CONTROL))
