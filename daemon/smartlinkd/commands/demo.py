"""`smartlinkd demo`: the whole service in one command, against the sandbox portal.

It acts as a user: it writes a configuration, starts the daemon that `serve` starts, and then works
through its HTTP address, by the Python client. It prints the commands to do that again.
"""

from __future__ import annotations

import os
import secrets
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import trio
from pydantic import SecretStr

from smartlinkd import logs
from smartlinkd.app import tree
from smartlinkd.auth.passwords import hash_password
from smartlinkd.browser.chromium import LaunchSettings, launch
from smartlinkd.browser.errors import LaunchFailed
from smartlinkd.client import ClientError, CrewClient, Smartlinkd
from smartlinkd.client.client import LinkEntry
from smartlinkd.commands import demo_history
from smartlinkd.commands.codes import FAILED, GOOD
from smartlinkd.commands.crew import describe
from smartlinkd.commands.table import table
from smartlinkd.config import Settings, load
from smartlinkd.config.problems import format_toml
from smartlinkd.conversion.schemas import SuccessEntry
from smartlinkd.errors import Refused, leaves
from smartlinkd.sandbox.products import PRODUCTS
from smartlinkd.sandbox.server import open_sandbox
from smartlinkd.sandbox.session import cookie_header
from smartlinkd.sandbox.state import SandboxState
from smartlinkd.state_files import NotSaved, StateUnusable
from smartlinkd.supervision.supervisor import Escalated

CREW_VARIABLES = ("OPENAI_BASE_URL", "OPENAI_API_KEY", "OPENAI_MODEL_NAME", "OPENAI_MODEL")
"""Variables that the crew gets. With the first two, a model writes its post."""

TIMEOUT = 60.0
"""Seconds for the browser to become ready on a small machine."""

CREW = "deal-post"
CREW_DEADLINE = 180
"""Seconds for the crew; its model may take 90 of them."""

SUB_IDS = ("demo",)

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
            urls = await nursery.start(_serve, settings, nursery.cancel_scope)
            state, now = settings.state.directory, datetime.now(UTC)
            if not await trio.to_thread.run_sync(demo_history.fill, state, sandbox, now):
                raise StepFailed("the demo's older links could not be written into its history")
            steps = partial(run_steps, urls[0], password, sandbox, say)
            await trio.to_thread.run_sync(steps, abandon_on_cancel=True)
            if once:
                nursery.cancel_scope.cancel()
            else:
                say("The daemon keeps serving until Ctrl-C.")


async def _serve(
    settings: Settings, around: trio.CancelScope, task_status: trio.TaskStatus[Sequence[str]]
) -> None:
    """Run the daemon until a signal stops it, then cancel `around`: a step may wait for it."""
    await tree.serve(settings, task_status=task_status)
    around.cancel()


async def configure(
    folder: Path, sandbox: SandboxState, password: str, port: int, say: Say
) -> Settings:
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
portal_url = "{sandbox.origins.portal}"
shop_url = "{sandbox.origins.shop}"
short_urls = ["{sandbox.origins.short}"]
{crew_table(os.environ)}""",
        encoding="utf-8",
    )
    path.chmod(0o600)
    say(f"sandbox portal   {sandbox.origins.portal}")
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
command = {format_toml([sys.executable, "-m", "smartlinkd.crews.deal_post"])}
tools = ["convert_links"]
inputs = [
  {{ name = "links", description = "product or short links, one on each line" }},
  {{ name = "language", default = "vi", description = "of the post: vi or en" }},
  {{ name = "subIds", default = [], description = "tracking sub-ids, with commas between" }},
  {{ name = "title", default = "", description = "of the post; empty: one is found" }},
]
users = ["guest"]
deadline = {CREW_DEADLINE}
environment = {format_toml(given)}
"""


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


def run_steps(url: str, password: str, sandbox: SandboxState, say: Say) -> None:
    """Work through the daemon at `url` as a client would. Blocks. Raises `StepFailed`."""
    try:
        with client(url) as daemon:
            daemon.log_in(SecretStr(password), lambda: SecretStr(""))
            say(f"daemon           {url}   (API: {url}/docs)")
            daemon.sync_cookie(SecretStr(cookie_header()), account_name="Demo")
            wait_for_browser(daemon)
            links = demo_links(sandbox)
            show(links, dict(daemon.convert(list(links), SUB_IDS)), say)
            token = daemon.crew_token(CREW)
        with client(url, token) as daemon:
            run_crew(daemon.crew(CREW), list(links), say)
    except ClientError as failure:
        raise StepFailed(str(failure)) from None
    say(explain(url, password, next(iter(links)), token))


def client(url: str, key: str | None = None) -> Smartlinkd:
    """Return a client of the daemon. With its transport, no proxy of the owner's shell is used."""
    return Smartlinkd(url, key, transport=httpx.HTTPTransport())


def demo_links(sandbox: SandboxState) -> dict[str, bool]:
    """Return the links to convert. The value is True if the link should work."""
    shop, short = sandbox.origins.shop, sandbox.origins.short
    first, second, third, *_ = PRODUCTS
    return {
        f"{shop}/product/{first.shop_id}/{first.item_id}": True,
        f"{shop}/Ten-san-pham-i.{second.shop_id}.{second.item_id}?sp_atk=abc": True,
        f"{shop}/opaanlp/{third.shop_id}/{third.item_id}": True,
        f"{short}/direct": True,
        f"{short}/chain3": True,
        f"{short}/gone": False,
    }


def wait_for_browser(daemon: Smartlinkd) -> None:
    """Wait until the browser is ready. Raises `StepFailed`."""
    end = time.monotonic() + TIMEOUT
    while (browser := daemon.status().browser) is None or not browser.ready:
        if time.monotonic() > end:
            raise StepFailed(
                f"the browser was not ready within {TIMEOUT:g} s; try smartlinkd doctor"
            )
        time.sleep(0.05)  # the status tells nobody of a change


def show(links: Mapping[str, bool], mapping: Mapping[str, LinkEntry], say: Say) -> None:
    """Print the links' results. Raises `StepFailed` if they are not as expected."""
    rows = [row(link, mapping[link].model_dump(mode="json")) for link in links]
    say("")
    say(table({"converted": rows}))
    wrong = [
        link for link, works in links.items() if isinstance(mapping[link], SuccessEntry) != works
    ]
    if wrong:
        raise StepFailed(f"unexpected result for {', '.join(wrong)}")


def run_crew(crew: CrewClient, links: Sequence[str], say: Say) -> None:
    """Run the crew, and print its events and its post. Raises `StepFailed`."""
    execution = crew.kickoff({"links": list(links), "subIds": list(SUB_IDS)})
    say(f"\ncrew {CREW}, execution {execution}")
    for event in crew.events(execution):
        if line := describe(event):
            say(f"  {line.plain}")
    status = crew.status(execution)
    if status.state != "SUCCESS":
        raise StepFailed(f"the crew {CREW} wrote no post ({status.state}): {status.error}")
    say("")
    say("\n".join(f"  | {line}".rstrip() for line in str(status.result).splitlines()))


def explain(url: str, password: str, link: str, crew_token: str) -> str:
    """Return the commands that do the steps again."""
    crew = f"{url}/crews/{CREW}"
    return f"""
To do it again:
  TOKEN=$(printf '{{"password": "%s"}}' '{password}' \\
    | curl -s {url}/api/auth/login -H 'Content-Type: application/json' -d @- \\
    | sed 's/.*"token":"\\([^"]*\\)".*/\\1/')
  printf 'Authorization: Bearer %s\\n' "$TOKEN" \\
    | curl -s {url}/api/convert -H @- -H 'Content-Type: application/json' \\
    -d '{{"links": ["{link}"]}}'
  curl -s {url}/api/health

The crew, by its own token:
  with_token() {{ printf 'Authorization: Bearer %s\\n' '{crew_token}' | curl -s -H @- "$@"; }}
  ID=$(with_token {crew}/kickoff -H 'Content-Type: application/json' \\
    -d '{{"inputs": {{"links": ["{link}"], "language": "en"}}}}' \\
    | sed 's/.*"kickoff_id": *"\\([^"]*\\)".*/\\1/')
  with_token -N {crew}/events/$ID
  with_token {crew}/status/$ID

In a browser: {url}/app/   (password: {password})
"""


def row(link: str, entry: Mapping[str, Any]) -> dict[str, object]:
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
