"""What the command `smartlinkd sandbox` tells: addresses, configuration, cookie, magic numbers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from smartlinkd.sandbox.faults import FAULTS
from smartlinkd.sandbox.open_api import APP_ID, LIMITED_APP_ID, REFUSED_APP_ID, SECRET
from smartlinkd.sandbox.products import PRODUCTS
from smartlinkd.sandbox.running import Sandbox
from smartlinkd.sandbox.session import cookie_header
from smartlinkd.sandbox.shortlinks import CODES


def print_out(sandbox: Sandbox) -> str:
    """The whole text, for a terminal."""
    return "\n".join(
        (
            *_section("The sandbox is running", _addresses(sandbox)),
            *_section("Configuration for the daemon", _configuration(sandbox)),
            *_section("A cookie that is signed in", [cookie_header()]),
            *_section("Products (any other item id is one, too)", _products(sandbox)),
            *_section("Short links", _short_links(sandbox)),
            *_section(
                "Faults, by magic item, magic account (SPC_U), or switched on with\n"
                f"curl {sandbox.portal_url}/_sandbox/faults "
                """-d '{"fault": "NAME", "times": 1}'""",
                _table((f.name, str(f.item or ""), f.account or "", f.shows) for f in FAULTS),
            ),
        )
    )


def _section(title: str, lines: Iterable[str]) -> Iterator[str]:
    yield title
    yield from (f"  {line}" for line in lines)
    yield ""


def _addresses(sandbox: Sandbox) -> Iterator[str]:
    yield f"portal       {sandbox.portal_url}/   (a guide for people; log at /_sandbox/log)"
    yield f"shop         {sandbox.shop_url}/"
    yield f"short links  {sandbox.short_url}/"


def _configuration(sandbox: Sandbox) -> Iterator[str]:
    yield "[marketplace]"
    yield f'portal_url = "{sandbox.portal_url}"'
    yield f'shop_url = "{sandbox.shop_url}"'
    yield f'short_urls = ["{sandbox.short_url}"]'
    yield ""
    yield '# with links.source or products.source = "open_api":'
    yield "[open_api]"
    yield f'app_id = "{APP_ID}"     # {LIMITED_APP_ID}: rate limit, {REFUSED_APP_ID}: no access'
    yield f'secret = "{SECRET}"'
    yield f'url = "{sandbox.open_api_url}"'
    yield ""
    yield '# with products.source = "third_party":'
    yield "[third_party]"
    yield f'url = "{sandbox.estimate_url}"'
    yield 'fields = { price = "price" }   # the others have our own names'


def _products(sandbox: Sandbox) -> list[str]:
    return _table((f"{sandbox.shop_url}/product/{p.shop_id}/{p.item_id}", p.why) for p in PRODUCTS)


def _short_links(sandbox: Sandbox) -> list[str]:
    rows = [(f"{sandbox.short_url}/{row.code}", row.shows) for row in CODES]
    return _table([*rows, (f"{sandbox.short_url}/p<shop>i<item>", "one 302 to that product")])


def _table(rows: Iterable[Sequence[str]]) -> list[str]:
    rows = list(rows)
    widths = [max(len(row[n]) for row in rows) for n in range(len(rows[0]))]
    return [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    ]
