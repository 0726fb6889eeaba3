"""A sandbox that runs, as its callers see it: where each of its services is."""

from __future__ import annotations

from dataclasses import dataclass

from smartlinkd.sandbox.open_api import PATH as OPEN_API_PATH
from smartlinkd.sandbox.state import State


@dataclass(frozen=True)
class Sandbox:
    """A running sandbox: where it is, and all that it knows (`state`)."""

    state: State

    @property
    def portal_url(self) -> str:
        """Origin of the portal."""
        return self.state.origins.portal

    @property
    def shop_url(self) -> str:
        """Origin of the shop."""
        return self.state.origins.shop

    @property
    def short_url(self) -> str:
        """Origin of the short links."""
        return self.state.origins.short

    @property
    def open_api_url(self) -> str:
        """The Open API's one address."""
        return self.portal_url + OPEN_API_PATH

    @property
    def estimate_url(self) -> str:
        """The estimate service, as a template with {shop_id} and {item_id}."""
        return f"{self.portal_url}/estimate?url={self.shop_url}/product/{{shop_id}}/{{item_id}}"
