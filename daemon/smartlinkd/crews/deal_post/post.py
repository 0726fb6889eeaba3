"""The post by the template, and the check of a model's post: pure rules.

Whoever copies a post into a chat wants plain text, links that can be pressed, and no gap where a
product's data is not known. It says that its links earn a commission, and not how much.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence

from smartlinkd.crews.deal_post.deals import Deal, PostRequest

# Text before or after a link that makes it another address.
_BEFORE = r"(?<![\w/.@%&=#?+~-])"
_AFTER = r"(?![.,:;!'()*]*[\w/?&=%#@+~$-])"
# Chats make a link of a name with one of these endings, and none of "Dr.Martens".
_ENDINGS = (
    "app|at|au|biz|blog|br|ca|cc|ch|click|cn|co|com|de|dev|es|eu|fr|gg|gl|hk|id|in|info|io|it|jp|"
    "kr|la|link|live|ly|me|my|net|nl|one|online|org|page|ph|pl|pro|ru|se|sg|shop|site|store|sx|th|"
    "to|top|tv|tw|uk|us|vip|vn|ws|xyz"
)
_ADDRESS = re.compile(
    rf"://|\bwww\.|\b(?:mailto|tel):|[\w-]\.(?:[a-z]{{2,}}[/:?]|(?:{_ENDINGS})(?![\w-]))",
    re.IGNORECASE,
)

_WORDS = {
    "vi": {
        "one": "Deal hay hôm nay",
        "many": "{} deal đáng mua hôm nay",
        "nameless": "Sản phẩm gợi ý",
        "price": "💰 Giá: {}",
        "sold": "Đã bán {}",
        "link": "👉 Mua tại đây: {}",
        "end": (
            "Giá và khuyến mãi có thể thay đổi, bạn nhớ kiểm tra lại trước khi đặt mua nhé.\n"
            "Bài viết có gắn link tiếp thị liên kết: khi bạn mua qua link, mình có thể nhận được "
            "một khoản hoa hồng nhỏ, còn bạn không phải trả thêm đồng nào."
        ),
        "thousands": ".",
        "point": ",",
    },
    "en": {
        "one": "Today's deal",
        "many": "{} deals worth a look today",
        "nameless": "A product worth a look",
        "price": "💰 Price: {}",
        "sold": "{} sold",
        "link": "👉 Get it here: {}",
        "end": (
            "Prices and offers can change, so check them before you order.\n"
            "These are affiliate links: when you buy through one I may earn a small commission, "
            "and you pay nothing extra."
        ),
        "thousands": ",",
        "point": ".",
    },
}


def fill(deals: Sequence[Deal], request: PostRequest) -> str:
    """Return the post by the template, with the deals in their order."""
    words, is_list = _WORDS[request.language], len(deals) > 1
    is_dong = request.language == "vi" and request.currency == "VND"
    unit = "đ" if is_dong else f" {request.currency}"
    title = request.title or (words["many"].format(len(deals)) if is_list else words["one"])
    parts = [f"🔥 {title}"]
    for number, deal in enumerate(deals, start=1):
        parts.append((f"{number}. " if is_list else "") + _describe(deal, words, unit))
    return "\n\n".join([*parts, words["end"]])


def _describe(deal: Deal, words: dict[str, str], unit: str) -> str:
    data = deal.product

    def number(value: int) -> str:
        return f"{value:,}".replace(",", words["thousands"])

    lines = [deal.name or words["nameless"]]
    if data.get("price") is not None:
        lines.append(words["price"].format(number(data["price"]) + unit))
    opinions = []
    if data.get("rating") is not None:
        opinions.append(f"⭐ {data['rating'].replace('.', words['point'])}/5")
    if data.get("sales"):
        opinions.append(("" if opinions else "🛒 ") + words["sold"].format(number(data["sales"])))
    if opinions:
        lines.append(" · ".join(opinions))
    if data.get("shopName"):
        lines.append(f"🏬 Shop: {' '.join(data['shopName'].split())}")
    lines.append(words["link"].format(deal.short_link))
    return "\n".join(lines)


def fault(post: str, deals: Sequence[Deal]) -> str | None:
    """Return why `post` cannot go out, or None. It must have all short links, and no other link.

    Products' names are other people's text, so a model may have been told to write another link.
    """
    rest = post
    for deal in sorted(deals, key=lambda deal: len(deal.short_link), reverse=True):
        rest, times = re.subn(_BEFORE + re.escape(deal.short_link) + _AFTER, "", rest)
        if not times:
            return f"it lacks the link {deal.short_link}"
    if _ADDRESS.search(unicodedata.normalize("NFKC", rest)):  # full-width letters are letters, too
        return "it has a link that is none of the deals'"
    return None
