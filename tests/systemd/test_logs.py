"""The service's records in the journal, and the confinement of the notify command."""

from __future__ import annotations

import json
from collections.abc import Iterator

import httpx
import pytest

from smartlinkd.logs import LogEvent
from tests.systemd.conftest import CONFIGURATION
from tests.systemd.machine import PORTAL, Service, now, run, until

TELL = """
[notify]
command = ["/bin/sh", "-c", 'cat >>"$SMARTLINKD_STATE_DIRECTORY/told"; id >/dev/null']
"""


@pytest.fixture
def notifying(service: Service) -> Iterator[Service]:
    service.configure(CONFIGURATION + TELL)
    service.systemctl("restart")
    service.wait_until_ready()
    yield service
    service.configure(CONFIGURATION)
    service.systemctl("restart")
    service.wait_until_ready()


def test_start_is_found_by_its_message_id(service: Service) -> None:
    since = now()
    service.systemctl("restart")
    events = [LogEvent.STOPPING, LogEvent.STOPPED, LogEvent.STARTED]
    for event in events:
        (found,) = service.journal(f"MESSAGE_ID={event.message_id}", since=since)
        assert (found["_TRANSPORT"], found["EVENT"]) == ("journal", event.name.lower())
        assert (found["PRIORITY"], found["SYSLOG_IDENTIFIER"]) == ("6", "smartlinkd")


def test_execution_is_found_by_its_id(service: Service) -> None:
    kickoff_id = service.kickoff("quick")
    assert service.execution("quick", kickoff_id, wait=20)["state"] == "SUCCESS"

    def events() -> list[str]:
        records = service.journal(f"KICKOFF_ID={kickoff_id}", "CREW=quick")
        return [record["EVENT"] for record in records if "EVENT" in record]

    until(
        "the records of the start and the end",
        lambda: events() == ["execution_accepted", "execution_finished"],
    )


def test_notify_command_runs_confined(notifying: Service) -> None:
    notice_file = notifying.state / "told"
    since = now()
    body = {"fault": "human_check", "times": 1}
    httpx.post(f"http://127.0.0.1:{PORTAL}/_sandbox/faults", json=body, trust_env=False)
    link = f"http://127.0.0.1:{PORTAL + 1}/product/88201679/{PORTAL}7"
    try:
        answer = notifying.ask("/api/convert", {"links": [link]}, token=notifying.login())
        assert answer.status_code == 502
        until(
            "the command has run",
            lambda: notice_file.exists() and notice_file.read_text().endswith("\n"),
        )
        notice = json.loads(notice_file.read_text())
        assert (notice["event"], notice["state"]) == ("account_paused", "paused")
        (paused,) = notifying.journal(f"ACCOUNT={notice['account']}", since=since)
        assert paused["MESSAGE_ID"] == LogEvent.ACCOUNT_PAUSED.message_id
        assert paused["REQUEST_ID"] == answer.headers["X-Request-Id"]
        output = run("systemctl", "status", "--no-pager", notifying.name)
        assert "paused" in output
        shown = json.loads(run("smartlinkd", "account", "show", "--json"))
        (account,) = [one for one in shown["accounts"] if one["name"] == notice["account"]]
        assert (account["state"], account["since"]) == ("paused", notice["since"])
    finally:
        run("smartlinkd", "account", "clear")
        notice_file.unlink(missing_ok=True)
    assert notifying.journal(f"MESSAGE_ID={LogEvent.NOTICE_LOST.message_id}", since=since) == []
