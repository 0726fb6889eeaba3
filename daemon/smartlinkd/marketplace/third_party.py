"""An estimate service of somebody else's, for owners who have chosen one.

It learns which products the owner promotes, so it is used only where a configuration names it. It
gets item and shop numbers, but no cookie and no account. Its answer is taken field by field, as an
estimate, and never corrected.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import quote

from smartlinkd.marketplace import links
from smartlinkd.marketplace.errors import PortalDown, PortalSilent, ProductsRefused
from smartlinkd.marketplace.markets import Market
from smartlinkd.marketplace.products import FIELD_NAMES, PLACEHOLDER, ProductData, link_of
from smartlinkd.marketplace.urls import is_web_address
from smartlinkd.marketplace.values import (
    as_text,
    half_up,
    json_object,
    not_negative,
    to_decimal,
    to_dict,
    to_percent,
    to_text,
)
from smartlinkd.net.client import HttpClient, NoAnswer, Reply

DEADLINE = 8.0  # seconds; a link waits for no product data much longer
MAX_BODY = 256 * 1024  # bytes; thirteen fields need a thousand

_REFUSED = (401, 403, 429)


class ThirdParty:
    """A service that answers GET with one JSON object.

    Args:
        url_template: may have {item_id}, {shop_id} and {url} (the canonical link, percent-encoded).
        fields: the path in the answer of each of our fields, as "data.price". The default is our
            own name, at the top.
    """

    def __init__(
        self,
        http: HttpClient,
        market: Market,
        url_template: str,
        fields: Mapping[str, str],
    ) -> None:
        self._http = http
        self._market = market
        self._url_template = url_template
        self._paths = {name: fields.get(name, name) for name in FIELD_NAMES}

    async def product(self, product: links.Product) -> ProductData | None:
        """Return the service's estimate for one product, or None. A redirect is not followed.

        Raises:
            ProductsRefused: it does not accept the request.
            PortalDown: its answer cannot be read.
            PortalSilent, NoThread: there is no answer in time, or no thread for the call.
        """
        try:
            reply = await self._http.request(
                "GET", self._url(product), deadline=DEADLINE, max_body=MAX_BODY
            )
        except NoAnswer as silence:
            raise PortalSilent(f"the estimate service ({silence})") from None
        return self._read(reply, product)

    def _url(self, product: links.Product) -> str:
        values = {
            "item_id": str(product.item_id),
            "shop_id": str(product.shop_id),
            "url": quote(product.url(self._market), safe=""),
        }
        return PLACEHOLDER.sub(lambda match: values[match[1]], self._url_template)

    def _read(self, reply: Reply, product: links.Product) -> ProductData | None:
        if reply.status in _REFUSED:
            raise ProductsRefused(f"the estimate service answered with HTTP {reply.status}")
        if reply.status in (404, 410):
            return None
        answer = json_object(reply.text)
        if reply.status != 200 or answer is None:
            what = f"it gave no answer to read (HTTP {reply.status})"
            raise PortalDown(what, who="the estimate service")
        found = {name: _at(answer, path) for name, path in self._paths.items()}
        read = {name: reader(found[name]) for name, reader in _READERS.items()}
        link = link_of(found["productLink"], product.shop_id, product.item_id, self._market)
        if all(value is None for value in read.values()):
            return None  # the answer has none of the fields
        return ProductData.model_validate(
            {**read, "productLink": link.url(self._market) if link else None}
        )


def _at(answer: object, path: str) -> object:
    for key in path.split("."):
        answer = to_dict(answer).get(key)
    return answer


def _whole(value: object) -> int | None:
    number = not_negative(to_decimal(value))
    return None if number is None else half_up(number)


def _rating(value: object) -> str | None:
    number = not_negative(to_decimal(value))
    return None if number is None else as_text(number, places=1)


def _percent(value: object) -> str | None:
    # "18%", "17,5 %" or the number alone
    number = to_percent(value)
    number = not_negative(to_decimal(value) if number is None else number)
    return None if number is None else f"{as_text(number, places=2)}%"


def _web_address(value: object) -> str | None:
    text = to_text(value)
    return text if text and is_web_address(text) else None


def _truth(value: object) -> bool | None:
    return value if isinstance(value, bool) else None


_READERS: dict[str, Callable[[object], Any]] = {
    "name": to_text,
    "price": _whole,
    "image": _web_address,
    "shopName": to_text,
    "rating": _rating,
    "sales": _whole,
    "commission": _whole,
    "commissionRate": _percent,
    "sellerCommission": _whole,
    "platformCommission": _whole,
    "isXtra": _truth,
    "cap": _whole,
}
