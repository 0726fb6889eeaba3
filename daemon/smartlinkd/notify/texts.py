"""Titles and texts of notices in English and Vietnamese. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Literal

Language = Literal["en", "vi"]

_TITLES: Final[Mapping[Language, Mapping[str, str]]] = {
    "en": {
        "session_lost": "Log in again: account {account}",
        "account_paused": "The portal wants you: account {account}",
        "account_back": "All is well again: account {account}",
        "cookie_missing": "No cookie is stored",
        "cookie_back": "A cookie is stored again",
        "browser_down": "Chromium does not stay up",
        "browser_back": "Chromium stays up again",
        "disk_full": "The disk is full",
        "disk_has_room": "The disk has room again",
        "key_made": "An API key was made",
        "account_replaced": "The cookie is of another account",
        "test": "A test of smartlinkd's notices",
    },
    "vi": {
        "session_lost": "Cần đăng nhập lại: tài khoản {account}",
        "account_paused": "Cổng tiếp thị cần bạn: tài khoản {account}",
        "account_back": "Đã hoạt động lại: tài khoản {account}",
        "cookie_missing": "Chưa có cookie",
        "cookie_back": "Đã có cookie trở lại",
        "browser_down": "Chromium không chạy được",
        "browser_back": "Chromium đã chạy ổn định lại",
        "disk_full": "Ổ đĩa đã đầy",
        "disk_has_room": "Ổ đĩa đã có chỗ trống",
        "key_made": "Có khóa API mới",
        "account_replaced": "Cookie thuộc về tài khoản khác",
        "test": "Thông báo thử của smartlinkd",
    },
}
_REMEDIES: Final[Mapping[Language, Mapping[str, str]]] = {
    "en": {
        "session_lost": "Log in to the affiliate portal in your browser; the extension syncs the "
        "new cookie.",
        "account_paused": "Open the affiliate portal in your browser and answer its question. Then "
        "press Clear the pause on the page, or run `smartlinkd account clear`.",
        "browser_down": "Run `smartlinkd doctor` on the machine.",
        "disk_full": "Make room on the disk of the state directory.",
    },
    "vi": {
        "session_lost": "Phiên đăng nhập đã hết nên chưa tạo được liên kết. Hãy đăng nhập cổng "
        "tiếp thị liên kết trên trình duyệt; tiện ích sẽ tự đồng bộ cookie mới.",
        "account_paused": "Cổng yêu cầu xác minh nên tài khoản đang tạm dừng. Hãy mở cổng trên "
        "trình duyệt và trả lời, rồi bấm Bỏ tạm dừng trên trang, hoặc chạy "
        "`smartlinkd account clear`.",
        "account_back": "Liên kết được tạo trở lại.",
        "cookie_missing": "Có yêu cầu tạo liên kết nhưng chưa có cookie. Hãy đồng bộ cookie.",
        "cookie_back": "Liên kết được tạo trở lại.",
        "browser_down": "Không tạo được liên kết. Hãy chạy `smartlinkd doctor` trên máy chủ.",
        "browser_back": "Liên kết được tạo trở lại.",
        "disk_full": "Không khởi động được crew mới. Hãy dọn ổ đĩa chứa thư mục trạng thái.",
        "disk_has_room": "Crew chạy được trở lại.",
        "key_made": "Nếu không phải bạn làm, hãy thu hồi khóa và đổi mật khẩu.",
        "account_replaced": "Nếu không phải bạn làm, hãy thu hồi các khóa API và đổi mật khẩu.",
        "test": "Thông báo đã đến nơi.",
    },
}


def title_and_text(body: Mapping[str, str], language: Language) -> tuple[str, str]:
    """Return a notice's title and text.

    The text is: the facts, the remedy, and which daemon it is. In Vietnamese the remedy is first,
    and the facts stay in English, as in the log.

    Args:
        body: the notice's fields, as `notice.body_of` returns them.
    """
    event = body["event"]
    title = _TITLES[language].get(event, event).format(account=body["account"])
    facts, remedy = body["text"], _REMEDIES[language].get(event, "")
    lines = [facts, remedy] if language == "en" else [remedy, facts]
    return title, "\n".join([*filter(None, lines), f"({body['host']})"])
