"""The sandbox's products, and the JSON that its three sources of product data have for each. Pure.

Eleven products are written out, each for a property that a reader of the portal's answers can get
wrong. Any other item id is a product that follows from the id's digest, so all processes agree on
thousands of them. The sources disagree as the real ones do. Money is in whole dong here, and rates
are in the portal's unit: 100 000 for 100 %.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

FULL_RATE = 100_000
"""The portal's number for 100 %."""

_SCALE = 100_000
"""The portal's number for one dong in its answers."""

_CAP = 40_000
_CAPS = (40_000, 40_000, 40_000, 50_000, 30_000, 15_000)
"""The caps of generated products: half have today's usual one, the others an older one."""

Json = dict[str, Any]


@dataclass(frozen=True)
class SandboxProduct:
    """One item. The portal's answer does not have a field that is `None`.

    Attributes:
        default_rate: the total rate, the seller's part included.
        cap: the limit of the platform's part, in dong.
        plain_numbers: True if money and rates are sent as JSON numbers, not strings.
        why: the property for which the product is in the table.
    """

    shop_id: int
    item_id: int
    name: str
    price: int
    shop_name: str
    rating: float | None
    sold: int | None
    default_rate: int
    seller_rate: int | None
    cap: int | None = _CAP
    plain_numbers: bool = False
    has_image: bool = True
    why: str = ""

    @property
    def image(self) -> str | None:
        """The name of its picture at the real marketplace. The sandbox never requests it."""
        if not self.has_image:
            return None
        return f"vn-11134207-{_digest(self.item_id).hex()[:20]}"

    @property
    def platform_rate(self) -> int:
        """The platform's part of the total rate."""
        return self.default_rate - (self.seller_rate or 0)

    @property
    def seller_commission(self) -> int:
        """The seller's part in dong, never capped."""
        return _share(self.price, self.seller_rate or 0)

    @property
    def platform_commission(self) -> int:
        """The platform's part in dong, at most the cap if there is one."""
        uncapped = _share(self.price, self.platform_rate)
        return uncapped if self.cap is None else min(uncapped, self.cap)

    @property
    def commission(self) -> int:
        """The affiliate's commission for one sale, in dong."""
        return self.seller_commission + self.platform_commission


PRODUCTS: tuple[SandboxProduct, ...] = (
    SandboxProduct(
        shop_id=88201679,
        item_id=23456789012,
        name="Son Kem Lì Bền Màu 8H Cánh Hồng, Mịn Môi Không Khô",
        price=122_200,
        shop_name="Cánh Hồng Official",
        rating=4.8,
        sold=15_234,
        default_rate=18_000,
        seller_rate=13_500,
        why="worked example: 13.5 % seller and 4.5 % platform, 16 497 + 5 499 = 21 996",
    ),
    SandboxProduct(
        shop_id=40011223,
        item_id=17788990011,
        name="Máy Ảnh Không Gương Lật Toàn Khung 45MP Kèm Ống Kính 24-70mm f/2.8",
        price=84_600_000,
        shop_name="Góc Nhìn Camera",
        rating=5.0,
        sold=37,
        default_rate=4_000,
        seller_rate=0,
        why="worked example: 4 % of 84 600 000 is capped at 40 000; whole-number rating",
    ),
    SandboxProduct(
        shop_id=55104422,
        item_id=21334455667,
        name="Tai Nghe Chụp Tai Chống Ồn Chủ Động, Pin 50 Giờ",
        price=5_290_000,
        shop_name="Âm Thanh Sài Gòn",
        rating=4.9,
        sold=2_481,
        default_rate=10_000,
        seller_rate=3_000,
        why="worked example: 7 % platform capped at 40 000 plus 3 % seller uncapped = 198 700",
    ),
    SandboxProduct(
        shop_id=61002345,
        item_id=19876543210,
        name="Nồi Cơm Điện Tử 1.8L Lòng Niêu Chống Dính",
        price=1_890_000,
        shop_name="Bếp Nhà Mình",
        rating=4.7,
        sold=8_805,
        default_rate=5_500,
        seller_rate=1_500,
        cap=None,
        why="the answer names no cap",
    ),
    SandboxProduct(
        shop_id=72345001,
        item_id=18123456789,
        name="Áo Thun Cotton Nam Cổ Tròn Form Rộng",
        price=99_000,
        shop_name="Mộc Basic",
        rating=4.6,
        sold=64_120,
        default_rate=6_000,
        seller_rate=None,
        why="the answer names no seller rate",
    ),
    SandboxProduct(
        shop_id=83004567,
        item_id=22001100220,
        name="Sữa Rửa Mặt Tạo Bọt Dịu Nhẹ 150ml",
        price=145_000,
        shop_name="Da Xinh Cosmetics",
        rating=4.9,
        sold=31_007,
        default_rate=9_000,
        seller_rate=5_000,
        plain_numbers=True,
        why="money and rates are JSON numbers instead of strings",
    ),
    SandboxProduct(
        shop_id=90112233,
        item_id=25550001112,
        name="Giá Đỡ Điện Thoại Gấp Gọn",
        price=35_000,
        has_image=False,
        shop_name="Phụ Kiện 24H",
        rating=None,
        sold=None,
        default_rate=3_000,
        seller_rate=0,
        why="no image, no rating, no sales in the answer",
    ),
    SandboxProduct(
        shop_id=33445566,
        item_id=20202020202,
        name="Bình Giữ Nhiệt Inox 316 900ml",
        price=289_000,
        shop_name="Giữ Nhiệt Việt",
        rating=4.876543209876543,
        sold=5_512,
        default_rate=17_550,
        seller_rate=13_000,
        why="a rating with many decimals; a rate with two (17.55 %)",
    ),
    SandboxProduct(
        shop_id=12121212,
        item_id=24680246802,
        name=(
            'Bàn Phím Cơ Không Dây 75% "Hoa Anh Đào" 🌸 Keycap PBT, Switch <Linear> & Hotswap — '
            "Pin 8000mAh, Đèn RGB, Kết Nối 3 Chế Độ (2.4G/Bluetooth/Type-C), Tương Thích "
            "Windows/macOS, Bảo Hành 24 Tháng 'Lỗi Là Đổi' \\ Tặng Kê Tay Gỗ 🎁"
        ),
        price=1_349_000,
        shop_name="Phím & Chuột “Gõ Là Mê”",
        rating=4.95,
        sold=912,
        default_rate=8_000,
        seller_rate=4_000,
        why="a long name with quotes, markup signs, a backslash and emoji",
    ),
    SandboxProduct(
        shop_id=45671234,
        item_id=16001600160,
        name="Kẹp Giấy Màu Hộp 20 Cái",
        price=1_500,
        shop_name="Văn Phòng Phẩm An",
        rating=4.5,
        sold=120_000,
        default_rate=4_000,
        seller_rate=700,
        why="both parts end on half a dong: 10.5 and 49.5 make 11 + 50 = 61",
    ),
    SandboxProduct(
        shop_id=11223399,
        item_id=26262626262,
        name="Thẻ Quà Tặng Điện Tử 500.000đ",
        price=500_000,
        shop_name="Quà Tặng Số",
        rating=4.4,
        sold=3_300,
        default_rate=0,
        seller_rate=0,
        why="no commission at all",
    ),
)

_KNOWN = {product.item_id: product for product in PRODUCTS}

_THINGS = (
    "Đèn Bàn Học LED",
    "Balo Chống Nước",
    "Giày Sneaker Trắng",
    "Kem Chống Nắng SPF50+",
    "Sạc Dự Phòng 20.000mAh",
    "Máy Xay Sinh Tố Mini",
    "Chăn Ga Gối Cotton",
    "Đồng Hồ Thông Minh",
    "Nước Hoa Hồng 200ml",
    "Hộp Cơm Giữ Nhiệt",
    "Quạt Cầm Tay",
    "Bộ Dao Nhà Bếp",
)
_MANNERS = ("Cao Cấp", "Giá Tốt", "Chính Hãng", "Hàn Quốc", "Phiên Bản 2024", "Tặng Kèm Quà")
_SHOPS = ("Nhà Của Mây", "Tiệm Tạp Hóa Xanh", "Gia Dụng Việt", "Shop Bé Na", "Chợ Số 1")


def product_of(item_id: int) -> SandboxProduct:
    """Return the product with this id: the table's, else the one that follows from the id."""
    return _KNOWN.get(item_id) or _generate(item_id)


def portal_offer(product: SandboxProduct, shop_url: str) -> Json:
    """Return the `data` of `GET /api/v3/offer/product`. Money is scaled by 100 000."""

    def number(value: int) -> int | str:
        return value if product.plain_numbers else str(value)

    card: Json = {
        "itemid": product.item_id,
        "shopid": product.shop_id,
        "name": product.name,
        "price": number(product.price * _SCALE),
        "shop_name": product.shop_name,
    }
    if product.image is not None:
        card["image"] = product.image
    if product.sold is not None:
        # `sold` is the last thirty days: a reader that takes it for the total gets it wrong.
        card |= {"historical_sold": product.sold, "sold": product.sold // 12}
    if product.rating is not None:
        card["item_rating"] = {"rating_star": product.rating}
    rates: Json = {"default_commission_rate": number(product.default_rate)}
    if product.seller_rate is not None:
        rates["seller_commission_rate"] = number(product.seller_rate)
    if product.cap is not None:
        rates["commission_cap"] = number(product.cap * _SCALE)
    return {
        "item_id": product.item_id,
        "batch_item_for_item_card_full": card,
        "product_link": product_link(product, shop_url),
        "commission": format_dong(product.commission),
        "commission_rate_detail": rates,
        "commission_rate": {
            "default_commission_rate": format_percent(product.default_rate),
            "seller_commission_rate": format_percent(product.seller_rate or 0),
            "shopee_commission_rate": format_percent(product.platform_rate),
            "commission_cap": format_dong(product.cap or 0),
        },
    }


def open_api_node(product: SandboxProduct, shop_url: str, offer_link: str) -> Json:
    """Return a node of the Open API's `productOfferV2`, with all fields that a query may select."""
    return {
        "itemId": product.item_id,
        "shopId": product.shop_id,
        "productName": product.name,
        "shopName": product.shop_name,
        "productLink": product_link(product, shop_url),
        "offerLink": offer_link,
        "imageUrl": image_url(product),
        "price": str(product.price),
        "priceMin": str(product.price),
        "priceMax": str(product.price),
        "sales": product.sold,
        "ratingStar": None if product.rating is None else str(round(product.rating, 2)),
        "commissionRate": _fraction(product.default_rate),
        "sellerCommissionRate": (
            None if product.seller_rate is None else _fraction(product.seller_rate)
        ),
        "shopeeCommissionRate": _fraction(product.platform_rate),
        "commission": str(product.commission),
    }


def estimate(product: SandboxProduct, shop_url: str) -> Json:
    """Return the third-party estimate service's answer: one flat object, its money in numbers."""
    return {
        "name": product.name,
        "price": product.price,
        "image": image_url(product),
        "shopName": product.shop_name,
        "rating": product.rating,
        "sales": product.sold,
        "commission": product.commission,
        "commissionRate": f"{_fraction(product.default_rate, of=100)}%",
        "sellerCommission": product.seller_commission,
        "platformCommission": product.platform_commission,
        "isXtra": bool(product.seller_rate),
        "cap": product.cap,
        "productLink": product_link(product, shop_url),
    }


def product_link(product: SandboxProduct, shop_url: str) -> str:
    """Return the URL of a product's page, in the marketplace's canonical form."""
    return f"{shop_url}/product/{product.shop_id}/{product.item_id}"


def image_url(product: SandboxProduct) -> str | None:
    """Return a picture's URL at the real marketplace."""
    return product.image and f"https://down-vn.img.susercontent.com/file/{product.image}"


def format_dong(amount: int) -> str:
    """Return 5100 as the portal shows it: `₫5.100`."""
    return "₫" + f"{amount:,}".replace(",", ".")


def format_percent(rate: int) -> str:
    """Return the rate 2500 as the portal shows it: `2,5%`."""
    return _fraction(rate, of=100).replace(".", ",") + "%"


def _share(price: int, rate: int) -> int:
    """Return a rate of a price, in dong, rounded half-up."""
    return (price * rate + FULL_RATE // 2) // FULL_RATE


def _generate(item_id: int) -> SandboxProduct:
    digest = _digest(item_id)
    number = [int.from_bytes(digest[i : i + 4]) for i in range(0, len(digest), 4)]
    seller_rate = (number[3] % 31) * 500 if number[3] % 2 else 0
    return SandboxProduct(
        shop_id=10_000_000 + number[0] % 900_000_000,
        item_id=item_id,
        name=f"{_pick(_THINGS, number[1])} {_pick(_MANNERS, number[2])} #{item_id}",
        price=1_000 * (5 + number[4] % 3_000),
        shop_name=_pick(_SHOPS, number[0]),
        rating=round(4 + (number[5] % 101) / 100, 2),
        sold=number[6] % 50_000,
        default_rate=seller_rate + 500 * (2 + number[7] % 12),
        seller_rate=seller_rate,
        cap=_CAPS[number[2] % len(_CAPS)],
    )


def _digest(item_id: int) -> bytes:
    return hashlib.sha256(f"item {item_id}".encode()).digest()


def _pick(words: tuple[str, ...], number: int) -> str:
    return words[number % len(words)]


def _fraction(rate: int, *, of: int = 1) -> str:
    """Return the rate 18000 as a decimal, `0.18`; of 100, `18`."""
    return f"{(Decimal(rate) * of / FULL_RATE).normalize():f}"
