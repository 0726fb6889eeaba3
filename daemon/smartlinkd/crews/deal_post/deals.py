"""What came of the links: deals to write about, in order of what they earn, and failures.

Pure rules over the entries that `convert_links` gives.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

_REASONS = {
    10: "it is no product or short link of the marketplace, or it has expired",
    40300: "the affiliate cookie has expired or has no permission; sync a new one",
}
_UNKNOWN = "the marketplace made no link of it and did not say why; try again later"

SHOWN = 200  # characters of a link where people read it


@dataclass(frozen=True)
class Deal:
    """One affiliate link, the links that were turned into it, and its product's data.

    `product` has the fields of the conversion API, and is empty when nothing is known.
    """

    short_link: str
    links: tuple[str, ...]
    product: Mapping[str, Any]

    @property
    def title(self) -> str:
        """What to call it: the product's name on one line, or its link."""
        return " ".join((self.product.get("name") or "").split()) or self.short_link

    @property
    def earns(self) -> str:
        """Its commission in words."""
        commission = self.product.get("commission")
        if commission is None:
            return "an unknown commission"
        rate = self.product.get("commissionRate")
        return f"{commission:,} a sale" + (f" ({rate})" if rate else "")

    def as_json(self) -> dict[str, Any]:
        """For a program."""
        return {
            "shortLink": self.short_link,
            "links": list(self.links),
            "product": dict(self.product) or None,
        }


@dataclass(frozen=True)
class Failure:
    """A link that was not converted."""

    link: str
    fail_code: int

    @property
    def reason(self) -> str:
        """Why, in words."""
        return _REASONS.get(self.fail_code, _UNKNOWN)

    def __str__(self) -> str:
        return f"{shown(self.link)}: {self.reason}"

    def as_json(self) -> dict[str, Any]:
        """For a program."""
        return {"link": self.link, "failCode": self.fail_code, "reason": self.reason}


def sort_out(mapping: Mapping[str, Mapping[str, Any]]) -> tuple[list[Deal], list[Failure]]:
    """The entries as deals and failures, in their order. Links that lead to the same affiliate
    link are one deal: nobody wants to read of a product twice.
    """
    deals: dict[str, Deal] = {}
    failures = []
    for link, entry in mapping.items():
        if entry.get("error"):
            failures.append(Failure(link, entry["failCode"]))
            continue
        short = entry["shortLink"]
        before = deals.get(short, Deal(short, (), {}))
        product = before.product or entry.get("product") or {}
        deals[short] = Deal(short, (*before.links, link), product)
    return list(deals.values()), failures


def rank(deals: Sequence[Deal]) -> list[Deal]:
    """The highest commission first, among equals what has sold more; unknown counts as least.

    What is still equal keeps its order.
    """

    def worth(deal: Deal) -> tuple[int, int]:
        known = (deal.product.get("commission"), deal.product.get("sales"))
        commission, sales = (-1 if number is None else number for number in known)
        return commission, sales

    return sorted(deals, key=worth, reverse=True)


def shown(link: str) -> str:
    """A link, fit for a line that people read."""
    return link if len(link) <= SHOWN else link[:SHOWN] + "…"
