"""systemd's watchdog restarts a daemon with a hanging actor or a blocked event loop."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
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

HangingDaemon = Callable[[str], AbstractContextManager[None]]


@pytest.fixture
def hanging(service: Service) -> Iterator[HangingDaemon]:
    MODULES.mkdir(exist_ok=True)

    @contextmanager
    def hanging(how: str) -> Iterator[None]:
        (MODULES / "sitecustomize.py").write_text(PATCH.replace("            HANG\n", how))
        unit = f"[Service]\nEnvironment=PYTHONPATH={MODULES}\nWatchdogSec={WATCHDOG}\n"
        with service.drop_in(unit):
            service.systemctl("restart")
            service.store_cookie()
            yield

    yield hanging
    FLAG.unlink(missing_ok=True)
    service.systemctl("restart")


def hang_until_restarted(service: Service) -> None:
    """Let the daemon hang until systemd has restarted it."""
    before = service.pid
    FLAG.touch()
    until("the daemon is killed", lambda: service.pid != before)
    FLAG.unlink()
    service.wait_for_restart(before)


def test_hanging_actor_restarts_the_daemon(service: Service, hanging: HangingDaemon) -> None:
    with hanging(HANGS):
        cookie, since = service.stored_cookie(), now()
        hang_until_restarted(service)
        (record,) = service.journal(f"MESSAGE_ID={LogEvent.WATCHDOG.message_id}", since=since)
        assert record["ACTOR"] == "vault"
        assert "vault has shown no sign of life for " in record["MESSAGE"]
        assert " hanging < " in record["MESSAGE"]
        output = run("journalctl", "-u", "smartlinkd", "--no-pager", f"--since={since}")
        assert f"Watchdog timeout (limit {WATCHDOG}s)!" in output
        assert service.stored_cookie() == cookie


def test_blocked_event_loop_restarts_the_daemon(service: Service, hanging: HangingDaemon) -> None:
    with hanging(BLOCKS):
        cookie, since = service.stored_cookie(), now()
        hang_until_restarted(service)
        output = run("journalctl", "-u", "smartlinkd", "--no-pager", f"--since={since}")
        assert "Timeout (0:00:03)!" in output
        assert "in hanging" in output
        assert f"Watchdog timeout (limit {WATCHDOG}s)!" in output
        assert service.stored_cookie() == cookie


def test_busy_daemon_is_not_restarted(service: Service, hanging: HangingDaemon) -> None:
    with hanging(HANGS):
        before = service.pid
        kickoff = service.kickoff("slow", seconds=4 * WATCHDOG)
        assert service.execution("slow", kickoff, wait=30)["state"] == "SUCCESS"
        assert service.pid == before
