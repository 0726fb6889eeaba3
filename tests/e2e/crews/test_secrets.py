"""No secret of crews is told: their tokens, what their workers are given, what webhooks are called
with. Not in the log at its most talkative, not in a failure, not on disk in clear.

One daemon, with everything done to it that makes it speak of them; then a search. The log of every
other daemon of these tests is searched as well (see `Daemon.check_left_nothing`).
"""

from __future__ import annotations

import base64
import re
import sqlite3
import stat
from contextlib import closing, suppress
from typing import TYPE_CHECKING, Any

import trio

if TYPE_CHECKING:
    from tests.e2e.conftest import Daemon
    from tests.e2e.crews.conftest import Call, Client, Employing, Meet, Receiver

KEY = "sk-the-key-of-a-model-0123456789"
SIGNED_WITH = "what-webhook-calls-are-signed-with"
BEARER = "token-of-the-receiver-of-events"
PASSWORD = "password-of-the-receiver-of-questions"
BASIC = base64.b64encode(f"asker:{PASSWORD}".encode()).decode()

ASKS = """\
say '{"type": "human_input", "task_id": "only", "prompt": "good?"}'
IFS= read -r answer <&3
"""
SHOWS = """\
shown=$(env | tr '\\n"\\\\' ';  ')
say "{\\"type\\": \\"task_completed\\", \\"task_id\\": \\"only\\", \\"output\\": \\"\\"}"
say "{\\"type\\": \\"result\\", \\"output\\": \\"$shown\\"}"
"""


async def test_no_secret_is_told(employing: Employing, meet: Meet, receiver: Receiver) -> None:
    common: dict[str, Any] = {"environment": {"MODEL_KEY": KEY}, "users": ["ann"]}
    crews = {
        "asks": {**common, "script": ASKS},
        "shows": {**common, "script": SHOWS},
        "dies": {**common, "script": 'echo "no model takes $MODEL_KEY" >&2; exit 3'},
        "babbles": {**common, "script": 'echo "$MODEL_KEY"; echo "I have $MODEL_KEY" >&3'},
    }
    with employing(crews, webhooks={"secret": SIGNED_WITH}) as daemon:
        daemon.secrets |= {KEY, SIGNED_WITH, BEARER, PASSWORD, BASIC}
        asks, shows, dies, babbles = [await meet(daemon, name) for name in crews]
        await try_tokens(asks, await meet(daemon, "asks", user="ann"), shows)
        await try_webhooks(asks, receiver)
        await check_credentials(asks, receiver)

        died = await dies.ended(await dies.kick_off())
        assert died["error"].endswith("no model takes [MODEL_KEY]")
        babbled = await babbles.ended(await babbles.kick_off())
        assert "I have [MODEL_KEY]" in babbled["error"]
        check_files(daemon)
        shown = await shows.ended(await shows.kick_off())
        assert daemon.told(shown["result"]) == [KEY]  # which is on disk now: so the crew wants it
    # On leaving the block the log was searched.


async def try_tokens(client: Client, user: Client, other: Client) -> None:
    """Where they do not belong, and where they do."""
    daemon = client.daemon
    for token in (other.token, client.token + "x", user.token[:-1], daemon.token):
        answer = await daemon.ask("GET", "/crews/asks/inputs", token=token)
        assert answer.status_code == 401
    for path in (f"/inputs?token={client.token}", f"/status/{client.token}", f"/{user.token}"):
        await client.ask("GET", path)
    await client.ask("POST", "/kickoff", [client.token])
    await client.ask("POST", "/kickoff", {"inputs": client.token})
    shown = await daemon.run("crew", "token", "asks", "--user", "ann")
    assert user.token in shown
    rotated = await daemon.run("crew", "token", "asks", "--user", "ann", "--rotate")
    (new,) = re.findall(r"slu_\S+", rotated)
    daemon.secrets.add(new)
    assert (await user.ask("GET", "/inputs")).status_code == 401


async def try_webhooks(client: Client, receiver: Receiver) -> None:
    """Addresses and credentials that cannot be."""
    url, bearer = receiver.url, {"strategy": "bearer", "token": BEARER}
    spoilt = {**bearer, "token": f"{BEARER} and more"}
    for body in (
        {"crewWebhookUrl": f"http://me:{PASSWORD}@{url[len('http://') :]}/"},
        {"crewWebhookUrl": f"ftp://{PASSWORD}/"},
        {"webhooks": {"url": "http://10.0.0.1/", "events": [], "authentication": bearer}},
        {"webhooks": {"url": url, "events": [], "authentication": spoilt}},
        {"humanInputWebhook": {"url": url, "authentication": {"strategy": BEARER}}},
    ):
        assert (await client.ask("POST", "/kickoff", body)).status_code == 400


async def check_credentials(client: Client, receiver: Receiver) -> None:
    """They are sent, are encrypted until then, and gone afterwards."""
    daemon, hold, held = client.daemon, trio.Event(), trio.Event()

    async def answer(_: Call) -> int:
        held.set()
        await hold.wait()
        return 200

    receiver.answer = answer
    basic = {"strategy": "basic", "username": "asker", "password": PASSWORD}
    bearer = {"strategy": "bearer", "token": BEARER}
    kickoff_id = await client.kick_off(
        webhooks={"url": f"{receiver.url}/events", "events": [], "authentication": bearer},
        humanInputWebhook={"url": f"{receiver.url}/asks", "authentication": basic},
    )

    async def is_asked() -> bool:
        return bool((await client.status(kickoff_id))["status"] == "waiting_for_human_input")

    await daemon.until("it asks", is_asked)
    await held.wait()
    check_files(daemon)
    assert credentials(daemon) == 2
    await client.stop(kickoff_id)
    hold.set()
    await daemon.until("none is left", lambda: has_none(daemon))
    told = {call.path: call.headers["authorization"] for call in receiver.calls}
    assert told == {"/events": f"Bearer {BEARER}", "/asks": f"Basic {BASIC}"}


def credentials(daemon: Daemon) -> int:
    """How many the journal has."""
    path = f"file:{daemon.state / 'journal.sqlite3'}?mode=ro"
    with closing(sqlite3.connect(path, uri=True)) as journal:
        found = journal.execute("SELECT count(*) FROM webhooks WHERE credential IS NOT NULL")
        return int(found.fetchone()[0])


async def has_none(daemon: Daemon) -> bool:
    return credentials(daemon) == 0


def check_files(daemon: Daemon) -> None:
    """All but the configuration, which is its owner's: none has a secret in it, and those of the
    state directory are for the daemon's user alone."""
    for path in daemon.program.folder.rglob("*"):
        with suppress(FileNotFoundError):  # a worker's, and gone with it
            mode = path.stat().st_mode
            if path.is_relative_to(daemon.state):
                assert stat.S_IMODE(mode) & 0o077 == 0, path
            if stat.S_ISREG(mode) and path != daemon.config:
                assert not daemon.told(path.read_bytes().decode(errors="replace")), path
