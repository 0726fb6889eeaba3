"""The errors of the marketplace, and of an account on it, in words for the owner.

All are `UpstreamFailed`: before anything was converted, a request fails with 502.
"""

from __future__ import annotations

from smartlinkd.errors import UpstreamFailed


class MarketplaceFailed(UpstreamFailed):
    """The marketplace did not do its part."""


class SessionLost(MarketplaceFailed):
    """The cookie is no session any more. Links that are not converted yet get 40300."""

    def __init__(self) -> None:
        super().__init__(
            "the affiliate portal wants a login: the cookie has expired or has no permission; log "
            "in to the portal in an ordinary browser and sync the new cookie"
        )


class HumanCheck(MarketplaceFailed):
    """The portal asks for a human check. Nothing is retried, and the account is paused."""

    def __init__(self) -> None:
        super().__init__(
            "the affiliate portal asks for a human check (captcha or risk control), which this "
            "service never answers: open the portal in an ordinary browser and answer it there, "
            "then clear the pause on the page or by `smartlinkd account clear`"
        )


class AccountFrozen(MarketplaceFailed):
    """The account may not make links: the portal's form is disabled, or the Open API says so."""

    def __init__(self) -> None:
        super().__init__(
            "the marketplace does not let this account make links: it may be frozen; open the "
            "portal's custom link page in an ordinary browser and see what it says"
        )


class PortalChanged(MarketplaceFailed):
    """The portal's page or answer is not the one that this adapter was written for."""

    def __init__(self, what: str) -> None:
        super().__init__(
            f"the affiliate portal's page has changed: {what}; look for a newer version of this "
            "program"
        )


class PortalDown(MarketplaceFailed):
    """The portal, or the service in its place (`who`), answered with a fault or unreadably."""

    def __init__(self, what: str, *, who: str = "the affiliate portal") -> None:
        super().__init__(f"{who} failed: {what}; try again later")


class PortalSilent(MarketplaceFailed):
    """No answer in time. Nobody knows if the work was done."""

    def __init__(self, what: str) -> None:
        super().__init__(f"the marketplace did not answer: {what}; try again later")


class PortalError(MarketplaceFailed):
    """GraphQL refused a whole call. Its links get a `failCode`; the account is fine.

    `detail` is the portal's message, shortened, and `code` its number, if any; both are logged.
    """

    def __init__(self, detail: str, code: int | None = None) -> None:
        super().__init__(f"the affiliate portal refused the call: {detail}")
        self.detail = detail
        self.code = code


class ProductsRefused(MarketplaceFailed):
    """Product data is refused. It costs no link; reading pauses."""

    def __init__(self, what: str) -> None:
        super().__init__(f"the marketplace refused product data: {what}")


class ProductsDown(MarketplaceFailed):
    """The page of product data does not come. It costs no link."""

    def __init__(self, what: str) -> None:
        super().__init__(f"the marketplace gives no product data: {what}")


class OpenApiRefused(MarketplaceFailed):
    """The official API does not accept the credentials."""

    def __init__(self, detail: str) -> None:
        super().__init__(
            f"the Affiliate Open API refused the call ({detail}): check the app id and the secret "
            "in the configuration, and that the account has access to the Open API"
        )


class OpenApiBusy(MarketplaceFailed):
    """The official API's hourly allowance is used up."""

    def __init__(self) -> None:
        super().__init__(
            "the Affiliate Open API has had its allowance of calls for this hour (2000); try again "
            "in the next hour"
        )
