"""An upgrade from the last version whose package was called `daemon` keeps all data."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import httpx
import pyotp
import pytest

from tests.systemd.conftest import CONFIGURATION, prepare
from tests.systemd.machine import PASSWORD, PORTAL, ROOT, VERSIONS, Json, Service, run, until

BEFORE = ROOT / ".container/before"

pytestmark = [
    pytest.mark.order("reinstall"),
    pytest.mark.skipif(
        not BEFORE.exists(),
        reason="this clone does not have the commit to upgrade from; is it shallow?",
    ),
]

STEP = 30
"""Seconds for which an authenticator app shows a code."""
RECEIVER = 9333
NEW_PACKAGE = "*/lib/python3*/site-packages/smartlinkd"
"""The last package that pip installs, under VERSIONS; the last version called it `daemon`."""
OLD_EXAMPLE = "daemon.crews.deal_post"
NEW_EXAMPLE = "smartlinkd.crews.deal_post"
INSTALL_TIME = 600.0
"""Seconds that an installation may take."""
GATE = Path("/srv/crews/upgraded")
"""A file without which the rerun execution cannot end."""
WEBHOOKS = '\n[webhooks]\nallow = ["127.0.0.1"]\n'
SHOP = f"http://127.0.0.1:{PORTAL + 1}"
CONVERTED, MEETS_CHECK = f"{SHOP}/product/88201679/23456789012", f"{SHOP}/product/1/700000001"


@dataclass
class Upgraded:
    """A service after its upgrade, and what its clients had before it."""

    service: Service
    install_output: str
    cookie: str
    token: str
    key: str
    crew_token: str
    totp: pyotp.TOTP
    used_step: int
    running: str
    queued: list[str]
    rerun: Json
    pending: str
    configuration: str

    def with_key(self, path: str) -> Json:
        answer = self.service.ask(path, token=self.key)
        assert answer.status_code == 200, answer.text
        found: Json = answer.json()
        return found


def account_states(service: Service, token: str) -> list[str]:
    accounts = service.answer("/api/account", token=token)["accounts"]
    return [each["state"] for each in accounts]


def time_step() -> int:
    return int(time.time()) // STEP


@contextmanager
def receiver(calls: list[Json]) -> Iterator[None]:
    """Append the body of each webhook call to RECEIVER to `calls`."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            calls.append(json.loads(body))
            self.send_response(204)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    server = HTTPServer(("127.0.0.1", RECEIVER), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.fixture(scope="module")
def upgraded(prepared: Service) -> Iterator[Upgraded]:
    """Install the old version, give it state, and upgrade it."""
    service = prepared
    run("./run", "uninstall", "--purge")
    service.clear_tokens()
    run("./run", "install", cwd=BEFORE)
    assert "daemon" in run(
        "/opt/smartlinkd/current/bin/python", "-Ic", "import daemon as d; print(d)"
    )
    prepare(service, CONFIGURATION.replace(NEW_EXAMPLE, OLD_EXAMPLE) + WEBHOOKS)
    service.wait_until_ready()
    cookie, token = service.store_cookie(), service.login()
    crew_token = service.crew_token("quick")

    key = service.answer(
        "/api/keys",
        {"name": "a bot", "scopes": ["convert", "history", "status"]},
        token=token,
    )["key"]
    answer = service.answer("/api/convert", {"links": [CONVERTED]}, token=token)
    assert answer["mapping"][CONVERTED]["failCode"] == 0
    until(
        "the conversion is in the history",
        lambda: service.answer("/api/history", token=key)["entries"],
    )

    GATE.unlink(missing_ok=True)
    running = service.kickoff("slow", seconds=600)
    queued = [service.kickoff("slow") for _ in range(2)]
    again = service.kickoff("again", until=str(GATE))
    until("the execution runs", lambda: service.execution("slow", running)["state"] == "RUNNING")
    until("the execution runs", lambda: service.execution("again", again)["state"] == "RUNNING")
    rerun = service.execution("again", again)

    fault = {"fault": "human_check", "times": 1}
    armed = httpx.post(f"http://127.0.0.1:{PORTAL}/_sandbox/faults", json=fault, trust_env=False)
    assert armed.status_code == 200, armed.text
    refused = service.ask("/api/convert", {"links": [MEETS_CHECK]}, token=token)
    assert refused.status_code == 502, refused.text
    assert account_states(service, token) == ["paused"]

    # Nobody listens at RECEIVER yet, so the webhook call for this end stays pending.
    webhook = {"inputs": {}, "crewWebhookUrl": f"http://127.0.0.1:{RECEIVER}/end"}
    pending = service.answer("/crews/quick/kickoff", webhook, token=crew_token)["kickoff_id"]
    assert service.execution("quick", pending, wait=20)["state"] == "SUCCESS"
    configuration = service.configuration.read_text()

    secret = service.answer("/api/auth/2fa/setup", token=token)["secret"]
    totp = pyotp.TOTP(secret)
    old = (VERSIONS / "current").readlink()
    with ThreadPoolExecutor(1) as thread:
        installing = thread.submit(run, "./run", "install")
        until(
            "the new version is nearly installed",
            lambda: installing.done() or any(VERSIONS.glob(NEW_PACKAGE)),
            within=INSTALL_TIME,
        )
        # The next step's code is valid for up to 90 s: used now, it still is after the upgrade.
        used_step = time_step() + 1
        enabling = {"secret": secret, "code": totp.at(used_step * STEP)}
        service.answer("/api/auth/2fa/enable", enabling, token=token)
        assert (VERSIONS / "current").readlink() == old
        install_output = installing.result()
    yield Upgraded(
        service=service,
        install_output=install_output,
        cookie=cookie,
        token=token,
        key=key,
        crew_token=crew_token,
        totp=totp,
        used_step=used_step,
        running=running,
        queued=queued,
        rerun=rerun,
        pending=pending,
        configuration=configuration,
    )
    run("smartlinkd", "2fa", "off", "--config", str(service.configuration))
    service.clear_tokens()


def test_second_factor_refuses_a_code_that_was_used_before(upgraded: Upgraded) -> None:
    service = upgraded.service
    login = service.answer("/api/auth/login", {"password": PASSWORD})
    assert "token" not in login
    used = {"tempToken": login["tempToken"], "code": upgraded.totp.at(upgraded.used_step * STEP)}
    refused = service.ask("/api/auth/verify-mfa", used)
    late_by = time_step() - (upgraded.used_step + 1)
    assert late_by <= 0, f"{late_by} steps too late: any daemon refuses the code by now"
    assert (refused.status_code, "was used already" in refused.text) == (401, True)
    step = time_step()
    fresh = upgraded.totp.at((step + (step == upgraded.used_step)) * STEP)
    accepted = service.ask("/api/auth/verify-mfa", used | {"code": fresh})
    assert accepted.status_code == 200, accepted.text


def test_paused_account_is_still_paused(upgraded: Upgraded) -> None:
    assert account_states(upgraded.service, upgraded.key) == ["paused"]
    again = upgraded.service.ask(
        "/api/convert", {"links": [f"{SHOP}/product/1/700000002"]}, token=upgraded.token
    )
    assert (again.status_code, "human check" in again.text) == (502, True)


def test_session_key_crew_token_and_cookie_of_before_still_work(upgraded: Upgraded) -> None:
    service = upgraded.service
    assert service.ask("/api/status", token=upgraded.token).status_code == 200
    assert upgraded.with_key("/api/account")["cookie"]["stored"] is True
    assert service.ask("/crews/quick/inputs", token=upgraded.crew_token).status_code == 200
    assert service.ask("/crews/quick/inputs", token=upgraded.crew_token[:-1]).status_code == 401
    assert service.stored_cookie() == upgraded.cookie


def test_history_of_before_is_found(upgraded: Upgraded) -> None:
    (entry,) = upgraded.with_key("/api/history")["entries"]
    assert (entry["link"], entry["client"]) == (CONVERTED, "owner")


def test_queued_executions_run_and_the_one_that_ran_is_interrupted(upgraded: Upgraded) -> None:
    service = upgraded.service
    ended = service.execution("slow", upgraded.running, wait=20)
    assert (ended["state"], ended["status"]) == ("FAILED", "interrupted")
    for queued in upgraded.queued:
        assert service.execution("slow", queued, wait=40)["state"] == "SUCCESS"


def test_execution_that_ran_is_run_again_where_its_crew_says_so(upgraded: Upgraded) -> None:
    service, before = upgraded.service, upgraded.rerun

    def runs() -> Json | None:
        found = service.execution("again", before["kickoff_id"])
        return found if found["state"] == "RUNNING" else None

    assert until("the execution runs again", runs)["started_at"] > before["started_at"]
    GATE.touch()
    assert service.execution("again", before["kickoff_id"], wait=40)["state"] == "SUCCESS"


def test_pending_webhook_is_delivered(upgraded: Upgraded) -> None:
    calls: list[Json] = []
    with receiver(calls):
        until("the call is delivered", lambda: calls, 120)
    (call,) = calls
    assert (call["kickoff_id"], call["result"]) == (upgraded.pending, "done")


def test_example_crew_runs_by_its_new_name(upgraded: Upgraded) -> None:
    config = upgraded.service.configuration
    copy = config.with_name("config.toml.before-0.2")
    assert f"{config}: {OLD_EXAMPLE} is now called {NEW_EXAMPLE}" in upgraded.install_output
    assert str(copy) in upgraded.install_output
    assert copy.read_text() == upgraded.configuration
    assert upgraded.configuration.count(OLD_EXAMPLE) == 1
    assert config.read_text() == upgraded.configuration.replace(OLD_EXAMPLE, NEW_EXAMPLE)
    run("smartlinkd", "account", "clear", "--config", str(config))
    begun = upgraded.service.kickoff("deal-post", links=[CONVERTED])
    ended = upgraded.service.execution("deal-post", begun, wait=40)
    assert ended["state"] == "SUCCESS", ended["error"]
    assert f"http://127.0.0.1:{PORTAL + 2}/" in ended["result"]


def test_package_called_daemon_is_gone(upgraded: Upgraded) -> None:
    python = "/opt/smartlinkd/current/bin/python"
    assert upgraded.service.is_active()
    assert "No module named 'daemon'" in run(python, "-Ic", "import daemon", check=False)
    assert "smartlinkd" in run(python, "-Ic", "import smartlinkd; print(smartlinkd.__file__)")
