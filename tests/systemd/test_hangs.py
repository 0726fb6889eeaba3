"""A part of the daemon hangs, or all of it: systemd ends it and starts it anew."""

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
# Python imports a module of this name at its start. It makes the vault's next answer hang, or block
# all of the daemon, once FLAG is there.
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

Hanging = Callable[[str], AbstractContextManager[None]]


@pytest.fixture
def hanging(service: Service) -> Iterator[Hanging]:
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


def struck(service: Service) -> None:
    """Have it hang until systemd has started it anew."""
    before = service.pid
    FLAG.touch()
    until("it is ended", lambda: service.pid != before)
    FLAG.unlink()
    service.started_anew(before)


def test_a_part_that_hangs(service: Service, hanging: Hanging) -> None:
    with hanging(HANGS):
        cookie, since = service.stored_cookie(), now()
        struck(service)
        (record,) = service.journal(f"MESSAGE_ID={LogEvent.WATCHDOG.message_id}", since=since)
        assert record["ACTOR"] == "vault"
        assert "vault has shown no sign of life for " in record["MESSAGE"]
        assert " hanging < " in record["MESSAGE"]
        said = run("journalctl", "-u", "smartlinkd", "--no-pager", f"--since={since}")
        assert f"Watchdog timeout (limit {WATCHDOG}s)!" in said
        assert service.stored_cookie() == cookie


def test_all_of_it_blocked(service: Service, hanging: Hanging) -> None:
    with hanging(BLOCKS):
        cookie, since = service.stored_cookie(), now()
        struck(service)
        said = run("journalctl", "-u", "smartlinkd", "--no-pager", f"--since={since}")
        assert "Timeout (0:00:03)!" in said
        assert "in hanging" in said
        assert f"Watchdog timeout (limit {WATCHDOG}s)!" in said
        assert service.stored_cookie() == cookie


def test_one_that_is_busy_is_not_ended(service: Service, hanging: Hanging) -> None:
    with hanging(HANGS):
        before = service.pid
        kickoff = service.kickoff("slow", seconds=4 * WATCHDOG)
        assert service.execution("slow", kickoff, wait=30)["state"] == "SUCCESS"
        assert service.pid == before
