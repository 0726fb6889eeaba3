"""The configurations of docs/operating.md for reverse proxies, with real proxies.

All addresses are on this machine. Strangers call from addresses that are not loopback ones, and
the daemon opens the cookie to all loopback addresses.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from smartlinkd.sandbox.session import cookie_header
from tests.systemd.machine import DOCUMENT, PASSWORD, PORTAL, Service, run, until

PROXIES = Path(os.environ.get("SMARTLINKD_PROXIES", "/"))
HOST = "links.example.org"
STRANGER = "203.0.113.7"
GUESSER = "203.0.113.8"
URL = "https://127.0.0.1"
# Headers by which a client can claim another address.
FORGED = [
    {},
    *({name: "127.0.0.1"} for name in ("X-Forwarded-For", "X-Real-IP", "X-Client-IP")),
    {"Forwarded": "for=127.0.0.1"},
    {"X-Forwarded-For": "127.0.0.1", "X-Real-IP": "127.0.0.1", "Forwarded": "for=127.0.0.1"},
    {"X-Forwarded-For": "127.0.0.1, 127.0.0.1"},
    {"Connection": "X-Forwarded-For, X-Real-IP"},
]
# Let Caddy sign its certificates itself: there is no network for a certificate authority.
LOCAL_CERTIFICATES = "{\n\tlocal_certs\n\tskip_install_trust\n\tadmin off\n}\n"
NGINX = "daemon off;\npid /run/nginx.pid;\nevents {}\nhttp {\naccess_log off;\n%s\n}\n"


def snippet(kind: str) -> str:
    """Return the example in docs/operating.md that names HOST, in this language."""
    snippets: list[str] = re.findall(rf"```{kind}\n(.*?)```", DOCUMENT, flags=re.DOTALL)
    (found,) = [text for text in snippets if HOST in text]
    return found


def program(path: str) -> str:
    """Return the path of a program of Debian, installed or unpacked."""
    installed = Path("/", path)
    return str(installed if installed.exists() else PROXIES / path)


def caddy(folder: Path) -> list[str]:
    (folder / "Caddyfile").write_text(LOCAL_CERTIFICATES + snippet("caddyfile"))
    config = str(folder / "Caddyfile")
    return [program("usr/bin/caddy"), "run", "--adapter", "caddyfile", "--config", config]


def nginx(folder: Path) -> list[str]:
    live = Path(f"/etc/letsencrypt/live/{HOST}")
    live.mkdir(parents=True, exist_ok=True)
    Path("/var/lib/nginx").mkdir(exist_ok=True)  # the package would create it
    key, certificate = str(live / "privkey.pem"), str(live / "fullchain.pem")
    run(
        *("openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"),
        *("-nodes", "-subj", f"/CN={HOST}", "-keyout", key, "-out", certificate),
    )
    (folder / "nginx.conf").write_text(NGINX % snippet("nginx"))
    config = str(folder / "nginx.conf")
    return [program("usr/sbin/nginx"), "-p", str(folder), "-e", "stderr", "-c", config]


@pytest.fixture(scope="module")
def documented(prepared: Service) -> Iterator[Service]:
    """Configure the service as documented, but with the most permissive `open_to`."""
    good = prepared.configuration.read_text()
    text = snippet("toml").replace("open_to = []", 'open_to = ["127.0.0.0/8", "::1/128"]')
    assert "127.0.0.0/8" in text
    _, _, rest = good.partition("[state]\n")
    state, _, ours = rest.partition("[cookie]\n")
    prepared.configuration.write_text(f"{text}[state]\n{state}{ours.partition(']')[2]}")
    prepared.systemctl("restart")
    for each in (STRANGER, GUESSER):
        run("ip", "address", "add", f"{each}/32", "dev", "lo")
    yield prepared
    for each in (STRANGER, GUESSER):
        run("ip", "address", "delete", f"{each}/32", "dev", "lo")
    prepared.configuration.write_text(good)
    prepared.systemctl("restart")


@pytest.fixture(scope="module", params=[caddy, nginx], ids=["caddy", "nginx"])
def proxy(
    request: pytest.FixtureRequest, documented: Service, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Service]:
    """Run a proxy in front of the daemon."""
    folder = tmp_path_factory.mktemp("proxy")
    environment = {"HOME": str(folder), "PATH": os.environ["PATH"]}
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(
            request.param(folder), cwd=folder, env=environment, stdout=log, stderr=log
        )
    try:
        until("the proxy answers", lambda: answers(process, folder))
        yield documented
    finally:
        process.terminate()
        process.wait()


def answers(process: subprocess.Popen[bytes], folder: Path) -> bool:
    assert process.poll() is None, (folder / "log").read_text()
    try:
        return call("/api/health").status_code == 200
    except httpx.HTTPError:
        return False


def call(
    path: str,
    body: object = None,
    *,
    headers: dict[str, str] | None = None,
    token: str = "",
    sender: str = STRANGER,
) -> httpx.Response:
    """Send a request to the proxy from the address `sender`."""
    transport = httpx.HTTPTransport(verify=False, local_address=sender)
    given = {"Host": HOST, **(headers or {})}
    if token:
        given["Authorization"] = f"Bearer {token}"
    with httpx.Client(transport=transport, timeout=30) as client:
        return client.request(
            "GET" if body is None else "POST",
            URL + path,
            json=body,
            headers=given,
            extensions={"sni_hostname": HOST},
        )


@pytest.mark.parametrize("forged", FORGED, ids=str)
def test_stranger_cannot_read_the_cookie(proxy: Service, forged: dict[str, str]) -> None:
    if proxy.stored_cookie() is None:
        proxy.store_cookie()
    answer = call("/api/sync-cookie", headers=forged)
    assert answer.status_code == 403
    assert "SPC_" not in answer.text
    answer = call("/api/sync-cookie", {"cookie": "SPC_U=1; SPC_EC=2"}, headers=forged)
    assert answer.status_code == 403
    assert proxy.stored_cookie() == cookie_header()
    assert call("/metrics", headers=forged).status_code == 403


def test_cookie_is_open_to_local_addresses(proxy: Service) -> None:
    """Without this, `test_stranger_cannot_read_the_cookie` would prove nothing."""
    assert proxy.ask("/api/sync-cookie").status_code == 200


def test_owner_can_use_the_api(proxy: Service) -> None:
    proxy.wait_until_ready()
    token = call("/api/auth/login", {"password": PASSWORD}).json()["token"]
    cookie = {"cookie": cookie_header(), "accountName": "me"}
    assert call("/api/sync-cookie", cookie, token=proxy.sync_key).status_code == 200
    assert call("/api/sync-cookie", token=token).json()["cookie"] == cookie_header()
    link = f"http://127.0.0.1:{PORTAL + 1}/product/88201679/23456789012"
    answer = call("/api/convert", {"links": [link]}, token=token)
    assert answer.json()["mapping"][link]["failCode"] == 0
    crew = proxy.crew_token("quick")
    begun = call("/crews/quick/kickoff", {"inputs": {}}, token=crew).json()["kickoff_id"]
    assert proxy.execution("quick", begun, wait=20)["state"] == "SUCCESS"
    assert call(f"/crews/quick/status/{begun}?wait=1", token=crew).json()["result"] == "done"


def test_proxy_does_not_buffer_events(proxy: Service) -> None:
    crew = proxy.crew_token("slow")
    begun = proxy.kickoff("slow", seconds=3)
    transport = httpx.HTTPTransport(verify=False)
    headers = {"Host": HOST, "Authorization": f"Bearer {crew}"}
    extensions = {"sni_hostname": HOST}
    seen = []
    with (
        httpx.Client(transport=transport, timeout=30) as client,
        client.stream(
            "GET", f"{URL}/crews/slow/events/{begun}", headers=headers, extensions=extensions
        ) as stream,
    ):
        for line in stream.iter_lines():
            if line.startswith("data:"):
                seen.append(json.loads(line.removeprefix("data:"))["type"])
                if seen[-1] == "task_started":
                    assert proxy.execution("slow", begun)["state"] == "RUNNING"
    assert seen[-1] == "crew_kickoff_completed"


def test_wrong_passwords_limit_only_their_own_address(proxy: Service) -> None:
    """The daemon knows the client's address behind the proxy."""
    for _ in range(12):
        refused = call("/api/auth/login", {"password": "wrong password"}, sender=GUESSER)
    assert refused.status_code == 429
    right = {"password": PASSWORD}
    assert call("/api/auth/login", right, sender=GUESSER).status_code == 429
    assert call("/api/auth/login", right).status_code == 200
