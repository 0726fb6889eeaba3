"""`smartlinkd history`: what was converted, newest first, as a table, CSV or JSON."""

from __future__ import annotations

import argparse
import csv
import json
import sys
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, islice

from rich.console import Console
from rich.table import Table
from rich.text import Text

from smartlinkd.api.schemas import HistoryEntry
from smartlinkd.commands.codes import GOOD
from smartlinkd.commands.server import require_server
from smartlinkd.history.spreadsheet import without_formula
from smartlinkd.marketplace.products import ProductData
from smartlinkd.untrusted import blank_unprintable
from smartlinkd.wire import timestamp

COLUMNS = ("at", "link", "shortLink", "longLink", "subIds", "client", "productName", "price")


def main(chosen: argparse.Namespace) -> int:
    """Print converted links. Raises `ClientError`."""
    with require_server(chosen).open() as daemon:
        found = daemon.history(
            q=chosen.q, sub_id=chosen.sub_id, since=chosen.since, until=chosen.until
        )
        # The first page is here before anything is printed.
        first = list(islice(found, 1))
        entries = islice(chain(first, found), chosen.limit or None)
        format_ = "json" if chosen.json else chosen.format
        match format_ or ("table" if sys.stdout.isatty() else "csv"):
            case "json":
                rows = [entry.model_dump(mode="json") for entry in entries]
                print(json.dumps(rows, indent=2, ensure_ascii=False))
            case "csv":
                writer = csv.writer(sys.stdout, lineterminator="\n")
                writer.writerow(COLUMNS)
                writer.writerows(_cells(entries))
            case _:
                Console(highlight=False).print(_table(list(entries)))
    return GOOD


def _cells(entries: Iterable[HistoryEntry]) -> Iterator[list[str]]:
    for entry in entries:
        product = entry.product or ProductData()
        links = (entry.link, entry.short_link, entry.long_link)
        texts = (*links, " ".join(entry.sub_ids), entry.client, product.name or "")
        price = "" if product.price is None else str(product.price)
        yield [timestamp(entry.at), *map(without_formula, texts), price]


def _table(entries: Sequence[HistoryEntry]) -> Table:
    widest = max((len(entry.short_link) for entry in entries), default=0)
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("when", no_wrap=True, min_width=16)
    table.add_column("short link", no_wrap=True, min_width=widest)
    table.add_column("product or link", overflow="ellipsis", no_wrap=True, ratio=1)
    table.add_column("sub-ids", overflow="ellipsis", no_wrap=True)
    table.add_column("by", overflow="ellipsis", no_wrap=True)
    for entry in entries:
        name = entry.product.name if entry.product is not None else None
        table.add_row(
            f"{entry.at.astimezone():%Y-%m-%d %H:%M}",
            Text(entry.short_link, style="green"),
            Text(blank_unprintable(name or entry.link)),
            Text(" ".join(entry.sub_ids)),
            Text(blank_unprintable(entry.client)),
        )
    return table
