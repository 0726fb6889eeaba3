"""Check that each link in a conversion's answer belongs to the client that asked for it.

The portal writes the account, the sub-ids and the product into each link that it makes.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qs, urlsplit

from smartlinkd.sandbox.products import product_of
from smartlinkd.sandbox.session import affiliate_id
from smartlinkd.sandbox.state import SandboxState
from tests.fakes.network import ORIGINS

INVALID = 10
UNRESOLVED = -1
ALLOWED_FAIL_CODES = (UNRESOLVED, 40300)


@dataclass(frozen=True)
class Link:
    """A link as a client sends it, and its product's item. `item` is 0 for a link to no product."""

    text: str
    item: int


class WrongAnswer(Exception):  # noqa: N818 - the name says it
    """An answer with a malformed entry, or with a link that does not match the request."""


@dataclass(frozen=True)
class Converted:
    """The links of a correct answer."""

    made: tuple[int, ...]
    """Items of the products that were converted."""
    failed: int
    account: str
    """The account that earns; "" when nothing was converted."""


def check_answer(
    links: list[Link],
    sub_ids: tuple[str, ...],
    body: Mapping[str, Any],
    portal: SandboxState,
    codes: Collection[int],
) -> Converted:
    """Return what the answer says. `codes` are the fail codes that a product may have.

    Raises:
        WrongAnswer: An entry does not match its link.
    """
    mapping = body.get("mapping")
    asked = list(dict.fromkeys(link.text for link in links))
    if body.get("ok") is not True or not isinstance(mapping, dict) or list(mapping) != asked:
        raise WrongAnswer(f"not the links that were asked for: {body}")
    made, earns, failed = [], set(), 0
    for link in dict.fromkeys(links):
        entry = mapping[link.text]
        if entry.get("error") is True:
            _check_failure(link, entry, codes)
            failed += link.item != 0
            continue
        earns.add(_check_success(link, sub_ids, entry, portal))
        made.append(link.item)
    if len(earns) > 1:
        raise WrongAnswer(f"links of several accounts in one answer: {earns}")
    return Converted(tuple(made), failed, earns.pop() if earns else "")


def _check_failure(link: Link, entry: Mapping[str, Any], codes: Collection[int]) -> None:
    if set(entry) != {"error", "failCode"}:
        raise WrongAnswer(f"an entry of no known shape: {entry}")
    code = entry["failCode"]
    # A short link cannot be followed while its host fails or the account is paused.
    is_unresolved = link.text.startswith(ORIGINS.short) and code in (UNRESOLVED, *codes)
    if link.item == 0 and code != INVALID and not is_unresolved:
        raise WrongAnswer(f"{link.text} is no product, and failed with {code}")
    if link.item != 0 and code not in codes:
        raise WrongAnswer(f"{link.text} is a product, and failed with {code}")


def _check_success(
    link: Link, sub_ids: tuple[str, ...], entry: Mapping[str, Any], portal: SandboxState
) -> str:
    """Return the account that earns."""
    if link.item == 0:
        raise WrongAnswer(f"{link.text} is no product, and was converted: {entry}")
    if entry.get("failCode") != 0 or set(entry) != {"shortLink", "longLink", "failCode", "product"}:
        raise WrongAnswer(f"an entry of no known shape: {entry}")
    short, long = entry["shortLink"], entry["longLink"]
    if portal.made.get(urlsplit(short).path.lstrip("/")) != long:
        raise WrongAnswer(f"{short} does not lead to {long}")
    parts = urlsplit(long)
    product = product_of(link.item)
    if parts.path != f"/universal-link/product/{product.shop_id}/{product.item_id}":
        raise WrongAnswer(f"{link.text} was answered by a link of something else: {long}")
    query = parse_qs(parts.query, keep_blank_values=True)
    if query["utm_content"] != ["-".join((*sub_ids, *[""] * (5 - len(sub_ids))))]:
        raise WrongAnswer(f"{link.text} with {sub_ids} was answered for others: {long}")
    data = entry["product"]
    if data is not None and (
        data["name"] != product.name
        or data["productLink"] != f"{ORIGINS.shop}/product/{product.shop_id}/{product.item_id}"
    ):
        raise WrongAnswer(f"{link.text} was answered with the data of something else: {data}")
    return _account(query["utm_source"][0])


def _account(source: str) -> str:
    return str(int(source.removeprefix("an_")) - affiliate_id("0"))
