"""The page in a real Chromium, with a daemon and crews.

The fixtures `tab` and `shop` end with a check of the browser's messages: no error, no breach of the
policy, and no request to another host but that of the products' pictures.
"""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import pyotp
import pytest

from smartlinkd.browser.cdp import connect
from smartlinkd.browser.chromium import LaunchSettings, launch
from tests.config_file import WITHOUT_BROWSER
from tests.e2e.page.tab import EVIL, Json, Tab

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.e2e.conftest import Daemon as Converting
    from tests.e2e.conftest import Portal, Running

PICTURES = "down-vn.img.susercontent.com"

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
told = {"inputs": inputs, "human": answer["feedback"]}
say("result", output=json.dumps(told), output_json=told)
"""
# The worker runs until it is stopped, longer than any test.
ENDLESS = 'say("task_started", task_id="wait", name="Waiting")\nimport time\ntime.sleep(600)\n'
FAILING = 'say("failed", error="no model answers " + inputs["why"])\n'


@dataclass
class Daemon:
    """A daemon with crews and the second factor.

    `session` is the name and the value of the owner's session cookie.
    """

    base: Converting
    session: tuple[str, str]
    totp: pyotp.TOTP

    @property
    def url(self) -> str:
        return self.base.url

    @property
    def password(self) -> str:
        return self.base.password

    async def kick_off(self, crew: str, inputs: Json) -> str:
        """Start an execution like a client, and return its id."""
        answer = await self._ask_crew(crew, "/kickoff", {"inputs": inputs})
        return str(answer["kickoff_id"])

    async def act(self, crew: str, path: str, body: Json) -> None:
        """Send a crew a request like a client."""
        await self._ask_crew(crew, path, body)

    async def owner(self, path: str, body: Json) -> Json:
        """Send a request as the owner, and return the answer."""
        return await self._post(path, body, self.session[1])

    async def token_of(self, crew: str) -> str:
        """Return the crew's token, which outlives the owner's session."""
        return str((await self.owner("/api/crews/token", {"crew": crew}))["token"])

    async def executions(self, crew: str, token: str) -> list[str]:
        answer = await self.base.ask("GET", f"/crews/{crew}/executions", token=token)
        return [each["state"] for each in answer.json()["executions"]]

    async def end_all_sessions(self) -> None:
        """Revoke all sessions, like the operator."""
        await self.base.run("tokens", "revoke")

    async def inputs(self, crew: str, token: str) -> int:
        """Return the status of a request with a crew's token."""
        return (await self.base.ask("GET", f"/crews/{crew}/inputs", token=token)).status_code

    async def _ask_crew(self, crew: str, path: str, body: Json) -> Json:
        return await self._post(f"/crews/{crew}{path}", body, await self.token_of(crew))

    async def _post(self, path: str, body: Json, token: str) -> Json:
        answer = await self.base.ask("POST", path, body, token=token)
        assert answer.status_code == 200, answer.text
        found: Json = answer.json()
        return found


def _crews(folder: Path) -> list[Json]:
    def crew(name: str, text: str, **more: object) -> Json:
        script = folder / f"{name}.py"
        script.write_text(BEGIN + text)
        command = [sys.executable, str(script)]
        return {"name": name, "runner": "command", "command": command, **more}

    topic = {"name": "topic", "description": EVIL}
    tone = {"name": "tone", "default": {"polite": True}}
    return [
        crew("asking", ASKING, default=True, users=["ann"], inputs=[topic, tone]),
        crew("endless", ENDLESS, grace=1),
        crew("failing", FAILING, inputs=["why", {"name": "whether", "required": False}]),
        {"name": "broken", "runner": "command", "command": ["/nowhere/at-all"]},
    ]


@pytest.fixture
async def daemon(running: Running, tmp_path: Path) -> AsyncIterator[Daemon]:
    with running(**WITHOUT_BROWSER, crews=_crews(tmp_path)) as base:
        session = await base.page_session()
        setup = await base.ask("GET", "/api/auth/2fa/setup", token=session[1])
        totp = pyotp.TOTP(setup.json()["secret"])
        daemon = Daemon(base, session, totp)
        await daemon.owner("/api/auth/2fa/enable", {"secret": totp.secret, "code": totp.now()})
        yield daemon


@asynccontextmanager
async def _open_tab(url: str) -> AsyncIterator[Tab]:
    async with launch(LaunchSettings()) as chromium, connect(chromium.endpoint) as connection:
        made = await connection.browser.call("Target.createTarget", {"url": "about:blank"})
        tab = Tab(await connection.attach(made["targetId"]), url)
        await tab.listen()
        yield tab


@pytest.fixture
async def plain_tab(daemon: Daemon) -> AsyncIterator[Tab]:
    """A tab that loads the page from an address outside loopback, which is no secure context."""
    async with _open_tab(daemon.url.replace("127.0.0.1", "0.0.0.0")) as tab:
        yield tab


@pytest.fixture
async def tab(daemon: Daemon) -> AsyncIterator[Tab]:
    """A tab without a session."""
    async with _open_tab(daemon.url) as tab:
        yield tab
        assert tab.heard == []
        assert tab.hosts - {""} == {urlsplit(daemon.url).netloc}  # a QR code is a data URI


@pytest.fixture(scope="session")
def converting(running: Running) -> Iterator[Converting]:
    """A daemon that works with the sandbox portal."""
    with running() as daemon:
        daemon.wait_for_browser()
        yield daemon


@pytest.fixture
async def shop(converting: Converting, portal: Portal) -> AsyncIterator[Tab]:
    """A tab with the page of `converting`, where an account's cookie is stored."""
    await converting.sync(portal.account())
    async with _open_tab(converting.url) as tab:
        yield tab
        assert tab.heard == []
        assert tab.hosts <= {urlsplit(converting.url).netloc, PICTURES, ""}
