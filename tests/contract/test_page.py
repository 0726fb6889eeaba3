"""The owner's page: where it is, and whom it asks for anything."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.contract.conftest import Daemon, Running

pytestmark = pytest.mark.chromium

PREFIX = "/app/"


@pytest.mark.parametrize("method", ["GET", "HEAD"])
async def test_root_without_authorization_leads_to_the_page(daemon: Daemon, method: str) -> None:
    answer = await daemon.ask(method, "/")
    assert answer.status_code == 302
    assert answer.url.join(answer.headers["Location"]).path == PREFIX


async def test_root_with_authorization_is_the_default_crews_health(running: Running) -> None:
    crew = {"name": "echo", "default": True, "runner": "command", "command": ["/bin/cat"]}
    with running(links={"source": "open_api"}, open_api=OPEN_API, crews=[crew]) as daemon:
        token = await daemon.login()
        asked = await daemon.ask("POST", "/api/crews/token", {"crew": "echo"}, token=token)
        crew_token = asked.json()["token"]
        daemon.secrets.add(crew_token)
        healthy = await daemon.ask("GET", "/", token=crew_token)
        assert (healthy.status_code, healthy.text) == (200, "Healthy")
        assert (await daemon.ask("GET", "/", token="wrong")).status_code == 401
        assert (await daemon.ask("GET", "/")).status_code == 302


async def test_page_has_a_policy_without_unsafe_words_and_loads_from_itself(
    daemon: Daemon,
) -> None:
    answer = await daemon.ask("GET", PREFIX)
    policy = answer.headers["Content-Security-Policy"]
    assert "unsafe" not in policy
    hosts = set(re.findall(r"https?://[^ ;]+", policy))
    assert hosts == {"https://down-vn.img.susercontent.com"}
    for address in re.findall(r'(?:src|href)="([^"]+)"', answer.text):
        assert not re.match(r"[a-z]+:|//", address), address
        assert (await daemon.ask("GET", str(answer.url.join(address).path))).status_code == 200


OPEN_API = {"app_id": "1", "secret": "none-is-needed", "url": "http://127.0.0.1:1/graphql"}
