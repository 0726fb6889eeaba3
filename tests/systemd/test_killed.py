"""The daemon is killed, or hangs: systemd has it back, and it has what it promised to keep."""

from __future__ import annotations

import os
import signal
import time

from tests.systemd.machine import Service, is_there, now, run, until


def test_sigkill(service: Service) -> None:
    cookie = service.stored_cookie()
    runs, waits = service.kickoff("slow", seconds=30), service.kickoff("slow", seconds=0)
    again = service.kickoff("again", seconds=1)
    until("they run", lambda: service.execution("slow", runs)["state"] == "RUNNING")
    until("they run", lambda: service.execution("again", again)["state"] == "RUNNING")
    assert service.execution("slow", waits)["state"] == "PENDING"
    before, restarts = service.pid, service.restarts
    old = service.processes()
    assert any("worker.py" in line for line in old.values())
    assert any("--type=renderer" in line for line in old.values())
    os.kill(before, signal.SIGKILL)
    service.started_anew(before)
    assert service.restarts == restarts + 1
    assert service.stored_cookie() == cookie
    assert not set(old) & set(service.processes())
    until("nothing of it is left", lambda: not any(map(is_there, old)))
    interrupted = service.execution("slow", runs)
    assert (interrupted["state"], interrupted["status"]) == ("FAILED", "interrupted")
    assert service.execution("slow", waits, wait=30)["state"] == "SUCCESS"
    assert service.execution("again", again, wait=30)["state"] == "SUCCESS"
    service.until_ready()


def test_sigstop(service: Service) -> None:
    cookie = service.stored_cookie()
    before, since, began = service.pid, now(), time.monotonic()
    os.kill(before, signal.SIGSTOP)
    service.started_anew(before)
    print(f"back {time.monotonic() - began:.1f} s after it hung")
    assert service.stored_cookie() == cookie
    told = run("journalctl", "-u", "smartlinkd", "--no-pager", f"--since={since}")
    assert "Watchdog timeout (limit 20s)!" in told
    assert "code=dumped" not in told  # a core file would hold the cookie
    service.until_ready()
