"""Fixtures of the tests under a real systemd, in a container (`./run test --systemd`).

Pytest collects nothing in this folder elsewhere. All tests share one machine. ORDER decides which
modules run first, for the installation, and last, for the removal. The fixture `service` starts
the service if needed, so a test may leave it in any state.
"""

from __future__ import annotations

import os
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest

from smartlinkd.sandbox.session import cookie_header
from tests.systemd.machine import (
    CREW,
    CREW_SOCKET,
    CREW_URL,
    DOCUMENT,
    PASSWORD,
    PORTAL,
    Service,
    run,
    start_portal,
)

SHARED = os.environ.get("SMARTLINKD_CONTAINER", "")
collect_ignore_glob = [] if SHARED else ["*"]

ORDER = ("first", "", "reinstall", "last")
"""The order of modules, by their `pytestmark = pytest.mark.order(…)`; "" is for those without."""

DEADLINE = 180
"""Seconds for a test. An installation takes a tenth of that on an idle machine."""

WORKER = """
import json, os, socket, sys, time

line = socket.socket(fileno=int(os.environ["SMARTLINKD_FD"]))
heard, said = line.makefile("r", encoding="utf-8"), line.makefile("w", encoding="utf-8")

def say(**message):
    print(json.dumps(message), file=said, flush=True)

inputs = json.loads(heard.readline())["inputs"]
say(type="started", total_tasks=1)
say(type="task_started", task_id="t", name="t", agent="a")
time.sleep(inputs.get("seconds", 0))
while "until" in inputs and not os.path.exists(inputs["until"]):
    time.sleep(0.05)
say(type="task_completed", task_id="t", output="done")
say(type="result", output="done")
"""

CONFIGURATION = f"""
[marketplace]
portal_url = "http://127.0.0.1:{PORTAL}"
shop_url = "http://127.0.0.1:{PORTAL + 1}"
short_urls = ["http://127.0.0.1:{PORTAL + 2}"]

[[crews]]
name = "quick"
runner = "command"
command = ["/usr/bin/python3", "/srv/crews/worker.py"]

[[crews]]
name = "slow"
runner = "command"
command = ["/usr/bin/python3", "/srv/crews/worker.py"]
max_running = 1

[[crews]]
name = "again"
runner = "command"
command = ["/usr/bin/python3", "/srv/crews/worker.py"]
on_restart = "rerun"
queue = 1000

[[crews]]
name = "deal-post"
runner = "command"
command = ["/opt/smartlinkd/current/bin/python", "-m", "smartlinkd.crews.deal_post"]
tools = ["convert_links"]
inputs = ["links", {{ name = "language", default = "vi" }}]
"""


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "order(when): when a module runs: first, reinstall or last")


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    def turn(item: pytest.Item) -> int:
        mark = item.get_closest_marker("order")
        return ORDER.index(mark.args[0] if mark else "")

    items.sort(key=turn)
    for item in items:
        item.add_marker(pytest.mark.deadline(DEADLINE, reason="whole services start and stop here"))


@pytest.fixture(scope="session")
def installed() -> Service:
    """Install the service, and keep the output of `./run install`."""
    return Service(install_output=run("./run", "install"))


@pytest.fixture(scope="session")
def prepared(installed: Service) -> Service:
    """Configure the installed service: a known password, crews, and the sandbox as its portal."""
    start_portal()
    worker = Path("/srv/crews/worker.py")
    worker.parent.mkdir(parents=True, exist_ok=True)
    worker.write_text(textwrap.dedent(WORKER))
    prepare(installed, CONFIGURATION)
    return installed


def prepare(service: Service, configuration: str) -> None:
    """Give a service the tests' password and configuration, and restart it."""
    service.configure(configuration)
    hashed = run("sh", "-c", f"echo '{PASSWORD}' | smartlinkd hash-password")
    (service.configuration.parent / "credentials/auth.password_hash").write_text(hashed)
    service.systemctl("restart")


@pytest.fixture
def crew_socket(service: Service) -> Iterator[Service]:
    """Give a crew its own address, by the unit and the commands of docs/operating.md."""
    before = service.configuration.read_text()
    name = f'name = "{CREW}"\n'
    bind = CREW_URL.removeprefix("http://")
    service.configuration.write_text(before.replace(name, f'{name}bind = "{bind}"\n'))
    service.systemctl("restart")  # without a unit the daemon itself binds the address
    _, found, rest = DOCUMENT.partition(f"# {CREW_SOCKET}\n")
    assert found, f"docs/operating.md has no {CREW_SOCKET}"
    unit, _, rest = rest.partition("```")
    CREW_SOCKET.write_text(unit.replace("crew-research", f"crew-{CREW}"))
    _, _, rest = rest.partition("```sh\n")
    run("sh", "-euc", rest.partition("```")[0].replace("sudo ", ""))
    yield service
    run("systemctl", "disable", "--now", CREW_SOCKET.name, check=False)
    CREW_SOCKET.unlink(missing_ok=True)
    service.configuration.write_text(before)
    service.systemctl("restart")


@pytest.fixture
def service(prepared: Service) -> Service:
    """Return the service: running, with a ready browser and a stored cookie."""
    if not prepared.is_active():
        run("systemctl", "start", "smartlinkd.socket", "smartlinkd.service")
    prepared.wait_until_ready()
    if prepared.stored_cookie() != cookie_header():
        prepared.store_cookie()
    return prepared
