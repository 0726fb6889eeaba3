"""`smartlinkd demo`: the whole service in one command, against the sandbox portal.

It acts as a user: it writes a configuration, starts the daemon that `serve` starts, and then works
through its HTTP address, as any client would. It prints the commands to do that again.
"""

from __future__ import annotations

import json
import os
import secrets
import signal
import sys
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import trio

from smartlinkd import logs
from smartlinkd.app import tree
from smartlinkd.auth.passwords import hash_password
from smartlinkd.browser.chromium import LaunchSettings, launch
from smartlinkd.browser.errors import LaunchFailed
from smartlinkd.commands import demo_history
from smartlinkd.commands.codes import FAILED, GOOD
from smartlinkd.commands.table import table
from smartlinkd.config import Settings, load
from smartlinkd.errors import Refused, leaves
from smartlinkd.sandbox.products import PRODUCTS
from smartlinkd.sandbox.server import Sandbox, open_sandbox
from smartlinkd.sandbox.session import cookie_header
from smartlinkd.state_files import NotSaved, StateUnusable
from smartlinkd.supervision.supervisor import Escalated

CREW_VARIABLES = ("OPENAI_BASE_URL", "OPENAI_API_KEY", "OPENAI_MODEL_NAME", "OPENAI_MODEL")
"""Variables that the crew gets. With the first two, a model writes its post."""

TIMEOUT = 60.0
"""Seconds for a request, and for the browser to become ready on a small machine."""

CREW = "deal-post"
CREW_DEADLINE = 180
"""Seconds for the crew; its model may take 90 of them."""

Say = Callable[[str], None]


class StepFailed(Exception):  # noqa: N818 - a statement about the outcome
    """A step of the demo failed. The text says which and why."""


def main(*, once: bool, port: int) -> int:
    """Run the demo; with `once`, end after its steps. Return `GOOD` if all steps worked."""
    logs.set_up("warning")
    say = partial(print, flush=True)
    code = GOOD
    try:
        trio.run(partial(run_demo, say, once=once, port=port))
    except* (StepFailed, Refused, NotSaved, StateUnusable, Escalated) as failures:
        for failure in leaves(failures):
            print(f"demo: {failure}", file=sys.stderr)
        code = FAILED
    except* KeyboardInterrupt:  # before the daemon handles SIGINT; trio raises it in a group
        code = 128 + signal.SIGINT
    return code


async def run_demo(say: Say, *, once: bool, port: int) -> None:
    """Start the daemon, run the steps, and keep serving unless `once`.

    Raises `StepFailed`, and what `open_sandbox`, `configure` and `tree.serve` raise.
    """
    with tempfile.TemporaryDirectory(prefix="smartlinkd-demo-") as folder:
        async with open_sandbox() as sandbox, trio.open_nursery() as nursery:
            password = secrets.token_urlsafe(9)
            settings = await configure(Path(folder), sandbox, password, port, say)
            listening = await nursery.start(tree.serve, settings)
            state, now = settings.state.directory, datetime.now(UTC)
            if not await trio.to_thread.run_sync(demo_history.fill, state, sandbox, now):
                raise StepFailed("the demo's older links could not be written into its history")
            await DemoClient(listening.urls[0], password, sandbox, say).run()
            if once:
                nursery.cancel_scope.cancel()
            else:
                say("The daemon keeps serving until Ctrl-C.")


async def configure(folder: Path, sandbox: Sandbox, password: str, port: int, say: Say) -> Settings:
    """Write a configuration as an owner would, and load it as `serve` does."""
    hashed = hash_password(password)
    no_sandbox = "true" if await is_sandbox_unusable(say) else "false"
    path = folder / "config.toml"
    path.write_text(
        f"""\
[server]
bind = "127.0.0.1:{port}"
[state]
directory = "{folder / "state"}"
[auth]
password_hash = "{hashed}"
[browser]
no_sandbox = {no_sandbox}
[marketplace]
portal_url = "{sandbox.portal_url}"
shop_url = "{sandbox.shop_url}"
short_urls = ["{sandbox.short_url}"]
{crew_table(os.environ)}""",
        encoding="utf-8",
    )
    path.chmod(0o600)
    say(f"sandbox portal   {sandbox.portal_url}")
    say(f"configuration    {path}")
    return load(path, {})


def crew_table(environ: Mapping[str, str]) -> str:
    """Return the example crew's TOML, with the variables that it needs from `environ`."""
    given = {name: environ[name] for name in CREW_VARIABLES if environ.get(name)}
    return f"""\
[[crews]]
name = "{CREW}"
default = true
runner = "command"
command = [{_quoted(sys.executable)}, "-m", "smartlinkd.crews.deal_post"]
tools = ["convert_links"]
inputs = [
  {{ name = "links", description = "product or short links, one on each line" }},
  {{ name = "language", default = "vi", description = "of the post: vi or en" }},
  {{ name = "subIds", default = [], description = "tracking sub-ids, with commas between" }},
  {{ name = "title", default = "", description = "of the post; empty: one is found" }},
]
users = ["guest"]
deadline = {CREW_DEADLINE}
environment = {{ {", ".join(f"{name} = {_quoted(given[name])}" for name in given)} }}
"""


def _quoted(text: str) -> str:
    """Return a TOML string. For printable text JSON has the same syntax."""
    return json.dumps(text, ensure_ascii=False)


async def is_sandbox_unusable(say: Say, executable: Path | None = None) -> bool:
    """Return True, after a warning, if Chromium starts here only without its sandbox.

    The demo may run without it, since it opens only its own portal's pages, on loopback. `serve`
    never decides this by itself.

    Raises `LaunchFailed` if Chromium does not start at all.
    """
    settings = LaunchSettings(executable=executable)
    try:
        async with launch(settings):
            return False
    except LaunchFailed as failure:
        try:
            async with launch(replace(settings, no_sandbox=True)):
                pass
        except LaunchFailed:
            raise failure from None  # the sandbox is not the cause
        say(f"WARNING: {failure}")
        say("WARNING: the demo goes on without Chromium's sandbox, on pages of its own only.")
        return True


class DemoClient:
    """The steps of the demo, as a client of the daemon at `url`."""

    def __init__(self, url: str, password: str, sandbox: Sandbox, say: Say) -> None:
        self.url = url
        self.password = password
        self.sandbox = sandbox
        self.say = say

    async def run(self) -> None:
        """Run all steps. Raises `StepFailed`."""
        async with httpx.AsyncClient(base_url=self.url, timeout=TIMEOUT, trust_env=False) as http:
            login = await ask(http, "/api/auth/login", {"password": self.password})
            session = login["token"]
            self.say(f"daemon           {self.url}   (API: {self.url}/docs)")
            cookie = {"cookie": cookie_header(), "accountName": "Demo"}
            await ask(http, "/api/sync-cookie", cookie)
            await self._until_ready(http)
            links = self.links()
            order = {"links": list(links), "subIds": ["demo"]}
            answer = await ask(http, "/api/convert", order, session)
            self.show(links, answer["mapping"])
            crew = await ask(http, "/api/crews/token", {"crew": CREW}, session)
            await self._crew_writes(http, order, crew["token"])
        self._explain(crew["token"])

    def links(self) -> dict[str, bool]:
        """Return the links to convert. The value is True if the link should work."""
        shop, short = self.sandbox.shop_url, self.sandbox.short_url
        first, second, third, *_ = PRODUCTS
        return {
            f"{shop}/product/{first.shop_id}/{first.item_id}": True,
            f"{shop}/Ten-san-pham-i.{second.shop_id}.{second.item_id}?sp_atk=abc": True,
            f"{shop}/opaanlp/{third.shop_id}/{third.item_id}": True,
            f"{short}/direct": True,
            f"{short}/chain3": True,
            f"{short}/gone": False,
        }

    async def _until_ready(self, http: httpx.AsyncClient) -> None:
        with trio.move_on_after(TIMEOUT):
            # Clients of the API can only poll.
            while not (await ask(http, "/api/health", None))["browserReady"]:  # noqa: ASYNC110
                await trio.sleep(0.05)
            return
        raise StepFailed(f"the browser was not ready within {TIMEOUT:g} s; try smartlinkd doctor")

    def show(self, links: dict[str, bool], mapping: dict[str, Any]) -> None:
        """Print the links' results. Raises `StepFailed` if they are not as expected."""
        rows = [row(link, mapping[link]) for link in links]
        self.say("")
        self.say(table({"converted": rows}))
        wrong = [link for link, works in links.items() if ("shortLink" in mapping[link]) != works]
        if wrong:
            raise StepFailed(f"unexpected result for {', '.join(wrong)}")

    async def _crew_writes(
        self, http: httpx.AsyncClient, inputs: dict[str, list[str]], token: str
    ) -> None:
        """Run the crew, and print its event_text and its post. Raises `StepFailed`."""
        base = f"/crews/{CREW}"
        kickoff = await ask(http, f"{base}/kickoff", {"inputs": inputs}, token)
        execution = kickoff["kickoff_id"]
        self.say(f"\ncrew {CREW}, execution {execution}")
        with trio.move_on_after(CREW_DEADLINE + TIMEOUT):
            await self.follow(http, f"{base}/events/{execution}", token)
        ending = await ask(http, f"{base}/status/{execution}", None, token)
        if ending["state"] != "SUCCESS":
            why = ending["error"] or "it has not ended"
            raise StepFailed(f"the crew {CREW} wrote no post ({ending['state']}): {why}")
        self.say("")
        self.say("\n".join(f"  | {line}".rstrip() for line in ending["result"].splitlines()))

    async def follow(self, http: httpx.AsyncClient, path: str, token: str) -> None:
        """Print the server-sent events at `path` until the stream ends. Raises `StepFailed`."""
        try:
            async with http.stream("GET", path, headers=bearer(token)) as response:
                response.raise_for_status()
                async for line in response.aiter_lines():
                    if text := event_text(line):
                        self.say(f"  {text}")
        except httpx.HTTPError as error:
            raise StepFailed(f"GET {path}: {error!r}") from None

    def _explain(self, crew_token: str) -> None:
        link = next(iter(self.links()))
        crew = f"{self.url}/crews/{CREW}"
        self.say(
            f"""
To do it again:
  TOKEN=$(printf '{{"password": "%s"}}' '{self.password}' \\
    | curl -s {self.url}/api/auth/login -H 'Content-Type: application/json' -d @- \\
    | sed 's/.*"token":"\\([^"]*\\)".*/\\1/')
  printf 'Authorization: Bearer %s\\n' "$TOKEN" \\
    | curl -s {self.url}/api/convert -H @- -H 'Content-Type: application/json' \\
    -d '{{"links": ["{link}"]}}'
  curl -s {self.url}/api/health

The crew, by its own token:
  with_token() {{ printf 'Authorization: Bearer %s\\n' '{crew_token}' | curl -s -H @- "$@"; }}
  ID=$(with_token {crew}/kickoff -H 'Content-Type: application/json' \\
    -d '{{"inputs": {{"links": ["{link}"], "language": "en"}}}}' \\
    | sed 's/.*"kickoff_id": *"\\([^"]*\\)".*/\\1/')
  with_token -N {crew}/events/$ID
  with_token {crew}/status/$ID

In a browser: {self.url}/app/   (password: {self.password})
"""
        )


async def ask(
    http: httpx.AsyncClient, path: str, body: dict[str, Any] | None, token: str = ""
) -> dict[str, Any]:
    """Send a POST with `body`, or a GET if it is None, and return the answer.

    Raises `StepFailed`.
    """
    method = "GET" if body is None else "POST"
    try:
        response = await http.request(method, path, json=body, headers=bearer(token))
    except httpx.HTTPError as error:
        raise StepFailed(f"{method} {path}: {error!r}") from None
    answer: dict[str, Any] = response.json()
    if response.is_error:
        raise StepFailed(f"{method} {path}: {answer.get('message') or answer['error']}")
    return answer


def bearer(token: str) -> dict[str, str]:
    """Return the header for `token`; {} if it is ""."""
    return {"Authorization": f"Bearer {token}"} if token else {}


def event_text(line: str) -> str:
    """Return the text to print for a line of an event stream; "" if there is none."""
    if not line.startswith("data:"):
        return ""
    event = json.loads(line.removeprefix("data:"))
    data = event["data"] or {}
    match event["type"]:
        case "task_started":
            return f"{data['agent']}: {data['name']}"
        case "agent_step":
            return f"  {data['thought']}"
        case "log":
            return f"  {data['text']}"
        case "tool_usage_finished":
            return f"  {data['tool']}: {data['error'] or 'done'}"
    return ""


def row(link: str, entry: dict[str, Any]) -> dict[str, object]:
    """Return a link's result as a row of a table."""
    product = entry.get("product") or {}
    return {
        "link": link.partition("?")[0].removeprefix("http://"),
        "short link": entry.get("shortLink") or f"failCode {entry['failCode']}",
        "product": (product.get("name") or "")[:30],
        "price": product.get("price"),
        "commission": product.get("commission"),
        "rate": product.get("commissionRate"),
    }
