"""The page as its owner uses it: a daemon, crews, and a real Chromium that shows the page.

Whatever a test does, it ends with a look at what the browser had to say: no error, no breach of the
policy, no request to anybody else, and no refused request but those that the test provokes.
"""

from __future__ import annotations

import json
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import httpx
import pyotp
import pytest
import trio

from smartlinkd.auth.passwords import hash_password
from smartlinkd.browser.cdp import connect
from smartlinkd.browser.chromium import LaunchSettings, launch
from tests.e2e.page.tab import EVIL, PATIENCE, Json, Tab

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.e2e.conftest import Daemon as Converting
    from tests.e2e.conftest import Portal, Running, RunProgram

PICTURES = "down-vn.img.susercontent.com"
PASSWORD = "correct horse battery staple"

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

    `token` is a session of the owner's, and `session` the name and the value of its cookie.
    """

    url: str
    config: Path
    password: str
    token: str
    session: tuple[str, str]
    totp: pyotp.TOTP

    async def kick_off(self, crew: str, inputs: Json) -> str:
        """Start an execution as a client does; its id."""
        body = {"inputs": inputs}
        answer = await self._post(f"/crews/{crew}/kickoff", body, await self.token_of(crew))
        return str(answer.json()["kickoff_id"])

    async def owner(self, path: str, body: Json) -> Json:
        """What the owner is answered."""
        answer = await self._post(path, body, self.token)
        assert answer.status_code == 200, answer.text
        found: Json = answer.json()
        return found

    async def token_of(self, crew: str) -> str:
        """The crew's own token, which outlives the owner's session."""
        return str((await self.owner("/api/crews/token", {"crew": crew}))["token"])

    async def executions(self, crew: str, token: str) -> list[str]:
        """The states of all that there are."""
        async with _client(self.url) as http:
            headers = {"Authorization": f"Bearer {token}"}
            answer = await http.get(f"/crews/{crew}/executions", headers=headers)
        return [each["state"] for each in answer.json()["executions"]]

    async def act(self, crew: str, path: str, body: Json) -> None:
        """Do something with a crew, as a client does."""
        answer = await self._post(f"/crews/{crew}{path}", body, await self.token_of(crew))
        assert answer.status_code == 200, answer.text

    async def end_all_sessions(self) -> None:
        """As the operator does."""
        words = ["tokens", "revoke", "--config", str(self.config)]
        await trio.run_process([sys.executable, "-m", "smartlinkd", *words], capture_stdout=True)

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
inputs = ["why", {{ name = "whether", required = false }}]
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
    config = _config(tmp_path)
    program = run_program("serve", "--config", str(config))
    url = program.wait_for(r'"serving on (http://[0-9.:]+)', program.log)[1]
    async with _client(url) as http:
        body = {"password": PASSWORD, "session": "cookie"}
        assert (await http.post("/api/auth/login", json=body)).status_code == 200
        [(name, token)] = http.cookies.items()
        headers = {"Authorization": f"Bearer {token}"}
        secret = (await http.get("/api/auth/2fa/setup", headers=headers)).json()["secret"]
        totp = pyotp.TOTP(secret)
        body = {"secret": secret, "code": totp.now()}
        answer = await http.post("/api/auth/2fa/enable", json=body, headers=headers)
        assert answer.status_code == 200, answer.text
    return Daemon(url, config, PASSWORD, token, (name, token), totp)


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
