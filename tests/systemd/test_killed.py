"""systemd restarts a daemon that was killed or stopped, and stored data is kept."""

from __future__ import annotations

import os
import signal

from tests.systemd.machine import Service, now, process_exists, run, until


def test_sigkill_keeps_cookie_and_waiting_executions(service: Service) -> None:
    cookie = service.stored_cookie()
    runs, waits = service.kickoff("slow", seconds=30), service.kickoff("slow", seconds=0)
    again = service.kickoff("again", seconds=1)
    until("the execution runs", lambda: service.execution("slow", runs)["state"] == "RUNNING")
    until("the execution runs", lambda: service.execution("again", again)["state"] == "RUNNING")
    assert service.execution("slow", waits)["state"] == "PENDING"
    before, restarts = service.pid, service.restarts
    old = service.processes()
    assert any("worker.py" in line for line in old.values())
    assert any("--type=renderer" in line for line in old.values())
    os.kill(before, signal.SIGKILL)
    service.wait_for_restart(before)
    assert service.restarts == restarts + 1
    assert service.stored_cookie() == cookie
    assert not set(old) & set(service.processes())
    until("all old processes have ended", lambda: not any(map(process_exists, old)))
    interrupted = service.execution("slow", runs)
    assert (interrupted["state"], interrupted["status"]) == ("FAILED", "interrupted")
    assert service.execution("slow", waits, wait=30)["state"] == "SUCCESS"
    assert service.execution("again", again, wait=30)["state"] == "SUCCESS"
    service.wait_until_ready()


def test_sigstop_restarts_the_daemon(service: Service) -> None:
    cookie = service.stored_cookie()
    before, since = service.pid, now()
    os.kill(before, signal.SIGSTOP)
    service.wait_for_restart(before)
    assert service.stored_cookie() == cookie
    output = run("journalctl", "-u", "smartlinkd", "--no-pager", f"--since={since}")
    assert "Watchdog timeout (limit 20s)!" in output
    assert "code=dumped" not in output  # a core file would hold the cookie
    service.wait_until_ready()
