"""A Telegram bot: answers a message with the same message and your own affiliate links.

    SMARTLINKD_URL=http://127.0.0.1:8787 SMARTLINKD_KEY_FILE=key BOT_TOKEN_FILE=token \
        python telegram_bot.py

The key needs the scope convert (`smartlinkd keys create telegram-bot --scope convert`). The token
comes from @BotFather. The program needs httpx alone.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import Any

import httpx

POLL_S = 50
ANSWER_S = 180
PAUSE_S = 5
"""Seconds before the next attempt if Telegram does not answer."""
BOT_API = os.environ.get("BOT_API", "https://api.telegram.org")
TEXTS = {
    "vi": {
        "person": "Tài khoản đang tạm dừng: chủ tài khoản cần mở cổng tiếp thị và xác minh.",
        "session": "Phiên đăng nhập đã hết: chủ tài khoản cần đăng nhập lại cổng tiếp thị.",
        "later": "Hiện chưa tạo được liên kết, hãy thử lại sau ít phút.",
        "none": "Liên kết này không phải sản phẩm hoặc không tạo được.",
    },
    "en": {
        "person": "The account is paused: its owner has to open the affiliate portal and answer.",
        "session": "The session is over: the account's owner has to log in to the portal again.",
        "later": "No links can be made at the moment; try again in a few minutes.",
        "none": "This link is no product, or could not be made.",
    },
}
NEEDS_OWNER = 40300


class Bot:
    """A bot that asks Telegram for messages, and smartlinkd for links."""

    def __init__(self, telegram: httpx.Client, daemon: httpx.Client) -> None:
        self._telegram = telegram
        self._daemon = daemon
        self._offset = 0

    def run(self) -> None:
        """Answer messages until Ctrl-C."""
        while True:
            try:
                updates = self._call("getUpdates", offset=self._offset, timeout=POLL_S)
            except httpx.HTTPError as error:
                # The address has the token in it, and is not in the error's type.
                say(f"Telegram does not answer ({type(error).__name__}); again in {PAUSE_S} s")
                time.sleep(PAUSE_S)
                continue
            for update in updates:
                self._offset = update["update_id"] + 1
                self._handle(update.get("message") or {})

    def _handle(self, message: dict[str, Any]) -> None:
        text = message.get("text") or message.get("caption")
        if not text:
            return
        language = (message.get("from") or {}).get("language_code", "en")
        answer = self.answer(text, TEXTS["vi" if language.startswith("vi") else "en"])
        if answer is None:
            return
        try:
            self._call(
                "sendMessage",
                chat_id=message["chat"]["id"],
                text=answer,
                reply_parameters={"message_id": message["message_id"]},
            )
        except httpx.HTTPError as error:
            say(f"a message could not be sent ({type(error).__name__})")

    def answer(self, text: str, says: dict[str, str]) -> str | None:
        """Return the message with our links, a sentence if none was made, None without links."""
        try:
            response = self._daemon.post("/api/convert-text", json={"text": text})
        except httpx.HTTPError as error:
            say(f"smartlinkd does not answer ({type(error).__name__})")
            return says["later"]
        if not response.is_success:
            error = _error_of(response)
            say(f"smartlinkd: {error}")
            return says[_reason(error)]
        found = response.json()
        entries = found["mapping"].values()
        if any("shortLink" in entry for entry in entries):
            return str(found["text"])
        if any(entry["failCode"] == NEEDS_OWNER for entry in entries):
            return says["person"]
        return says["none"] if entries else None

    def _call(self, method: str, **arguments: Any) -> Any:
        response = self._telegram.post(method, json=arguments)
        response.raise_for_status()
        return response.json()["result"]


def _error_of(response: httpx.Response) -> str:
    """Return the text for the owner: what is wrong and what to do. A proxy's answer has none."""
    try:
        return str(response.json()["error"])
    except (ValueError, KeyError, TypeError):
        return f"HTTP {response.status_code}"


def _reason(error: str) -> str:
    """Return the key of the sentence for a refusal."""
    if "human check" in error:
        return "person"
    return "session" if "wants a login" in error else "later"


def secret(name: str) -> str:
    """Return a secret from the file that a variable names."""
    try:
        return Path(os.environ[f"{name}_FILE"]).read_text(encoding="utf-8").strip()
    except KeyError:
        sys.exit(f"{name}_FILE is not set: it names the file with the secret")
    except OSError as error:
        sys.exit(f"{name}_FILE: {error.strerror}")


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def main() -> None:
    """Run the bot."""
    url = os.environ.get("SMARTLINKD_URL", "http://127.0.0.1:8787")
    headers = {"Authorization": f"Bearer {secret('SMARTLINKD_KEY')}"}
    bot_url = f"{BOT_API}/bot{secret('BOT_TOKEN')}/"
    with (
        httpx.Client(base_url=bot_url, timeout=POLL_S + 10) as telegram,
        httpx.Client(base_url=url, headers=headers, timeout=ANSWER_S) as daemon,
    ):
        say("the bot answers messages; Ctrl-C ends it")
        Bot(telegram, daemon).run()


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        say("ended")
