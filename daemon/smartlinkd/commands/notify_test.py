"""`smartlinkd notify-test`: one notice over each configured channel, without the daemon."""

from __future__ import annotations

import socket
from datetime import UTC, datetime
from uuid import uuid4

import trio

from smartlinkd.app.components import make_channels
from smartlinkd.commands.codes import FAILED, GOOD, UNUSABLE, say
from smartlinkd.config import Settings
from smartlinkd.notify.channels import NotSent
from smartlinkd.wire import timestamp


def main(settings: Settings) -> int:
    """Send a test notice, and print of each channel whether it took it."""
    return trio.run(_send_all, settings)


async def _send_all(settings: Settings) -> int:
    channels = make_channels(settings)
    encrypted = [key for key in settings.encrypted if key.startswith("notify.")]
    if not channels and not encrypted:
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
    for key in encrypted:
        print(f"{key}: not tried: it is encrypted, and only the service can read it")
    code = FAILED if encrypted else GOOD
    for channel in channels:
        try:
            await channel.send(body)
        except NotSent as why:
            print(f"{channel.name}: not sent: {why}")
            code = FAILED
        else:
            print(f"{channel.name}: sent")
    return code
