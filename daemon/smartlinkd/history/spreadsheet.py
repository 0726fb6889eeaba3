"""The history as CSV (RFC 4180) that a spreadsheet opens as text. Pure."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Sequence
from typing import Final

from smartlinkd.conversion.schemas import MAX_SUB_IDS
from smartlinkd.history.model import Entry
from smartlinkd.wire import timestamp

BYTE_ORDER_MARK: Final = "\ufeff"
_PRODUCT: Final = (
    "name", "shopName", "price", "commission", "commissionRate", "sellerCommission",
    "platformCommission", "cap", "isXtra", "rating", "sales", "productLink", "image",
)  # fmt: skip
COLUMNS: Final = (
    "at", "link", "shortLink", "longLink",
    *(f"subId{number}" for number in range(1, MAX_SUB_IDS + 1)),
    "client", *_PRODUCT,
)  # fmt: skip
_BEGINS_CELL: Final = ";\t\r\n"
"""Where the list separator is a semicolon, as in Vietnam, a spreadsheet may begin a cell there."""
# What is before a sign that begins a formula, also one of the full width.
_BEFORE_SIGN: Final = re.compile(r"""(?<![;\s"'])[;\s"']*+(?=[=+\-@\uff1d\uff0b\uff0d\uff20])""")


def head() -> str:
    """Return the first line, with the byte order mark before it."""
    return BYTE_ORDER_MARK + _lines([COLUMNS])


def lines(entries: Sequence[Entry]) -> str:
    """Return a line for each entry."""
    return _lines([_row(entry) for entry in entries])


def _row(entry: Entry) -> list[str]:
    product = json.loads(entry.product) if entry.product is not None else {}
    sub_ids = [*entry.sub_ids, *[""] * (MAX_SUB_IDS - len(entry.sub_ids))]
    links = (entry.link, entry.short_link, entry.long_link)
    of_product = (_text(product.get(name)) for name in _PRODUCT)
    return [
        timestamp(entry.at),
        *map(without_formula, (*links, *sub_ids, entry.client, *of_product)),
    ]


def _text(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return "" if value is None else str(value)


def without_formula(text: str) -> str:
    """Return `text` with an apostrophe wherever a spreadsheet would begin a formula."""
    safe = _BEFORE_SIGN.sub(_with_apostrophe, text)
    return f"'{safe}" if safe[:1] in ("\t", "\r") else safe


def _with_apostrophe(found: re.Match[str]) -> str:
    """Return what is before the sign, with an apostrophe where it begins a cell."""
    before = found[0]
    begin = max(map(before.rfind, _BEGINS_CELL)) + 1
    if begin == 0 and found.start() > 0:
        return before
    return f"{before[:begin]}'{before[begin:]}"


def _lines(rows: Sequence[Sequence[str]]) -> str:
    text = io.StringIO(newline="")
    csv.writer(text, lineterminator="\r\n").writerows(rows)
    return text.getvalue()
