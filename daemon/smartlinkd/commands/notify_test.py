"""`smartlinkd notify-test`: one notice over each configured channel, without the daemon."""

from __future__ import annotations

import socket
from datetime import UTC, datetime
from uuid import uuid4

import trio

from smartlinkd.app.components import make_channels
from smartlinkd.commands.codes import FAILED, GOOD, UNUSABLE, say
from smartlinkd.config import Settings
from smartlinkd.config.secret_files import STAND_IN_HOST
from smartlinkd.notify.channels import NotSent
from smartlinkd.wire import timestamp


def main(settings: Settings) -> int:
    """Send a test notice, and print of each channel whether it took it."""
    return trio.run(_send_all, settings)


async def _send_all(settings: Settings) -> int:
    channels = make_channels(settings)
    if not channels:
        say("no channel is configured; set url, command or apprise in [notify]")
        return UNUSABLE
    body = {
        "id": str(uuid4()),
        "event": "test",
        "account": "",
        "state": "test",
        "since": timestamp(datetime.now(UTC)),
        "text": "this is a test: notices reach you",
        "host": socket.gethostname(),
        "state_directory": str(settings.state.directory),
    }
    code = GOOD
    encrypted = _encrypted(settings)
    for channel in channels:
        if channel.name in encrypted:
            print(f"{channel.name}: not tried: it is encrypted, and only the service can read it")
            code = FAILED
            continue
        try:
            await channel.send(body)
        except NotSent as why:
            print(f"{channel.name}: not sent: {why}")
            code = FAILED
        else:
            print(f"{channel.name}: sent")
    return code


def _encrypted(settings: Settings) -> set[str]:
    """Return the names of the channels whose address could not be read here."""
    wanted = settings.notify
    secrets = {"notify.url": wanted.url}
    secrets |= {f"notify.apprise[{place}]": url for place, url in enumerate(wanted.apprise)}
    return {name for name, url in secrets.items() if STAND_IN_HOST in url.get_secret_value()}
