"""The official Affiliate Open API: links and product data without a browser or a cookie.

A call is a GraphQL document in a POST whose exact bytes are signed. The document has its values in
it: published clients disagree on the names of the input types that variables would need, and a
wrong name fails the call. The API's errors come with HTTP 200, in `errors`. A call makes one link,
and 2000 calls an hour are allowed.
"""

from __future__ import annotations

import hashlib
import json
import logging
import re
import time
from collections.abc import Callable, Sequence
from typing import Any

from pydantic import SecretStr

from smartlinkd.marketplace import links
from smartlinkd.marketplace.answers import FailCode, Row, clean_short_link, graphql_error
from smartlinkd.marketplace.errors import (
    AccountFrozen,
    OpenApiBusy,
    OpenApiRefused,
    PortalDown,
    PortalError,
    PortalSilent,
)
from smartlinkd.marketplace.markets import Market
from smartlinkd.marketplace.products import (
    ProductData,
    Rates,
    link_of,
    product_data,
    split_rates,
)
from smartlinkd.marketplace.values import json_object, not_negative, to_decimal, to_dict, to_int
from smartlinkd.net.client import HttpClient, NoAnswer, Reply

logger = logging.getLogger(__name__)

DEADLINE = 15.0  # seconds for making a link
PRODUCT_DEADLINE = 8.0  # seconds; a link waits for no product data much longer
MAX_BODY = 1024 * 1024  # bytes; an answer about one item has a few thousand

_AUTH_FAILED = 10020
_RATE_LIMIT = 10030
# Access denied, wrong affiliate id, blacklist, no access to the Open API.
_NO_ACCESS = (10031, 10032, 10034, 10035)
_FROZEN = 10033
_WRONG_PARAMETERS = 11001

_CODE_IN_MESSAGE = re.compile(r"\[(1[0-9]{4})\]")
_OFFER_FIELDS = (
    "itemId shopId productName productLink imageUrl shopName ratingStar sales price priceMin "
    "priceMax commissionRate sellerCommissionRate shopeeCommissionRate"
)


def signature(app_id: str, timestamp: int, body: str, secret: str) -> str:
    """Return the hex SHA-256 of all four, joined without separators. It is no HMAC."""
    return hashlib.sha256(f"{app_id}{timestamp}{body}{secret}".encode()).hexdigest()


class OpenApi:
    """One owner's access to the API of one market. `wall_clock` returns Unix seconds."""

    def __init__(
        self,
        http: HttpClient,
        market: Market,
        app_id: str,
        secret: SecretStr,
        *,
        wall_clock: Callable[[], float] = time.time,
    ) -> None:
        self._http = http
        self._market = market
        self._app_id = app_id
        self._secret = secret
        self._wall_clock = wall_clock

    async def short_link(self, product: links.Product, sub_ids: Sequence[str]) -> Row:
        """Make an affiliate link for one product. The API has no long link, so both are the same.

        An error about this link alone is a row with a fail code.

        Raises:
            OpenApiRefused: the API does not accept the credentials.
            OpenApiBusy: the calls of this hour are used up.
            AccountFrozen: the account may not make links.
            PortalDown: the answer cannot be read.
            PortalSilent, NoThread: there is no answer in time, or no thread for the call.
        """
        parameters = (
            f"originUrl:{json.dumps(product.url(self._market))},subIds:{json.dumps(list(sub_ids))}"
        )
        try:
            data = await self._call(
                f"mutation{{generateShortLink(input:{{{parameters}}}){{shortLink}}}}",
                deadline=DEADLINE,
            )
        except PortalError as error:
            logger.warning("the Open API made no link for %s: %s", product, error.detail)
            # The sub-ids were checked before, so wrong parameters mean the link.
            is_about_link = error.code == _WRONG_PARAMETERS and "sub" not in error.detail.lower()
            fail_code = FailCode.INVALID_LINK if is_about_link else FailCode.UNKNOWN
            return Row(None, None, fail_code, error.code)
        made = to_dict(data.get("generateShortLink"))
        link = clean_short_link(made.get("shortLink"), self._market)
        if link is None:
            return Row(None, None, FailCode.UNKNOWN)
        return Row(link, link, FailCode.SUCCESS)

    async def product(self, product: links.Product, *, default_cap: int) -> ProductData | None:
        """Return the product data of one product, or None without such an offer.

        The API has no cap. Raises `PortalError`, and as `short_link`.
        """
        query = f"{{productOfferV2(itemId:{product.item_id}){{nodes{{{_OFFER_FIELDS}}}}}}}"
        data = await self._call(query, deadline=PRODUCT_DEADLINE)
        nodes = to_dict(data.get("productOfferV2")).get("nodes")
        for node in map(to_dict, nodes if isinstance(nodes, list) else []):
            if to_int(node.get("itemId")) == product.item_id:
                return self._product_data(node, product, default_cap)
        return None

    def _product_data(self, node: dict[str, Any], product: links.Product, cap: int) -> ProductData:
        # Money is in plain units, and rates are shares ("0.0123" is 1.23 %).
        prices = (to_decimal(node.get(key)) for key in ("price", "priceMin", "priceMax"))
        return product_data(
            self._market,
            name=node.get("productName"),
            price=next((price for price in prices if price is not None and price > 0), None),
            image=node.get("imageUrl"),
            shop_name=node.get("shopName"),
            rating=not_negative(to_decimal(node.get("ratingStar"))),
            sales=not_negative(to_int(node.get("sales"))),
            rates=_rates(node),
            cap=cap,
            link=link_of(node.get("productLink"), product.shop_id, product.item_id, self._market),
        )

    async def _call(self, query: str, *, deadline: float) -> dict[str, Any]:
        body = json.dumps({"query": query}, separators=(",", ":"))
        timestamp = int(self._wall_clock())
        signed = signature(self._app_id, timestamp, body, self._secret.get_secret_value())
        try:
            reply = await self._http.request(
                "POST",
                self._market.open_api_url,
                deadline=deadline,
                max_body=MAX_BODY,
                headers={
                    "Content-Type": "application/json",
                    "Authorization": (
                        f"SHA256 Credential={self._app_id}, Timestamp={timestamp}, "
                        f"Signature={signed}"
                    ),
                },
                content=body.encode(),
            )
        except NoAnswer as silence:
            raise PortalSilent(f"the Affiliate Open API ({silence})") from None
        return read_answer(reply)


def read_answer(reply: Reply) -> dict[str, Any]:
    """Return the `data` of an answer. Raises the error in it, as `OpenApi.product`."""
    answer = json_object(reply.text)
    if answer is not None and (errors := answer.get("errors")):
        raise _error(*graphql_error(errors))
    if reply.status == 429:
        raise OpenApiBusy
    if reply.status in (401, 403):
        raise OpenApiRefused(f"HTTP {reply.status}")
    if reply.status != 200 or answer is None:
        what = f"it gave no answer to read (HTTP {reply.status})"
        raise PortalDown(what, who="the Affiliate Open API")
    return to_dict(answer.get("data"))


def _error(
    code: int | None, message: str
) -> OpenApiRefused | OpenApiBusy | AccountFrozen | PortalError:
    in_message = _CODE_IN_MESSAGE.search(message)
    if code is None and in_message:
        code = int(in_message[1])
    if code == _AUTH_FAILED or code in _NO_ACCESS:
        return OpenApiRefused(f"error {code}: {message}")
    if code == _RATE_LIMIT:
        return OpenApiBusy()
    if code == _FROZEN:
        return AccountFrozen()
    return PortalError(message, code)


def _rates(node: dict[str, Any]) -> Rates | None:
    total, seller, platform = (
        to_decimal(node.get(key))
        for key in ("commissionRate", "sellerCommissionRate", "shopeeCommissionRate")
    )
    if platform is None:
        return split_rates(total, seller)
    return split_rates(platform + (seller or 0), seller)
