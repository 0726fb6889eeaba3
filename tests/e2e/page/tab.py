"""A tab of a real Chromium, as a person uses it.

Controls are found by their role and name, as a screen reader finds them.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

import trio

from smartlinkd.browser.cdp import CdpSession

PATIENCE = 20.0  # seconds for anything that is sure to come
LOOK_EVERY = 0.02
EVIL = """<img src=x onerror="document.title='taken'"><script>document.title='taken'</script>"""

KEYS: dict[str, dict[str, object]] = {
    "Enter": {"text": "\r", "windowsVirtualKeyCode": 13},
    "Tab": {"windowsVirtualKeyCode": 9},
}

Json = dict[str, Any]


@dataclass
class Tab:
    """A tab of the browser; its errors and messages, hosts of requests, and refused requests."""

    session: CdpSession
    url: str
    heard: list[str] = field(default_factory=list)
    hosts: set[str] = field(default_factory=set)
    refused: list[tuple[int, str]] = field(default_factory=list)

    async def listen(self) -> None:
        self.session.on("Runtime.exceptionThrown", lambda told: self.heard.append(str(told)))
        self.session.on("Runtime.consoleAPICalled", lambda told: self.heard.append(str(told)))
        self.session.on("Audits.issueAdded", lambda told: self.heard.append(str(told)))
        self.session.on("Log.entryAdded", self._entry)
        self.session.on("Network.requestWillBeSent", self._request)
        self.session.on("Network.responseReceived", self._response)
        for domain in ("Page", "Runtime", "Audits", "Log", "Network"):
            await self.session.call(f"{domain}.enable")

    async def open(self, place: str = "", *, session: tuple[str, str] | None = None) -> None:
        """Navigate to a view of the page; a session's cookie logs in."""
        if session is not None:
            name, value = session
            cookie = {"name": name, "value": value, "url": self.url, "httpOnly": True}
            await self.session.call("Network.setCookie", {**cookie, "sameSite": "Strict"})
        await self.session.call("Page.navigate", {"url": f"{self.url}/app/#/{place}"})

    async def log_in(self, password: str, code: str = "") -> None:
        await self.type("Password", password)
        await self.press_enter()
        if code:
            await self.type("Code", code)
            await self.press_enter()

    async def go(self, place: str) -> None:
        """Go to another view without loading the page again."""
        await self.evaluate(f"location.hash = {json.dumps('#/' + place)}")

    async def find(self, role: str, name: str) -> str:
        """Wait until a control is shown, and return its object id."""
        with trio.fail_after(PATIENCE):
            while True:
                root = await self.session.call("Runtime.evaluate", {"expression": "document"})
                found = await self.session.call(
                    "Accessibility.queryAXTree",
                    {
                        "objectId": root["result"]["objectId"],
                        "role": role,
                        "accessibleName": name,
                    },
                )
                shown = [node for node in found["nodes"] if not node["ignored"]]
                if shown:
                    node = await self.session.call(
                        "DOM.resolveNode", {"backendNodeId": shown[0]["backendDOMNodeId"]}
                    )
                    return str(node["object"]["objectId"])
                await trio.sleep(LOOK_EVERY)

    async def click(self, role: str, name: str) -> None:
        await self._call(await self.find(role, name), "function() { this.click(); }")

    async def click_in_dialog(self, name: str) -> None:
        """Click the button of that name in the open dialog."""
        buttons = "[...document.querySelectorAll('dialog[open] button')]"
        await self.evaluate(
            f"{buttons}.find((each) => each.innerText === {json.dumps(name)}).click()"
        )

    @asynccontextmanager
    async def mouse_held(self, role: str, name: str) -> AsyncIterator[None]:
        """Hold the mouse button on a control during the block."""
        middle = """function() {
            const { x, y, width, height } = this.getBoundingClientRect();
            return { x: x + width / 2, y: y + height / 2 };
        }"""
        place = await self._call(await self.find(role, name), middle)
        press = {**place, "button": "left", "clickCount": 1}
        await self.session.call("Input.dispatchMouseEvent", {"type": "mousePressed", **press})
        yield
        await self.session.call("Input.dispatchMouseEvent", {"type": "mouseReleased", **press})

    async def text(self, role: str, name: str) -> str:
        object_id = await self.find(role, name)
        return str(await self._call(object_id, "function() { return this.innerText; }"))

    async def type(self, name: str, text: str) -> None:
        """Replace the text of the field with that name."""
        await self._call(
            await self.find("textbox", name), "function() { this.focus(); this.select(); }"
        )
        await self.session.call("Input.insertText", {"text": text})

    async def press_enter(self) -> None:
        await self.press("Enter")

    async def press(self, name: str, *, ctrl: bool = False) -> None:
        """Press Enter or Tab."""
        key: Json = {"key": name, "code": name, **KEYS[name], "modifiers": 2 if ctrl else 0}
        for kind in ("keyDown", "keyUp"):
            await self.session.call("Input.dispatchKeyEvent", {"type": kind, **key})

    async def press_tab(self) -> str:
        """Press Tab, and return the text of the focused control, or BODY behind the last one."""
        await self.press("Tab")
        active = "document.activeElement"
        return str(await self.evaluate(f"{active} === document.body ? 'BODY' : {active}.innerText"))

    async def choose(self, selector: str, value: str) -> None:
        """Choose an option of a list."""
        await self.evaluate(
            f"""(() => {{
                const choice = document.querySelector({json.dumps(selector)});
                choice.value = {json.dumps(value)};
                choice.dispatchEvent(new Event('change', {{ bubbles: true }}));
            }})()"""
        )

    async def be_offline(self, offline: bool) -> None:
        """Disconnect the tab from the network, or connect it again."""
        conditions = {
            "offline": offline,
            "latency": 0,
            "downloadThroughput": -1,
            "uploadThroughput": -1,
        }
        await self.session.call("Network.emulateNetworkConditions", conditions)

    async def paste(self, name: str) -> str:
        """Paste into the field with that name; return its new value."""
        await self.type(name, "")
        await self.session.call(
            "Input.dispatchKeyEvent", {"type": "keyDown", "commands": ["paste"]}
        )
        return str(
            await self._call(await self.find("textbox", name), "function() { return this.value; }")
        )

    async def focused(self) -> str:
        """Return the tag name of the focused element."""
        return str(await self.evaluate("document.activeElement.tagName"))

    async def be_hidden(self, hidden: bool) -> None:
        """Hide the tab as if another tab were selected, or show it."""
        value = json.dumps(hidden)
        await self.evaluate(
            f"Object.defineProperty(document, 'hidden', {{ value: {value}, configurable: true }});"
            "document.dispatchEvent(new Event('visibilitychange'))"
        )

    async def until(self, expression: str) -> None:
        """Wait until a JavaScript expression is true."""
        with trio.fail_after(PATIENCE):
            while not await self.evaluate(expression):  # noqa: ASYNC110 - the page sends no event
                await trio.sleep(LOOK_EVERY)

    async def see(self, *texts: str, but_not: str = "\0", patience: float = PATIENCE) -> str:
        """Wait until all of `texts` are shown and `but_not` is not; return the text of the page."""
        with trio.move_on_after(patience):
            while True:
                shown = str(await self.evaluate("document.body?.innerText"))
                if all(text in shown for text in texts) and but_not not in shown:
                    return shown
                await trio.sleep(LOOK_EVERY)
        raise AssertionError(f"{texts} is not all shown: {shown}")

    async def evaluate(self, expression: str) -> Any:
        asked = {"expression": expression, "awaitPromise": True, "returnByValue": True}
        answer = await self.session.call("Runtime.evaluate", {**asked, "userGesture": True})
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    async def _call(self, object_id: str, function: str) -> Any:
        asked = {"objectId": object_id, "functionDeclaration": function, "returnByValue": True}
        answer = await self.session.call("Runtime.callFunctionOn", {**asked, "userGesture": True})
        return answer["result"].get("value")

    def _entry(self, told: Json) -> None:
        # The log's network entries are refused requests, which `_response` records.
        if told["entry"]["source"] != "network":
            self.heard.append(str(told))

    def _request(self, told: Json) -> None:
        self.hosts.add(urlsplit(told["request"]["url"]).netloc)

    def _response(self, told: Json) -> None:
        answer = told["response"]
        if answer["status"] >= 400:
            self.refused.append((answer["status"], urlsplit(answer["url"]).path))
