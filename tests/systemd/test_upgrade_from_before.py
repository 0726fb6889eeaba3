"""An upgrade from the last version whose package was called `daemon`, with all that may be lost."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, HTTPServer

import httpx
import pyotp
import pytest

from tests.systemd.conftest import CONFIGURATION, prepare
from tests.systemd.machine import PASSWORD, PORTAL, ROOT, Json, Service, run, until

BEFORE = ROOT / ".container/before"

pytestmark = [
    pytest.mark.order("anew"),
    pytest.mark.skipif(
        not BEFORE.exists(), reason="a shallow clone has not the commit to upgrade from"
    ),
]

STEP = 30
"""Seconds for which an authenticator app shows a code."""
RECEIVER = 9333
OLD_EXAMPLE = "daemon.crews.deal_post"
NEW_EXAMPLE = "smartlinkd.crews.deal_post"
WEBHOOKS = '\n[webhooks]\nallow = ["127.0.0.1"]\n'
SHOP = f"http://127.0.0.1:{PORTAL + 1}"
CONVERTED, MEETS_CHECK = f"{SHOP}/product/88201679/23456789012", f"{SHOP}/product/1/700000001"


@dataclass
class Upgraded:
    """A service after its upgrade, and what its clients had before it."""

    service: Service
    said: str
    cookie: str
    token: str
    key: str
    crew_token: str
    totp: pyotp.TOTP
    used_code: str
    used_at: float
    running: str
    queued: list[str]
    rerun: str
    owed: str
    received: list[Json] = field(default_factory=list)

    def with_key(self, path: str) -> Json:
        answer = self.service.ask(path, token=self.key)
        assert answer.status_code == 200, answer.text
        found: Json = answer.json()
        return found


def account_states(service: Service, token: str) -> list[str]:
    accounts = service.answer("/api/account", token=token)["accounts"]
    return [each["state"] for each in accounts]


@contextmanager
def receiver(calls: list[Json]) -> Iterator[None]:
    """Receive webhook calls on RECEIVER."""

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
    service.forget_tokens()
    run("./run", "install", cwd=BEFORE)
    assert "daemon" in run(
        "/opt/smartlinkd/current/bin/python", "-Ic", "import daemon as d; print(d)"
    )
    prepare(service, CONFIGURATION.replace(NEW_EXAMPLE, OLD_EXAMPLE) + WEBHOOKS)
    service.until_ready()
    cookie, token = service.store_cookie(), service.login()
    crew_token = service.crew_token("quick")

    key = service.answer(
        "/api/keys",
        {"name": "a bot", "scopes": ["convert", "history", "status"]},
        token=token,
    )["key"]
    answer = service.answer("/api/convert", {"links": [CONVERTED]}, token=token)
    assert answer["mapping"][CONVERTED]["failCode"] == 0
    until("it is in the history", lambda: service.answer("/api/history", token=key)["entries"])

    webhook = {"inputs": {}, "crewWebhookUrl": f"http://127.0.0.1:{RECEIVER}/end"}
    owed = service.answer("/crews/quick/kickoff", webhook, token=crew_token)["kickoff_id"]
    assert service.execution("quick", owed, wait=20)["state"] == "SUCCESS"
    running = service.kickoff("slow", seconds=600)
    queued = [service.kickoff("slow") for _ in range(2)]
    rerun = service.kickoff("again", seconds=15)
    until("it runs", lambda: service.execution("slow", running)["state"] == "RUNNING")
    until("it runs", lambda: service.execution("again", rerun)["state"] == "RUNNING")

    fault = {"fault": "human_check", "times": 1}
    armed = httpx.post(f"http://127.0.0.1:{PORTAL}/_sandbox/faults", json=fault, trust_env=False)
    assert armed.status_code == 200, armed.text
    refused = service.ask("/api/convert", {"links": [MEETS_CHECK]}, token=token)
    assert refused.status_code == 502, refused.text
    assert account_states(service, token) == ["paused"]

    secret = service.answer("/api/auth/2fa/setup", token=token)["secret"]
    totp, now = pyotp.TOTP(secret), time.time()
    code = totp.at(int(now) + STEP)
    service.answer("/api/auth/2fa/enable", {"secret": secret, "code": code}, token=token)

    said = run("./run", "install")
    yield Upgraded(
        service, said, cookie, token, key, crew_token, totp, code, now, running, queued, rerun, owed
    )
    run("smartlinkd", "2fa", "off", "--config", str(service.configuration))
    service.forget_tokens()


def test_second_factor_refuses_a_code_that_was_used_before(upgraded: Upgraded) -> None:
    service = upgraded.service
    temp = service.answer("/api/auth/login", {"password": PASSWORD})["tempToken"]
    used = {"tempToken": temp, "code": upgraded.used_code}
    refused = service.ask("/api/auth/verify-mfa", used)
    age = time.time() - upgraded.used_at
    assert age < 2 * STEP, f"{age:.0f} s: the code was too old anyway, so this says nothing"
    assert (refused.status_code, "was used already" in refused.text) == (401, True)
    for ahead in (-1, 0, 1):
        fresh = upgraded.totp.at(int(time.time()) + ahead * STEP)
        if fresh != upgraded.used_code:
            break
    assert (
        service.ask("/api/auth/verify-mfa", {"tempToken": temp, "code": fresh}).status_code == 200
    )


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
    assert service.execution("again", upgraded.rerun, wait=60)["state"] == "SUCCESS"


def test_owed_webhook_is_delivered(upgraded: Upgraded) -> None:
    calls: list[Json] = []

    def delivered() -> bool:
        return any(call["kickoff_id"] == upgraded.owed for call in calls)

    with receiver(calls):
        until("it is delivered", delivered, 120)


def test_example_crew_runs_by_its_new_name(upgraded: Upgraded) -> None:
    config = upgraded.service.configuration
    copy = config.with_name("config.toml.before-0.2")
    assert f"{config}: {OLD_EXAMPLE} is now called {NEW_EXAMPLE}" in upgraded.said
    assert str(copy) in upgraded.said
    assert copy.read_text().replace(OLD_EXAMPLE, NEW_EXAMPLE) == config.read_text()
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
