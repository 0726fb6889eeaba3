"""Answers to a conversion, held against what was asked: is each link the asker's own?

Who earns by a link, for which sub-ids and for what, is in the link itself, in the words of the
portal that made it; so a link in the wrong hands shows, whatever way it came there.
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
UNKNOWN = -1
MAY_FAIL = (UNKNOWN, 40300)


@dataclass(frozen=True)
class Link:
    """One that is asked for: as it is sent, and the product behind it. 0: there is none."""

    text: str
    item: int


class WrongAnswer(Exception):  # noqa: N818 - says what it is
    """Something in it is not the asker's, or not what was promised."""


@dataclass(frozen=True)
class Read:
    """What a good answer says."""

    made: tuple[int, ...]
    """The items."""
    failed: int
    account: str
    """Who earns; nobody when nothing was made."""


def read(
    links: list[Link],
    sub_ids: tuple[str, ...],
    body: Mapping[str, Any],
    portal: SandboxState,
    codes: Collection[int] = MAY_FAIL,
) -> Read:
    """The answer. Raises `WrongAnswer`. `codes` are those that a product may fail with."""
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
    return Read(tuple(made), failed, earns.pop() if earns else "")


def _check_failure(link: Link, entry: Mapping[str, Any], codes: Collection[int]) -> None:
    if set(entry) != {"error", "failCode"}:
        raise WrongAnswer(f"an entry of no known shape: {entry}")
    code = entry["failCode"]
    # A short link that could not be followed, or was not since the account is paused.
    is_unresolved = link.text.startswith(ORIGINS.short) and code in (UNKNOWN, *codes)
    if link.item == 0 and code != INVALID and not is_unresolved:
        raise WrongAnswer(f"{link.text} is no product, and failed with {code}")
    if link.item != 0 and code not in codes:
        raise WrongAnswer(f"{link.text} is a product, and failed with {code}")


def _check_success(
    link: Link, sub_ids: tuple[str, ...], entry: Mapping[str, Any], portal: SandboxState
) -> str:
    """Returns the account that earns."""
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
