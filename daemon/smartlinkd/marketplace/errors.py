"""What can be wrong with the portal, or with an account on it, in the words the owner reads.

All are `UpstreamFailed`, so a request that meets one before anything was converted is a 502. They
differ in what the daemon does next, which is why they are types and not texts.
"""

from __future__ import annotations

from smartlinkd.errors import UpstreamFailed


class MarketplaceFailed(UpstreamFailed):
    """The marketplace did not do its part."""


class SessionLost(MarketplaceFailed):
    """The cookie is no session any more. What was not yet converted is 40300."""

    def __init__(self) -> None:
        super().__init__(
            "the affiliate portal wants a login: the cookie has expired or has no permission; log "
            "in to the portal in an ordinary browser and sync the new cookie"
        )


class HumanCheck(MarketplaceFailed):
    """The portal wants a person. Nothing is retried, and the account pauses."""

    def __init__(self) -> None:
        super().__init__(
            "the affiliate portal asks for a human check (captcha or risk control), which this "
            "service never answers: open the portal in an ordinary browser and answer it there, "
            "then sync the new cookie or, when it is still the same, run `smartlinkd account clear`"
        )


class AccountFrozen(MarketplaceFailed):
    """The marketplace lets this account in, but not make links: the portal's form is disabled."""

    def __init__(self) -> None:
        super().__init__(
            "the marketplace does not let this account make links: it may be frozen; open the "
            "portal's custom link page in an ordinary browser and see what it says"
        )


class PortalChanged(MarketplaceFailed):
    """The portal's page or answer is not what this adapter was written for."""

    def __init__(self, what: str) -> None:
        super().__init__(
            f"the affiliate portal's page has changed: {what}; look for a newer version of this "
            "program"
        )


class PortalDown(MarketplaceFailed):
    """The portal answered with a fault of its own, or with nothing that can be read; or whoever is
    asked in its place did so."""

    def __init__(self, what: str, *, who: str = "the affiliate portal") -> None:
        super().__init__(f"{who} failed: {what}; try again later")


class PortalSilent(MarketplaceFailed):
    """No answer in time. Whether the work was done is not known."""

    def __init__(self, what: str) -> None:
        super().__init__(f"the marketplace did not answer: {what}; try again later")


class PortalError(MarketplaceFailed):
    """GraphQL's own error for a whole call: the links of that call are -1, the account is fine.

    `detail` is the portal's message, shortened, and `code` its number where it gave one: both are
    for the log.
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
    """The page that product data is read from does not come. It costs no link."""

    def __init__(self, what: str) -> None:
        super().__init__(f"the marketplace gives no product data: {what}")


class NotThere(MarketplaceFailed):
    """There is no such product in the source that was asked."""

    def __init__(self) -> None:
        super().__init__("the marketplace has no product data for this item")


class OpenApiRefused(MarketplaceFailed):
    """The official API does not take these credentials."""

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
