"""The page as its owner uses it: a daemon, crews, and a real Chromium that shows the page.

Whatever a test does, it ends with a look at what the browser had to say: no error, no breach of the
policy, no request to anybody else, and no refused request but those that the test provokes.
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
# It runs until it is stopped: longer than any test.
ENDLESS = 'say("task_started", task_id="wait", name="Waiting")\nimport time\ntime.sleep(600)\n'
FAILING = 'say("failed", error="no model answers " + inputs["why"])\n'


@dataclass
class Daemon:
    """A daemon with crews, and the second factor on.

    `session` is one of the owner's: the name and the value of its cookie.
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
        """Start an execution as a client does; its id."""
        answer = await self._ask_crew(crew, "/kickoff", {"inputs": inputs})
        return str(answer["kickoff_id"])

    async def act(self, crew: str, path: str, body: Json) -> None:
        """Do something with a crew, as a client does."""
        await self._ask_crew(crew, path, body)

    async def owner(self, path: str, body: Json) -> Json:
        """What the owner is answered."""
        return await self._post(path, body, self.session[1])

    async def token_of(self, crew: str) -> str:
        """The crew's own token, which outlives the owner's session."""
        return str((await self.owner("/api/crews/token", {"crew": crew}))["token"])

    async def executions(self, crew: str, token: str) -> list[str]:
        """The states of all that there are."""
        answer = await self.base.ask("GET", f"/crews/{crew}/executions", token=token)
        return [each["state"] for each in answer.json()["executions"]]

    async def end_all_sessions(self) -> None:
        """As the operator does."""
        await self.base.run("tokens", "revoke")

    async def inputs(self, crew: str, token: str) -> int:
        """The status that a client gets with a crew's token."""
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
    """A daemon of the test's own."""
    with running(
        links={"source": "open_api"},
        products={"source": "none"},
        open_api={"app_id": "1", "secret": "none-is-needed", "url": "http://127.0.0.1:1/graphql"},
        crews=_crews(tmp_path),
    ) as base:
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
    """A tab to which the daemon's address is no loopback, and so no secure context."""
    async with _open_tab(daemon.url.replace("127.0.0.1", "0.0.0.0")) as tab:
        yield tab


@pytest.fixture
async def tab(daemon: Daemon) -> AsyncIterator[Tab]:
    """A tab that nobody is logged in with."""
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
    """A tab of that daemon's page, with an account's cookie stored."""
    await converting.sync(portal.account())
    async with _open_tab(converting.url) as tab:
        yield tab
        assert tab.heard == []
        assert tab.hosts <= {urlsplit(converting.url).netloc, PICTURES, ""}
