"""Signs of a lost session or a human check, in whatever the portal shows. Pure.

The two must never be mixed up: a new cookie mends a lost session, while every further call on an
account with a human check makes things worse for it. So a human check wins wherever both are read.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from smartlinkd.marketplace.errors import HumanCheck, PortalDown, SessionLost
from smartlinkd.marketplace.markets import Market
from smartlinkd.marketplace.urls import covers, host_and_port, parts_of
from smartlinkd.marketplace.values import json_object, to_dict

if TYPE_CHECKING:
    from smartlinkd.browser.capture import CapturedResponse

# The one code of the shop's risk control, also with HTTP 200. Its meaning depends on whether it
# takes the caller for logged in.
RISK_CONTROL = 90309999
# Some answers have numbers for names; "2" stands for is_login.
_IS_LOGIN_KEYS = ("is_login", "2")

_HUMAN_CHECK_PATHS = ("/verify/captcha", "/verify/traffic")
_LOGIN_PATHS = ("/buyer/login", "/login")
SIGN_PATHS = (*_HUMAN_CHECK_PATHS, *_LOGIN_PATHS)
"""A page at one of these, or below it, is a sign by itself: nothing is called from there."""
_LOGIN_HOST_PREFIX = "accounts."
URL_PARTS_OF_SIGNS = (*SIGN_PATHS, f"//{_LOGIN_HOST_PREFIX}")
"""One of these is in each URL that is a sign. Other URLs may have them, too."""

LOGIN_STATUSES = (401, 403)
"""HTTP statuses, and GraphQL codes, of a lost session."""


Sign = type[SessionLost] | type[HumanCheck]
"""An obstacle between the account and the portal: the error to raise for it."""


def raise_gravest(*signs: Sign | None) -> None:
    """Raise `HumanCheck` if one of `signs` is a check, else `SessionLost` if one is a login."""
    for error in (HumanCheck, SessionLost):
        if error in signs:
            raise error from None


def sign_of_url(url: str) -> Sign | None:
    """Return what it means that a tab or call has ended up at `url`; None for nothing."""
    parts = parts_of(url)
    if _is_below(parts.path, _HUMAN_CHECK_PATHS):
        return HumanCheck
    is_login_host = (parts.hostname or "").startswith(_LOGIN_HOST_PREFIX)
    return SessionLost if is_login_host or _is_below(parts.path, _LOGIN_PATHS) else None


def is_check_in_frame(url: str, market: Market) -> bool:
    """True if `url`, of a frame or pop-up of the portal's page, is a human check.

    It has to be the shop's, one of its sub-domains' or the portal's: other sites, as in an
    advertisement, do not speak for the portal.
    """
    if sign_of_url(url) is not HumanCheck:
        return False
    where = host_and_port(url)
    return any(covers(own, *where) for own in (market.portal_url, market.shop_url))


def sign_of_json(answer: dict[str, Any]) -> Sign | None:
    """Return what a JSON answer says of the session; None for nothing.

    GraphQL's answers say it in one of their errors, or in the place of their data.
    """
    data = to_dict(answer.get("data"))
    values = [*answer.values(), data.get("error")]  # other fields may have any number in them
    if not _has_content(data):
        values += _error_codes(answer.get("errors"))
    is_risk_control = any(value in (RISK_CONTROL, str(RISK_CONTROL)) for value in values)
    keys = _IS_LOGIN_KEYS if is_risk_control else _IS_LOGIN_KEYS[:1]
    if any(answer.get(key) is False for key in keys):
        return SessionLost
    return HumanCheck if is_risk_control else None


def read_json(response: CapturedResponse) -> dict[str, Any]:
    """Return the JSON object that a call of the portal was answered with.

    Args:
        response: the last one, after redirects.

    Raises:
        HumanCheck: the answer is a human check.
        SessionLost: it is a login, a page in the answer's place, or HTTP 401 or 403.
        PortalDown: it is another HTTP error, or no JSON.
    """
    raise_gravest(sign_of_url(response.url))
    answer = json_object(response.body)
    raise_gravest(sign_of_json(answer or {}))
    if response.status in LOGIN_STATUSES:
        raise SessionLost
    if response.status != 200:
        raise PortalDown(f"it answered with HTTP {response.status}")
    if answer is None and _is_page(response):
        raise SessionLost  # the login page, served in the answer's place
    if answer is None:
        raise PortalDown("its answer is not JSON")
    return answer


def _is_page(response: CapturedResponse) -> bool:
    return "html" in response.mime_type.lower() or response.body.lstrip().startswith("<")


def _is_below(path: str, roots: tuple[str, ...]) -> bool:
    return any(path == root or path.startswith(f"{root}/") for root in roots)


def _has_content(data: dict[str, Any]) -> bool:
    """True if there is anything in `data`: a refused call may have `[null]`."""
    return any(
        any(item is not None for item in each) if isinstance(each, list) else each is not None
        for each in data.values()
    )


def _error_codes(errors: object) -> list[object]:
    """Return the codes of GraphQL's errors (`extensions.code`)."""
    found = errors if isinstance(errors, list) else []
    return [to_dict(to_dict(error).get("extensions")).get("code") for error in found]
