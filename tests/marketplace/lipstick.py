"""The fields of the one product that the tests of all product sources read."""

from __future__ import annotations

from typing import Any, Final

LIPSTICK: Final[dict[str, Any]] = {
    "name": "Son Kem Lì",
    "price": 122_200,
    "shopName": "Cánh Hồng Official",
    "rating": "4.8",
    "sales": 15_234,
    "commission": 21_996,
    "commissionRate": "18%",
    "sellerCommission": 16_497,
    "platformCommission": 5_499,
    "isXtra": True,
    "productLink": "https://shopee.vn/product/88201679/23456789012",
}
