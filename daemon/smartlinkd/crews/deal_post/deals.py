"""The inputs of the example crew, and the deals that come of its links: pure rules."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

MAX_LINKS = 15
"""The daemon converts as many in one call."""
MAX_TITLE = 200
"""Characters of the post's headline."""

_REASONS = {
    10: "it is no product or short link of the marketplace, or it has expired",
    40300: "the affiliate cookie has expired or has no permission; sync a new one",
}
_UNKNOWN = "the marketplace made no link of it and did not say why; try again later"

# A link may begin with a scheme, or be a host name and a path. The tool decides which host counts.
_MAYBE_LINK = re.compile(
    r"https?(?::|%3A|%253A)|(?:[\w-]+\.)+[\w-]+(?::[0-9]+)?(?:[/\\]|%2F)", re.IGNORECASE
)
_BETWEEN_LINKS = re.compile(r"\s+|[,;|]+(?=https?:)", re.IGNORECASE)


class NoPost(Exception):  # noqa: N818 - its text is for the client
    """An input has a wrong value, or no link was converted. The text says which, and why."""


@dataclass(frozen=True)
class PostRequest:
    """The inputs. `title` is empty if the writer is to find one; `currency` is ISO 4217."""

    links: tuple[str, ...]
    sub_ids: tuple[str, ...]
    language: str
    title: str
    currency: str


@dataclass(frozen=True)
class Deal:
    """An affiliate link, the links that led to it, and its product's data, which may be {}."""

    short_link: str
    links: tuple[str, ...]
    product: Mapping[str, Any]

    @property
    def name(self) -> str:
        """The product's name on one line; empty if it is not known."""
        return " ".join((self.product.get("name") or "").split())

    @property
    def title(self) -> str:
        """The product's name, or the link."""
        return self.name or self.short_link

    @property
    def earns(self) -> str:
        """Its commission in words."""
        commission, rate = self.product.get("commission"), self.product.get("commissionRate")
        if commission is None:
            return "an unknown commission"
        return f"{commission:,} a sale" + (f" ({rate})" if rate else "")

    def as_json(self) -> dict[str, Any]:
        """Return it for `output_json`."""
        product = dict(self.product) or None
        return {"shortLink": self.short_link, "links": list(self.links), "product": product}


@dataclass(frozen=True)
class FailedLink:
    """A link that was not converted."""

    link: str
    fail_code: int

    @property
    def reason(self) -> str:
        """Its `failCode` in words."""
        return _REASONS.get(self.fail_code, _UNKNOWN)

    def __str__(self) -> str:
        return f"{self.link}: {self.reason}"

    def as_json(self) -> dict[str, Any]:
        """Return it for `output_json`."""
        return {"link": self.link, "failCode": self.fail_code, "reason": self.reason}


def read_inputs(inputs: Mapping[str, Any]) -> PostRequest:
    """Check the inputs. A null one counts as left out. Raises `NoPost`.

    People fill forms with text where programs send lists, so both are read. The tool judges each
    link and the sub-ids.
    """
    language, currency = inputs.get("language") or "vi", inputs.get("currency") or "VND"
    title, sub_ids = inputs.get("title") or "", inputs.get("subIds") or []
    if language not in ("vi", "en"):
        raise NoPost('language: must be "vi" (Vietnamese) or "en" (English)')
    if not isinstance(title, str) or len(title) > MAX_TITLE:
        raise NoPost(f"title: must be a text of at most {MAX_TITLE} characters")
    if not isinstance(currency, str) or not re.fullmatch("[A-Z]{3}", currency):
        raise NoPost("currency: must be three capital letters, such as VND")
    if isinstance(sub_ids, str):
        sub_ids = [part.strip() for part in sub_ids.split(",")] if sub_ids.strip() else []
    if not _is_texts(sub_ids):
        raise NoPost("subIds: give a list of texts, or one text with commas between the sub-ids")
    links = _read_links(inputs.get("links"))
    return PostRequest(links, tuple(sub_ids), language, " ".join(title.split()), currency)


def _read_links(given: object) -> tuple[str, ...]:
    if isinstance(given, str):
        links = [link for line in given.splitlines() for link in _links_in(line)] or given.split()
    elif isinstance(given, list) and _is_texts(given):
        links = [link for text in given for link in _links_in(text) or [text]]
    else:
        links = []
    if not links:
        raise NoPost(
            "links: give product or short links, as a list of texts or as one text with a link "
            "on each line"
        )
    if len(links) > MAX_LINKS:
        raise NoPost(f"links: give at most {MAX_LINKS} links; these are {len(links)}")
    return tuple(links)


def _links_in(text: str) -> list[str]:
    """Return the parts of a text that may be links. A text with one stays whole, for the tool."""
    words = [word for word in _BETWEEN_LINKS.split(text) if _MAYBE_LINK.search(word)]
    return words if len(words) > 1 else [text.strip()] * len(words)


def _is_texts(given: object) -> bool:
    return isinstance(given, list) and all(isinstance(each, str) for each in given)


def sort_out(mapping: Mapping[str, Mapping[str, Any]]) -> tuple[list[Deal], list[FailedLink]]:
    """Return the tool's entries as deals and failures. Links to the same product are one deal."""
    deals: dict[str, Deal] = {}
    failures = []
    for link, entry in mapping.items():
        if entry.get("error"):
            failures.append(FailedLink(link, entry["failCode"]))
            continue
        short = entry["shortLink"]
        before = deals.get(short, Deal(short, (), {}))
        product = before.product or entry.get("product") or {}
        deals[short] = Deal(short, (*before.links, link), product)
    return list(deals.values()), failures


def rank(deals: Sequence[Deal]) -> list[Deal]:
    """Sort by commission, then by number sold, the highest first; an unknown number is the least.

    Equals keep their order.
    """

    def worth(deal: Deal) -> tuple[int, int]:
        known = (deal.product.get("commission"), deal.product.get("sales"))
        commission, sales = (-1 if number is None else number for number in known)
        return commission, sales

    return sorted(deals, key=worth, reverse=True)
