"""Check that each link in a conversion's answer belongs to the client that asked for it.

The portal writes the account, the sub-ids and the product into each link that it makes.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qs, urlsplit

from smartlinkd.sandbox.batch import Origins, long_link, short_code
from smartlinkd.sandbox.products import product_link, product_of
from smartlinkd.sandbox.session import affiliate_id

INVALID = 10
UNRESOLVED = -1
ALLOWED_FAIL_CODES = (UNRESOLVED, 40300)


@dataclass(frozen=True)
class Link:
    """A link as a client sends it, and its product's item. `item` is 0 for a link to no product."""

    text: str
    item: int


class WrongAnswer(Exception):  # noqa: N818 - the name says it
    """A wrong answer or a missing one. The text describes it."""


@dataclass(frozen=True)
class Converted:
    """The links of a correct answer."""

    made: tuple[int, ...]
    """Items of the products that were converted."""
    without_data: int
    """The number of these without product data."""
    failed: int
    account: str
    """The account that earns; "" when nothing was converted."""


def check_answer(
    links: list[Link],
    sub_ids: tuple[str, ...],
    body: Mapping[str, Any],
    origins: Origins,
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
    made, earns, without_data, failed = [], set(), 0, 0
    for link in dict.fromkeys(links):
        entry = mapping[link.text]
        if entry.get("error") is True:
            _check_failure(link, entry, origins, codes)
            failed += link.item != 0
            continue
        earns.add(_check_success(link, sub_ids, entry, origins))
        made.append(link.item)
        without_data += entry["product"] is None
    if len(earns) > 1:
        raise WrongAnswer(f"links of several accounts in one answer: {earns}")
    return Converted(tuple(made), without_data, failed, earns.pop() if earns else "")


def _check_failure(
    link: Link, entry: Mapping[str, Any], origins: Origins, codes: Collection[int]
) -> None:
    if set(entry) != {"error", "failCode"}:
        raise WrongAnswer(f"an entry of no known shape: {entry}")
    code = entry["failCode"]
    # A short link cannot be followed while its host fails or the account is paused.
    is_unresolved = link.text.startswith(origins.short) and code in (UNRESOLVED, *codes)
    if link.item == 0 and code != INVALID and not is_unresolved:
        raise WrongAnswer(f"{link.text} is no product, and failed with {code}")
    if link.item != 0 and code not in codes:
        raise WrongAnswer(f"{link.text} is a product, and failed with {code}")


def _check_success(
    link: Link, sub_ids: tuple[str, ...], entry: Mapping[str, Any], origins: Origins
) -> str:
    """Return the account that earns."""
    if link.item == 0:
        raise WrongAnswer(f"{link.text} is no product, and was converted: {entry}")
    if entry.get("failCode") != 0 or set(entry) != {"shortLink", "longLink", "failCode", "product"}:
        raise WrongAnswer(f"an entry of no known shape: {entry}")
    try:
        (source,) = parse_qs(urlsplit(entry["longLink"]).query)["utm_source"]
        account = str(int(source.removeprefix("an_")) - affiliate_id("0"))
    except (KeyError, ValueError):
        raise WrongAnswer(f"a long link that names no account: {entry}") from None
    product = product_of(link.item)
    places = (*sub_ids, *[""] * (5 - len(sub_ids)))
    long = long_link(product.shop_id, product.item_id, account, places, origins)
    if (entry["longLink"], entry["shortLink"]) != (long, f"{origins.short}/{short_code(long)}"):
        raise WrongAnswer(f"{link.text} with {sub_ids} was answered by others' links: {entry}")
    data, place = entry["product"], product_link(product, origins.shop)
    sold = (product.name, product.price, product.sold, place)
    if data is not None and sold != tuple(
        data[name] for name in ("name", "price", "sales", "productLink")
    ):
        raise WrongAnswer(f"{link.text} was answered with the data of something else: {data}")
    return account
