"""The commission of one product: an estimate in whole units of the market's currency.

    platform part = min(price * platform rate, cap)
    seller part   = price * seller rate              (the extra commission, never capped)
    commission    = platform part + seller part

Each part is rounded half-up by itself and the whole is their sum, so that the three numbers a
client is shown always add up. Integers and decimals only.
"""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal

from smartlinkd.marketplace.values import as_text, half_up


@dataclass(frozen=True, slots=True)
class Rates:
    """Shares of the price: 0.045 is 4.5 %."""

    platform: Decimal
    seller: Decimal

    @property
    def text(self) -> str:
        """Both together as a percentage, two decimals at most: "18%", "17.5%"."""
        return f"{as_text((self.platform + self.seller) * 100, places=2)}%"

    @property
    def is_xtra(self) -> bool:
        """Whether the seller pays something on top."""
        return self.seller > 0


@dataclass(frozen=True, slots=True)
class Commission:
    """Whole units of the currency."""

    platform: int
    seller: int

    @property
    def total(self) -> int:
        return self.platform + self.seller


def commission(price: Decimal, rates: Rates, cap: int) -> Commission:
    """What one sale at `price` earns; `cap` (whole units) bounds the platform's part alone."""
    return Commission(
        platform=half_up(min(price * rates.platform, Decimal(cap))),
        seller=half_up(price * rates.seller),
    )
