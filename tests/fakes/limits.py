"""The conversion service's bounds for tests that are about others."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

from smartlinkd.conversion.product_data import ProductLimits
from smartlinkd.conversion.service import ConversionLimits

_USUAL = ConversionLimits(
    timeout_s=60.0, chunk=5, max_waiting_submits=32, ttl_s=86_400.0, max_cached=10_000
)
_PRODUCT_NAMES = {
    "product_ttl_s": "ttl_s",
    "max_cached_products": "max_cached",
    "refusal_pause_s": "refusal_pause_s",
}


def conversion_limits(**different: Any) -> ConversionLimits:
    """Return the limits as shipped, but for these. Some of product data have names of their own."""
    own = {field.name for field in fields(ConversionLimits)}
    products = {_PRODUCT_NAMES[name]: value for name, value in different.items() if name not in own}
    limits = replace(_USUAL, **{name: value for name, value in different.items() if name in own})
    return replace(limits, products=replace(ProductLimits(), **products))
