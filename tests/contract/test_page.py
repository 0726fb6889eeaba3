"""The owner's page: its address, and the hosts that it uses."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from tests.config_file import WITHOUT_BROWSER
from tests.contract.keys import key_for

if TYPE_CHECKING:
    from tests.contract.conftest import Daemon, Running

pytestmark = pytest.mark.chromium

PREFIX = "/app/"
ADDRESS = re.compile(r'(?:src|href)="([^"]+)"')
CREW = {"name": "echo", "default": True, "runner": "command", "command": ["/bin/cat"]}


@pytest.fixture(scope="module")
def daemon(running: Running) -> Iterator[Daemon]:
    """A daemon without a browser, with a default crew; no client counts as local."""
    with running(**WITHOUT_BROWSER, cookie={"open_to": []}, crews=[CREW]) as daemon:
        yield daemon


async def files(daemon: Daemon) -> dict[str, str]:
    """Return every file that the page's head names: its path, and its text."""
    page = await daemon.ask("GET", PREFIX)
    head = page.text.partition("</head>")[0]
    paths = [page.url.join(address).path for address in ADDRESS.findall(head)]
    answers = [await daemon.ask("GET", path) for path in paths]
    assert {answer.status_code for answer in answers} == {200}
    return {path: answer.text for path, answer in zip(paths, answers, strict=True)}


@pytest.mark.parametrize("method", ["GET", "HEAD"])
async def test_root_without_authorization_leads_to_the_page(daemon: Daemon, method: str) -> None:
    answer = await daemon.ask(method, "/")
    assert answer.status_code == 302
    assert answer.url.join(answer.headers["Location"]).path == PREFIX


async def test_root_with_authorization_is_the_default_crews_health(daemon: Daemon) -> None:
    healthy = await daemon.ask("GET", "/", token=await key_for(daemon, "crews"))
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
    for address in ADDRESS.findall(answer.text):
        assert not re.match(r"[a-z]+:|//", address), address
        assert (await daemon.ask("GET", str(answer.url.join(address).path))).status_code == 200


async def test_page_and_all_its_files_lie_below_its_prefix(daemon: Daemon) -> None:
    found = await files(daemon)
    assert len(found) > 30
    assert [path for path in found if not path.startswith(PREFIX)] == []


async def test_page_and_its_files_send_no_referrer(daemon: Daemon) -> None:
    for path in (PREFIX, next(iter(await files(daemon)))):
        assert (await daemon.ask("GET", path)).headers["Referrer-Policy"] == "no-referrer"


async def test_page_is_laid_out_for_narrow_screens_and_can_be_enlarged(daemon: Daemon) -> None:
    page = (await daemon.ask("GET", PREFIX)).text
    (viewport,) = re.findall(r'<meta name="viewport" content="([^"]+)">', page)
    assert viewport == "width=device-width, initial-scale=1"  # the scale is not limited
    styles = "".join(text for path, text in (await files(daemon)).items() if path.endswith(".css"))
    assert re.search(r"@media \(max-width: \d+rem\)", styles)


async def test_page_has_every_text_in_english_and_vietnamese(daemon: Daemon) -> None:
    found = await files(daemon)
    texts = {
        language: dict(re.findall(r'^  "([\w.:-]+)": "(.+)",$', text, re.MULTILINE))
        for path, text in found.items()
        for language in ("en", "vi")
        if path.endswith(f"/{language}.js")
    }
    assert texts["en"].keys() == texts["vi"].keys()
    assert (texts["en"]["logOut"], texts["vi"]["logOut"]) == ("Log out", "Đăng xuất")
    assert len(texts["en"]) > 100
