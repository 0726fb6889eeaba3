"""Example entries for the demo's history, of the last ten days.

Each is a product of the sandbox with the link that its portal makes, so the short links work.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Final

from smartlinkd.conversion.schemas import SuccessEntry
from smartlinkd.history.actor import FILE
from smartlinkd.history.database import HistoryDatabase
from smartlinkd.history.model import HistoryLimits, Record, milliseconds
from smartlinkd.marketplace.products import ProductData, Rates
from smartlinkd.sandbox.batch import SUB_IDS, long_link, short_code
from smartlinkd.sandbox.products import (
    FULL_RATE,
    SandboxProduct,
    image_url,
    product_link,
    product_of,
)
from smartlinkd.sandbox.session import DEFAULT_ACCOUNT
from smartlinkd.sandbox.state import SandboxState

LINKS_OF_DAYS: Final = (3, 5, 2, 0, 6, 4, 7, 1, 5, 8)
"""Links of each day, from the oldest to yesterday."""
FIRST_ITEM: Final = 30_000_000_001
CLIENTS: Final = (("owner", "facebook"), ("telegram bot", "telegram"), ("crew:deal-post", "post"))
"""Clients and their sub-ids."""


def fill(state: Path, sandbox: SandboxState, now: datetime) -> bool:
    """Write the entries into the history in the state directory `state`. Blocks.

    Return False if they could not be written.
    """
    database = HistoryDatabase(state / FILE, HistoryLimits(pending=sum(LINKS_OF_DAYS)))
    for record in _records(sandbox, now):
        database.add(record)
    try:
        return database.write_pending()
    finally:
        database.close()


def _records(sandbox: SandboxState, now: datetime) -> Iterator[Record]:
    item_id = FIRST_ITEM
    for days_ago, links in zip(range(len(LINKS_OF_DAYS), 0, -1), LINKS_OF_DAYS, strict=True):
        for number in range(links):
            at = now - timedelta(days=days_ago) + timedelta(minutes=number)
            client, sub_id = CLIENTS[item_id % len(CLIENTS)]
            product = product_of(item_id)
            link = product_link(product, sandbox.origins.shop)
            made = _made(product, link, sub_id, sandbox)
            yield Record(milliseconds(at), client, (sub_id,), link, made)
            item_id += 1


def _made(product: SandboxProduct, link: str, sub_id: str, sandbox: SandboxState) -> SuccessEntry:
    places = [sub_id, *[""] * (SUB_IDS - 1)]
    origins = sandbox.origins
    long = long_link(product.shop_id, product.item_id, DEFAULT_ACCOUNT, places, origins)
    code = short_code(long)
    sandbox.keep_short_link(code, long)
    return SuccessEntry(
        short_link=f"{origins.short}/{code}", long_link=long, product=_data(product, link)
    )


def _data(product: SandboxProduct, link: str) -> ProductData:
    rates = Rates(
        platform=Decimal(product.platform_rate) / FULL_RATE,
        seller=Decimal(product.seller_rate or 0) / FULL_RATE,
    )
    return ProductData(
        name=product.name,
        price=product.price,
        image=image_url(product),
        shop_name=product.shop_name,
        rating=None if product.rating is None else f"{product.rating:.1f}",
        sales=product.sold,
        commission=product.commission,
        commission_rate=rates.text,
        seller_commission=product.seller_commission,
        platform_commission=product.platform_commission,
        is_xtra=rates.is_xtra,
        cap=product.cap,
        product_link=link,
    )
