"""`smartlinkd demo`: the whole service in one command, against the sandbox portal.

It is a user, not a test: the daemon that it starts is the one that `serve` starts, configured by a
file, and everything after that goes through its HTTP address (`tour.py`), as any client would.
"""

from __future__ import annotations

import json
import os
import secrets
import signal
import sys
import tempfile
from collections.abc import Mapping
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

import trio

from smartlinkd import logs, tree
from smartlinkd.auth.passwords import hash_password
from smartlinkd.browser.chromium import LaunchSettings, launch
from smartlinkd.browser.errors import LaunchFailed
from smartlinkd.commands import demo_history
from smartlinkd.commands.codes import FAILED, GOOD
from smartlinkd.commands.tour import CREW, CREW_PATIENCE, Say, StepFailed, Tour
from smartlinkd.config import Settings, load
from smartlinkd.errors import Refused, leaves
from smartlinkd.sandbox.running import Sandbox
from smartlinkd.sandbox.server import open_sandbox
from smartlinkd.state import NotSaved, StateUnusable
from smartlinkd.supervision.supervisor import Escalated

FOR_THE_CREW = ("OPENAI_BASE_URL", "OPENAI_API_KEY", "OPENAI_MODEL_NAME", "OPENAI_MODEL")
"""Variables that are passed on to the crew: with the first two, a model writes its post."""


def main(*, once: bool, port: int) -> int:
    """Run the demo; with `once`, end after its steps. `GOOD` when every one of them worked."""
    logs.set_up("warning")
    say = partial(print, flush=True)
    code = GOOD
    try:
        trio.run(partial(run_demo, say, once=once, port=port))
    except* (StepFailed, Refused, NotSaved, StateUnusable, Escalated) as failures:
        for failure in leaves(failures):
            print(f"demo: {failure}", file=sys.stderr)
        code = FAILED
    except* KeyboardInterrupt:  # before the daemon listens to it, and then in a group
        code = 128 + signal.SIGINT
    return code


async def run_demo(say: Say, *, once: bool, port: int) -> None:
    """Serve, show what that does, and go on serving unless it is for `once`.

    Raises `StepFailed`, and what `open_sandbox`, `configure` and `tree.serve` raise.
    """
    with tempfile.TemporaryDirectory(prefix="smartlinkd-demo-") as folder:
        async with open_sandbox() as sandbox, trio.open_nursery() as nursery:
            password = secrets.token_urlsafe(9)
            settings = await configure(Path(folder), sandbox, password, port, say)
            listening = await nursery.start(tree.serve, settings)
            state, now = settings.state.directory, datetime.now(UTC)
            await trio.to_thread.run_sync(demo_history.fill, state, sandbox, now)
            await Tour(listening.urls[0], password, sandbox, say).run()
            if once:
                nursery.cancel_scope.cancel()
            else:
                say("The daemon keeps serving until Ctrl-C.")


async def configure(folder: Path, sandbox: Sandbox, password: str, port: int, say: Say) -> Settings:
    """Write a configuration as an owner would, and read it as `serve` does."""
    hashed = hash_password(password)
    no_sandbox = "true" if await sandbox_unusable(say) else "false"
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
    """The example crew, as an owner would write it, with what it needs of `environ`."""
    given = {name: environ[name] for name in FOR_THE_CREW if environ.get(name)}
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
deadline = {CREW_PATIENCE}
environment = {{ {", ".join(f"{name} = {_quoted(given[name])}" for name in given)} }}
"""


def _quoted(text: str) -> str:
    """As a TOML string, which for printable text is JSON's."""
    return json.dumps(text, ensure_ascii=False)


async def sandbox_unusable(say: Say) -> bool:
    """Whether Chromium starts here only without its sandbox; said aloud when it is so.

    The demo may go on without: it opens no page but its own portal's, on loopback. `serve` never
    decides this by itself.
    """
    settings = LaunchSettings()
    try:
        async with launch(settings):
            return False
    except LaunchFailed as failure:
        try:
            async with launch(LaunchSettings(no_sandbox=True)):
                pass
        except LaunchFailed:
            raise failure from None  # it is not for the sandbox
        say(f"WARNING: {failure}")
        say("WARNING: the demo goes on without Chromium's sandbox, on pages of its own only.")
        return True
