"""The dashboard as its owner uses it: a daemon, crews, and a real Chromium that shows the page.

Controls are found by their role and name, as a screen reader finds them. Whatever a test does, it
ends with a look at what the browser had to say: no error, no breach of the policy, no request to
anybody else, and no refused request but those that the test provokes.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import httpx
import pyotp
import pytest
import trio

from daemon.auth.passwords import hash_password
from daemon.browser.cdp import Session, connect
from daemon.browser.chromium import LaunchSettings, launch

if TYPE_CHECKING:
    from tests.e2e.conftest import RunProgram

pytestmark = pytest.mark.chromium

PASSWORD = "correct horse battery staple"
PATIENCE = 20.0  # seconds for anything that is sure to come
LOOK_EVERY = 0.02
SMALL_PHONE = 360  # pixels

EVIL = """<img src=x onerror="document.title='taken'"><script>document.title='taken'</script>"""

BEGIN = """\
import json, os, socket
ends = socket.socket(fileno=int(os.environ["SMARTLINKD_FD"]))
heard, line = ends.makefile("r", encoding="utf-8"), ends.makefile("w", encoding="utf-8")
def say(type, **fields):
    print(json.dumps({"type": type, **fields}), file=line, flush=True)
inputs = json.loads(heard.readline())["inputs"]
say("started", total_tasks=1)
"""
ASKING = """\
say("task_started", task_id="write", name="Write " + inputs["topic"], agent=inputs["topic"])
say("log", text=inputs["topic"])
say("human_input", task_id="write", prompt="Good? " + inputs["topic"], output=inputs["topic"])
answer = json.loads(heard.readline())
say("task_completed", task_id="write", output=inputs["topic"])
say("result", output=json.dumps({"inputs": inputs, "human": answer["feedback"]}))
"""
ENDLESS = 'say("task_started", task_id="wait", name="Waiting")\nimport time\ntime.sleep(600)\n'
FAILING = 'say("failed", error="no model answers " + inputs["why"])\n'

Json = dict[str, Any]


@dataclass
class Daemon:
    """A daemon with crews, and the second factor on. `token` is a session that stays good."""

    url: str
    token: str
    totp: pyotp.TOTP

    async def kick_off(self, crew: str, inputs: Json) -> str:
        """Start an execution as a client does; its id."""
        token = (await self.owner("/api/crews/token", {"crew": crew}))["token"]
        answer = await self._post(f"/crews/{crew}/kickoff", {"inputs": inputs}, token)
        return str(answer.json()["kickoff_id"])

    async def owner(self, path: str, body: Json) -> Json:
        """What the owner is answered."""
        answer = await self._post(path, body, self.token)
        assert answer.status_code == 200, answer.text
        found: Json = answer.json()
        return found

    async def inputs(self, crew: str, token: str) -> int:
        """The status that a client gets with a crew's token."""
        async with _client(self.url) as http:
            headers = {"Authorization": f"Bearer {token}"}
            return (await http.get(f"/crews/{crew}/inputs", headers=headers)).status_code

    async def _post(self, path: str, body: Json, token: str) -> httpx.Response:
        async with _client(self.url) as http:
            return await http.post(path, json=body, headers={"Authorization": f"Bearer {token}"})


def _client(url: str) -> httpx.AsyncClient:
    transport = httpx.AsyncHTTPTransport(verify=False)  # plain HTTP, so nothing to verify
    return httpx.AsyncClient(base_url=url, transport=transport, trust_env=False, timeout=PATIENCE)


@dataclass
class Tab:
    """A tab of the browser, and what was heard of it."""

    session: Session
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

    async def open(self, place: str = "", *, session_token: str = "") -> None:
        """Go to a place of the page; with a token it is logged in there."""
        if session_token:
            script = f"sessionStorage.setItem('smartlinkd.session', {json.dumps(session_token)})"
            await self.session.call("Page.addScriptToEvaluateOnNewDocument", {"source": script})
        await self.session.call("Page.navigate", {"url": f"{self.url}/dashboard#/{place}"})

    async def go(self, place: str) -> None:
        """Go to another place within the page."""
        await self.evaluate(f"location.hash = {json.dumps('#/' + place)}")

    async def find(self, role: str, name: str) -> str:
        """Wait for a control that is shown; its object."""
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

    @asynccontextmanager
    async def mouse_held(self, role: str, name: str) -> AsyncIterator[None]:
        """A click that takes as long as the block."""
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
        """What an element says."""
        object_id = await self.find(role, name)
        return str(await self._call(object_id, "function() { return this.innerText; }"))

    async def type(self, name: str, text: str) -> None:
        """Type into the field of that name, in place of what is there."""
        await self._call(
            await self.find("textbox", name), "function() { this.focus(); this.select(); }"
        )
        await self.session.call("Input.insertText", {"text": text})

    async def press_enter(self) -> None:
        key = {"key": "Enter", "code": "Enter", "text": "\r", "windowsVirtualKeyCode": 13}
        for kind in ("keyDown", "keyUp"):
            await self.session.call("Input.dispatchKeyEvent", {"type": kind, **key})

    async def paste(self, name: str) -> str:
        """Paste into the field of that name, in place of what is there; what is there then."""
        await self.type(name, "")
        await self.session.call(
            "Input.dispatchKeyEvent", {"type": "keyDown", "commands": ["paste"]}
        )
        return str(
            await self._call(await self.find("textbox", name), "function() { return this.value; }")
        )

    async def until(self, expression: str) -> None:
        """Wait until it is true."""
        with trio.fail_after(PATIENCE):
            while not await self.evaluate(expression):  # noqa: ASYNC110 - the page has no event of ours
                await trio.sleep(LOOK_EVERY)

    async def see(self, *texts: str, but_not: str = "\0") -> str:
        """Wait until all of these are shown, and that is not; all that is shown."""
        with trio.move_on_after(PATIENCE):
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
        # What the network says is that a request was refused: that is seen at the answer.
        if told["entry"]["source"] != "network":
            self.heard.append(str(told))

    def _request(self, told: Json) -> None:
        self.hosts.add(urlsplit(told["request"]["url"]).netloc)

    def _response(self, told: Json) -> None:
        answer = told["response"]
        if answer["status"] >= 400:
            self.refused.append((answer["status"], urlsplit(answer["url"]).path))


def _config(folder: Path) -> Path:
    def worker(name: str, text: str) -> str:
        script = folder / f"{name}.py"
        script.write_text(BEGIN + text)
        return json.dumps([sys.executable, str(script)])

    path = folder / "config.toml"
    path.write_text(
        f"""\
[server]
bind = "127.0.0.1:0"
[state]
directory = "{folder / "state"}"
[auth]
password_hash = "{hash_password(PASSWORD)}"
[links]
source = "open_api"
[products]
source = "none"
[open_api]
app_id = "1"
secret = "none-is-needed"
url = "http://127.0.0.1:1/graphql"
[[crews]]
name = "asking"
runner = "command"
command = {worker("asking", ASKING)}
default = true
users = ["ann"]
inputs = [
    {{ name = "topic", description = {json.dumps(EVIL)} }},
    {{ name = "tone", default = {{ polite = true }} }},
]
[[crews]]
name = "endless"
runner = "command"
command = {worker("endless", ENDLESS)}
grace = 1
[[crews]]
name = "failing"
runner = "command"
command = {worker("failing", FAILING)}
inputs = ["why"]
[[crews]]
name = "broken"
runner = "command"
command = ["/nowhere/at-all"]
"""
    )
    path.chmod(0o600)
    return path


@pytest.fixture
async def daemon(run_program: RunProgram, tmp_path: Path) -> Daemon:
    """A daemon of the test's own."""
    program = run_program("serve", "--config", str(_config(tmp_path)))
    url = program.wait_for(r'"serving on (http://[0-9.:]+)', program.log)[1]
    async with _client(url) as http:
        token = (await http.post("/api/auth/login", json={"password": PASSWORD})).json()["token"]
        headers = {"Authorization": f"Bearer {token}"}
        secret = (await http.get("/api/auth/2fa/setup", headers=headers)).json()["secret"]
        totp = pyotp.TOTP(secret)
        body = {"secret": secret, "code": totp.now()}
        answer = await http.post("/api/auth/2fa/enable", json=body, headers=headers)
        assert answer.status_code == 200, answer.text
    return Daemon(url, token, totp)


@asynccontextmanager
async def _open_tab(url: str) -> AsyncIterator[Tab]:
    async with launch(LaunchSettings()) as chromium, connect(chromium.endpoint) as connection:
        made = await connection.browser.call("Target.createTarget", {"url": "about:blank"})
        tab = Tab(await connection.attach(made["targetId"]), url)
        await tab.listen()
        yield tab


@pytest.fixture
async def tab(daemon: Daemon) -> AsyncIterator[Tab]:
    """A tab that nobody is logged in with."""
    async with _open_tab(daemon.url) as tab:
        yield tab
        assert tab.heard == []
        assert tab.hosts == {urlsplit(daemon.url).netloc}


async def test_the_owner_logs_in_and_sees_the_crews(daemon: Daemon, tab: Tab) -> None:
    await tab.open()
    await tab.type("Password", "wrong")
    await tab.press_enter()
    await tab.see("password")
    await tab.type("Password", PASSWORD)
    await tab.press_enter()
    await tab.type(
        "The 6 digits that your authenticator app shows", daemon.totp.at(time.time() + 30)
    )
    await tab.press_enter()
    shown = await tab.see("asking", "endless", "failing", "broken", "Log out")
    assert "/nowhere/at-all" in shown
    await tab.click("link", "broken")
    await tab.see("This crew cannot run", "not healthy")
    await tab.click("button", "Log out")
    await tab.find("textbox", "Password")
    assert await tab.evaluate("sessionStorage.length") == 0
    assert tab.refused == [(401, "/api/auth/login"), (503, "/crews/broken/")]


async def test_a_token_is_shown_and_rotated(daemon: Daemon, tab: Tab) -> None:
    await tab.open("crews/asking", session_token=daemon.token)
    await tab.see("Healthy", f"{daemon.url}/crews/asking", "User Bearer Token: ann")
    before = (await daemon.owner("/api/crews/token", {"crew": "asking", "user": "ann"}))["token"]
    assert before not in await tab.see("Tokens")
    await tab.click("button", "Reveal: User Bearer Token: ann")
    await tab.see(before)
    await tab.click("button", "Rotate: User Bearer Token: ann")
    await tab.click("button", "Rotate")
    shown = await tab.see("slu_", but_not=before)
    after = "slu_" + shown.partition("slu_")[2].split()[0]
    assert await daemon.inputs("asking", before) == 401
    assert await daemon.inputs("asking", after) == 200
    assert tab.refused == []


@pytest.mark.parametrize("allowed", [True, False])
async def test_a_token_is_copied_without_being_shown(
    daemon: Daemon, tab: Tab, allowed: bool
) -> None:
    await tab.open("crews/asking", session_token=daemon.token)
    await tab.see("Healthy")
    if allowed:  # to use the clipboard, as other browsers than this one do from the start
        granted = {"permissions": ["clipboardSanitizedWrite"]}
        await tab.session.call("Browser.grantPermissions", granted)
        await tab.evaluate("document.execCommand = () => false")  # and need no other way
    await tab.click("button", "Copy: Bearer Token")
    await tab.see("Copied", but_not="slc_")
    await tab.go("crews/asking/run")
    token = (await daemon.owner("/api/crews/token", {"crew": "asking"}))["token"]
    assert await tab.paste("topic required") == token


async def test_a_crew_is_run_by_the_form_and_answered(daemon: Daemon, tab: Tab) -> None:
    await tab.open("crews/asking/run", session_token=daemon.token)
    await tab.see(EVIL)  # the input's description
    await tab.click("button", "Run")
    await tab.see("Give a value.")
    await tab.type("topic required", EVIL)
    await tab.type("tone optional", "{no json")
    await tab.click("button", "Run")
    await tab.see("This is not JSON")
    await tab.type("tone optional", '{"polite": false}')
    await tab.click("button", "Run")
    await tab.see("waiting for human input", f"Good? {EVIL}", "human_input_requested")
    await tab.type("Feedback", EVIL)
    await tab.click("button", "Approve")
    await tab.see("completed", "Output", "crew_kickoff_completed")
    assert json.loads(await tab.text("group", "Output")) == {
        "inputs": {"topic": EVIL, "tone": {"polite": False}},
        "human": EVIL,
    }
    await tab.click("link", "Executions")
    await tab.see("completed", "How it stands")
    assert await tab.evaluate("document.querySelectorAll('main img, main script').length") == 0
    assert "taken" not in str(await tab.evaluate("document.title"))
    assert tab.refused == []


async def test_one_is_stopped(daemon: Daemon, tab: Tab) -> None:
    kickoff_id = await daemon.kick_off("endless", {})
    await tab.open(f"crews/endless/executions/{kickoff_id}", session_token=daemon.token)
    await tab.see("running", "Now: Waiting")
    await tab.click("button", "Stop…")
    await tab.click("button", "Stop")
    await tab.see("stopped", "Error", "crew_kickoff_failed")
    await tab.go("crews/endless/executions?state=RUNNING")
    await tab.see("There are none.")
    assert tab.refused == []


async def test_a_slow_click_is_not_lost_to_the_next_look(daemon: Daemon, tab: Tab) -> None:
    kickoff_id = await daemon.kick_off("endless", {})
    await tab.open("crews/endless/executions", session_token=daemon.token)
    await tab.see("running", "Waiting")
    looks = (
        "performance.getEntriesByType('resource').filter((e) => /executions/.test(e.name)).length"
    )
    before = await tab.evaluate(looks)
    async with tab.mouse_held("link", kickoff_id[:8]):
        await tab.until(f"{looks} > {before + 1}")
    await tab.see("Now: Waiting", "crew_kickoff_started")


async def test_an_error_comes_first_and_stays_text(daemon: Daemon, tab: Tab) -> None:
    kickoff_id = await daemon.kick_off("failing", {"why": EVIL})
    await tab.open("crews/failing/executions", session_token=daemon.token)
    await tab.see("error", "no model answers")
    await tab.click("link", kickoff_id[:8])
    shown = await tab.see(f"no model answers {EVIL}", "crew_kickoff_failed")
    assert shown.index("no model answers") < shown.index("Created")
    assert await tab.evaluate("document.querySelectorAll('main img, main script').length") == 0
    assert "taken" not in str(await tab.evaluate("document.title"))
    assert tab.refused == []


async def test_the_end_of_the_session_asks_for_the_password(daemon: Daemon, tab: Tab) -> None:
    await tab.open("crews/asking", session_token="no-token-at-all")
    await tab.see("The session has ended")
    await tab.find("textbox", "Password")
    assert tab.refused == [(403, "/api/crews")]


async def test_nothing_is_wider_than_a_small_phone(daemon: Daemon, tab: Tab) -> None:
    size = {"width": SMALL_PHONE, "height": 640, "deviceScaleFactor": 1, "mobile": True}
    await tab.session.call("Emulation.setDeviceMetricsOverride", size)
    kickoff_id = await daemon.kick_off("failing", {"why": EVIL})
    await tab.open(session_token=daemon.token)
    places = {
        "": "broken",
        "crews/asking": "Healthy",
        "crews/asking/run": "optional",
        "crews/failing/executions": kickoff_id[:8],
        f"crews/failing/executions/{kickoff_id}": "crew_kickoff_failed",
    }
    for place, text in places.items():
        await tab.go(place)
        await tab.see(text)
        assert await tab.evaluate("document.documentElement.scrollWidth") <= SMALL_PHONE, place
    assert tab.refused == []


async def test_events_are_read_by_the_standard(daemon: Daemon, tab: Tab) -> None:
    pieces = [
        ": hi\r",
        "\nid: 1\r\ndata: a\ndata:b\n",
        "\ndata\nid: 2\n\n",
        "event: x\n\n",
        "data: cut",
    ]
    await tab.open()
    await tab.see("Log in")
    read = await tab.evaluate(
        f"""(async (pieces) => {{
            const {{ eventsOf }} = await import("./dashboard/sse.js");
            const body = new ReadableStream({{
                start(stream) {{
                    for (const piece of pieces) stream.enqueue(new TextEncoder().encode(piece));
                    stream.close();
                }},
            }});
            const read = [];
            for await (const event of eventsOf(body)) read.push([event.id, event.data]);
            return read;
        }})({json.dumps(pieces)})"""
    )
    assert read == [["1", "a\nb"], ["2", ""]]
