"""Take the README's pictures: the page of a running demo, in a real Chromium.

./run screenshots [FOLDER]      docs/pictures
"""

from __future__ import annotations

import base64
import os
import re
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

import trio

from smartlinkd.browser.cdp import CdpConnection, connect
from smartlinkd.browser.chromium import LaunchSettings, launch
from tests.e2e.page.tab import Tab
from tests.programs import Program, must_disable_sandbox

PICTURES = Path(__file__).parents[1] / "docs" / "pictures"


@dataclass(frozen=True)
class Screen:
    """A picture's size in CSS pixels, and the browser's settings."""

    name: str
    width: int
    height: int
    language: str
    scheme: str
    words: tuple[str, str]
    """The names of the text box and of the button in that language."""


SCREENS = (
    Screen("desktop", 1100, 980, "en", "light", ("Text with product links", "Convert")),
    Screen("phone", 390, 844, "vi", "dark", ("Văn bản có link sản phẩm", "Chuyển đổi")),
)
MESSAGE = "Deal hôm nay:\n1. Son kem {0}?sp_atk=1\n2. Máy ảnh ({1})\nNhanh tay nhé!"


async def take_pictures(folder: Path) -> None:
    """Start a demo, and write a picture of each screen to `folder`."""
    settings = LaunchSettings(no_sandbox=await must_disable_sandbox())
    with tempfile.TemporaryDirectory(prefix="screenshots-") as place:
        os.chmod(place, 0o755)  # noqa: PTH101 - Chromium's user looks into it
        demo = Program(
            "smartlinkd", "demo", "--port", "0", folder=Path(place), log=Path(place) / "log"
        )
        try:
            pattern = r"browser: (http://\S+)/app/ +\(password: (\S+)\)"
            url, password = await trio.to_thread.run_sync(
                lambda: demo.wait_for(pattern, demo.output).groups()
            )
            links = re.findall(r"^  (127\S+)", demo.output.read_text("utf-8"), re.MULTILINE)
            async with launch(settings) as chromium, connect(chromium.endpoint) as connection:
                for screen in SCREENS:
                    picture = await _take(connection, screen, url, password, links)
                    (folder / f"{screen.name}.png").write_bytes(picture)
        finally:
            await trio.to_thread.run_sync(demo.stop)


async def _take(
    connection: CdpConnection, screen: Screen, url: str, password: str, links: list[str]
) -> bytes:
    context = await connection.browser.call("Target.createBrowserContext", {})
    where = {"url": "about:blank", "browserContextId": context["browserContextId"]}
    made = await connection.browser.call("Target.createTarget", where)
    session = await connection.attach(made["targetId"])
    metrics = {
        "width": screen.width,
        "height": screen.height,
        "deviceScaleFactor": 1,
        "mobile": False,
    }
    await session.call("Emulation.setDeviceMetricsOverride", metrics)
    features = [{"name": "prefers-color-scheme", "value": screen.scheme}]
    await session.call("Emulation.setEmulatedMedia", {"features": features})
    tab = Tab(session, url)
    await tab.listen()
    await tab.open()
    await tab.until("document.querySelector('input[type=password]') !== null")
    await tab.choose("header select", screen.language)
    await tab.evaluate("document.querySelector('input[type=password]').focus()")
    await session.call("Input.insertText", {"text": password})
    await tab.press_enter()
    box, button = screen.words
    await tab.type(box, MESSAGE.format(*links))
    await tab.click("button", button)
    await tab.until("document.querySelectorAll('.card').length === 2")
    picture = await session.call("Page.captureScreenshot", {"format": "png"})
    return base64.b64decode(picture["data"])


if __name__ == "__main__":
    given = Path(sys.argv[1]) if sys.argv[1:] else PICTURES
    given.mkdir(parents=True, exist_ok=True)
    trio.run(take_pictures, given)
