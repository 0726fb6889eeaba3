"""systemd's watchdog restarts a daemon with a hanging actor or a blocked event loop."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from smartlinkd.logs import LogEvent
from tests.systemd.machine import Service, now, run, until

MODULES = Path("/srv/hanging")
FLAG = MODULES / "now"
WATCHDOG = 4
# Python imports sitecustomize at its start. This one makes the vault's next answer hang, or block
# the event loop, once FLAG exists.
PATCH = f"""
import os, sys

if sys.argv[0].endswith("/smartlinkd"):
    import time, trio
    from smartlinkd.supervision.actor import Call

    answer = Call.answer

    async def hanging(self, state):
        if self.actor == "vault" and os.path.exists("{FLAG}"):
            HANG
        return await answer(self, state)

    Call.answer = hanging
"""
HANGS = """
            with trio.CancelScope(shield=True):
                await trio.sleep(3600)
"""
BLOCKS = """
            time.sleep(3600)
"""


@pytest.fixture(params=[HANGS, BLOCKS], ids=["actor", "event loop"])
def hanging(service: Service, request: pytest.FixtureRequest) -> Iterator[Service]:
    MODULES.mkdir(exist_ok=True)
    patch = PATCH.replace("            HANG\n", request.param)
    (MODULES / "sitecustomize.py").write_text(patch)
    unit = f"[Service]\nEnvironment=PYTHONPATH={MODULES}\nWatchdogSec={WATCHDOG}\n"
    with service.drop_in(unit):
        service.systemctl("restart")
        service.store_cookie()
        yield service
    FLAG.unlink(missing_ok=True)
    service.systemctl("restart")


def test_hanging_actor_or_event_loop_restarts_the_daemon(
    hanging: Service, request: pytest.FixtureRequest
) -> None:
    cookie, since, before = hanging.stored_cookie(), now(), hanging.pid
    FLAG.touch()
    until("the daemon is killed", lambda: hanging.pid != before)
    FLAG.unlink()
    hanging.wait_for_restart(before)
    output = run("journalctl", "-u", "smartlinkd", "--no-pager", f"--since={since}")
    assert f"Watchdog timeout (limit {WATCHDOG}s)!" in output
    assert hanging.stored_cookie() == cookie
    assert "Fatal Python error: Aborted" in output  # with the stacks of all threads
    if "[event loop]" in request.node.name:
        assert "in hanging" in output
    else:
        event = f"MESSAGE_ID={LogEvent.WATCHDOG.message_id}"
        (record,) = hanging.journal(event, since=since)
        assert record["ACTOR"] == "vault"
        assert "vault has shown no sign of life for " in record["MESSAGE"]
        assert " hanging < " in record["MESSAGE"]
