"""The post by the template, and what any post must hold.

Whoever copies it into a chat or a page wants plain text: no markup, a link a reader can press, and
nothing that looks like a gap where a product's data is not known. It says that its links earn a
commission, as readers may expect and as advertising rules of many places demand; it does not say
how much.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass

from smartlinkd.crews.deal_post.deals import Deal
from smartlinkd.crews.deal_post.wishes import Language, Wishes

MAX_NAME = 160
"""Characters of a product's name; sellers put all their search words in it."""

# Where a link ends. What stands there otherwise makes it another address: something before it, or
# more of it, also behind a full stop that would end a sentence with a space after it.
_BEFORE = r"(?<![\w/.@%&=#?+~-])"
_AFTER = r"(?![.,:;!'()*]*[\w/?&=%#@+~$-])"
# What chats and social networks make a link of. Names such as "Dr.Martens" are none, so without a
# scheme or a path it takes an ending that people's addresses have.
_ENDINGS = (
    "app|at|au|biz|blog|br|ca|cc|ch|click|cn|co|com|de|dev|es|eu|fr|gg|gl|hk|id|in|info|io|it|jp|"
    "kr|la|link|live|ly|me|my|net|nl|one|online|org|page|ph|pl|pro|ru|se|sg|shop|site|store|sx|th|"
    "to|top|tv|tw|uk|us|vip|vn|ws|xyz"
)
_ADDRESS = re.compile(
    rf"://|\bwww\.|\b(?:mailto|tel):|[\w-]\.(?:[a-z]{{2,}}[/:?]|(?:{_ENDINGS})(?![\w-]))",
    re.IGNORECASE,
)


@dataclass(frozen=True)
class _Words:
    """The template's parts. `thousands` and `point` are the signs in its numbers."""

    one: str
    many: str
    nameless: str
    price: str
    dong: str
    rating: str
    sold: str
    shop: str
    link: str
    nameless_link: str
    caution: str
    disclosure: str
    thousands: str
    point: str


_WORDS: dict[Language, _Words] = {
    "vi": _Words(
        one="Deal hay hôm nay",
        many="{count} deal đáng mua hôm nay",
        nameless="Sản phẩm gợi ý",
        price="💰 Giá: {price}",
        dong="{number}đ",
        rating="⭐ {rating}/5",
        sold="Đã bán {sold}",
        shop="🏬 Shop: {shop}",
        link="👉 Mua tại đây: {link}",
        nameless_link="👉 Xem chi tiết và giá: {link}",
        caution="Giá và khuyến mãi có thể thay đổi, bạn nhớ kiểm tra lại trước khi đặt mua nhé.",
        disclosure=(
            "Bài viết có gắn link tiếp thị liên kết: khi bạn mua qua link, mình có thể nhận được "
            "một khoản hoa hồng nhỏ, còn bạn không phải trả thêm đồng nào."
        ),
        thousands=".",
        point=",",
    ),
    "en": _Words(
        one="Today's deal",
        many="{count} deals worth a look today",
        nameless="A product worth a look",
        price="💰 Price: {price}",
        dong="{number} VND",
        rating="⭐ {rating}/5",
        sold="{sold} sold",
        shop="🏬 Shop: {shop}",
        link="👉 Get it here: {link}",
        nameless_link="👉 See details and price: {link}",
        caution="Prices and offers can change, so check them before you order.",
        disclosure=(
            "These are affiliate links: when you buy through one I may earn a small commission, "
            "and you pay nothing extra."
        ),
        thousands=",",
        point=".",
    ),
}


def fill(deals: Sequence[Deal], wishes: Wishes) -> str:
    """The post by the template, with the deals in their order."""
    words = _WORDS[wishes.language]
    many = len(deals) > 1
    title = wishes.title or (words.many if many else words.one).format(count=len(deals))
    parts = [f"🔥 {title}"]
    for number, deal in enumerate(deals, start=1):
        parts.append((f"{number}. " if many else "") + _deal(deal, words, wishes.currency))
    return "\n\n".join([*parts, f"{words.caution}\n{words.disclosure}"])


def fault(post: str, deals: Sequence[Deal]) -> str | None:
    """Why `post` cannot go out, or None: it must have all short links, and no other link.

    The names in it are other people's text, so a model may have been told to write one.
    """
    rest = post
    for deal in sorted(deals, key=lambda deal: len(deal.short_link), reverse=True):
        rest, times = re.subn(_BEFORE + re.escape(deal.short_link) + _AFTER, "", rest)
        if not times:
            return f"it lacks the link {deal.short_link}"
    if _ADDRESS.search(unicodedata.normalize("NFKC", rest)):  # full-width letters are letters, too
        return "it has a link that is none of the deals'"
    return None


def _deal(deal: Deal, words: _Words, currency: str) -> str:
    data = deal.product
    name = " ".join((data.get("name") or "").split())
    lines = [_cut(name) or words.nameless]
    if data.get("price") is not None:
        lines.append(words.price.format(price=_money(data["price"], words, currency)))
    opinions = []
    rated = data.get("rating") is not None
    if rated:
        opinions.append(words.rating.format(rating=data["rating"].replace(".", words.point)))
    if data.get("sales"):
        opinions.append(words.sold.format(sold=_number(data["sales"], words)))
    if opinions:
        lines.append(("" if rated else "🛒 ") + " · ".join(opinions))
    if data.get("shopName"):
        lines.append(words.shop.format(shop=" ".join(data["shopName"].split())))
    link = words.link if name else words.nameless_link
    return "\n".join([*lines, link.format(link=deal.short_link)])


def _money(amount: int, words: _Words, currency: str) -> str:
    number = _number(amount, words)
    return words.dong.format(number=number) if currency == "VND" else f"{number} {currency}"


def _number(number: int, words: _Words) -> str:
    return f"{number:,}".replace(",", words.thousands)


def _cut(name: str) -> str:
    return name if len(name) <= MAX_NAME else name[: MAX_NAME - 1].rstrip() + "…"
