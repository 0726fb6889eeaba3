"""Chromium is killed again and again: that is nobody's end but its own."""

from __future__ import annotations

import os
import signal
import time
from contextlib import suppress

from tests.systemd.machine import PORTAL, Service, now, until

EVERY, FOR = 2.0, 30.0
LONGEST_WAIT = 30.0
"""Between two launches, at most; and some seconds for its jitter and the launch."""


def main_process(service: Service) -> int | None:
    for pid, line in service.processes().items():
        if "--remote-debugging" in line and "--type=" not in line:
            return pid
    return None


def test_it_backs_off_and_recovers_and_all_else_goes_on(service: Service) -> None:
    before, restarts = service.pid, service.restarts
    since, began = now(), time.monotonic()
    killed = 0
    while (elapsed := time.monotonic() - began) < FOR:
        if pid := main_process(service):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
                killed += 1
        token = service.login()
        assert service.execution("quick", service.kickoff("quick"), wait=10)["state"] == "SUCCESS"
        assert service.stored_cookie() is not None
        time.sleep(max(0.0, began + elapsed + EVERY - time.monotonic()))
    assert (service.pid, service.restarts) == (before, restarts)
    launches = [r for r in service.journal(since=since) if "browser is ready" in str(r["MESSAGE"])]
    print(f"killed {killed} times, came up {len(launches)} times in {FOR:g} s")
    assert 2 <= len(launches) < FOR / EVERY  # it was launched again, and not each time at once
    service.until_ready(within=LONGEST_WAIT + 10)
    link = f"http://127.0.0.1:{PORTAL + 1}/product/88201679/23456789012"
    answer = service.answer("/api/convert", {"links": [link]}, token=token)
    assert answer["mapping"][link]["failCode"] == 0
    until("its processes are all of one Chromium", lambda: _mains(service) == 1)


def _mains(service: Service) -> int:
    lines = service.processes().values()
    return sum("--remote-debugging" in line and "--type=" not in line for line in lines)
