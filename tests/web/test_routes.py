"""How the page's files are answered: addresses, caching, compression, and the policy."""

from __future__ import annotations

import base64
import gzip
import hashlib
import re
from html.parser import HTMLParser
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from smartlinkd.http_server import GuardedQuart


class Named(HTMLParser):
    """The addresses that a page names, its inline scripts, and its inline styles and handlers."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.addresses: list[str] = []
        self.preloads: list[str] = []
        self.scripts: list[str] = []
        self.unsafe = 0
        self._in_script = False
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        self.addresses += [value for key in ("src", "href") if (value := given.get(key))]
        if given.get("rel") == "modulepreload":
            self.preloads.append(given["href"] or "")
        self._in_script = tag == "script" and "src" not in given
        self.unsafe += tag == "style" or any(key == "style" or key[:2] == "on" for key in given)

    def handle_endtag(self, tag: str) -> None:  # noqa: ARG002
        self._in_script = False

    def handle_data(self, data: str) -> None:
        if self._in_script:
            self.scripts.append(data)


async def page_of(app: GuardedQuart) -> Named:
    response = await app.test_client().get("/app/")
    assert response.status_code == 200
    return Named(await response.get_data(as_text=True))


async def test_modules_before_the_first_view_are_all_preloaded(app: GuardedQuart) -> None:
    named = await page_of(app)
    assert any(each.endswith("views/convert/index.js") for each in named.preloads)
    assert not any("uplot" in each or "views/system" in each for each in named.preloads)
    assert len(named.preloads) == len(set(named.preloads))


async def test_first_load_is_at_most_150_kb_compressed(app: GuardedQuart) -> None:
    named = await page_of(app)
    size = 0
    for address in ["", *named.addresses]:
        if not address.startswith(".."):
            response = await app.test_client().get(
                f"/app/{address}", headers={"Accept-Encoding": "gzip"}
            )
            size += len(await response.get_data(as_text=False))
    assert size <= 150_000


async def test_content_address_is_cached_for_good_and_the_page_is_not(app: GuardedQuart) -> None:
    client = app.test_client()
    [script] = [each for each in (await page_of(app)).addresses if each.endswith("main.js")]
    assert "immutable" in (await client.get(f"/app/{script}")).headers["Cache-Control"]
    for path in ("/app/", "/app/manifest.webmanifest", "/app/icon-192.png"):
        assert (await client.get(path)).headers["Cache-Control"] == "no-cache"


@pytest.mark.parametrize("encoding", ["gzip", "identity"])
async def test_known_etag_is_answered_with_304(app: GuardedQuart, encoding: str) -> None:
    client, headers = app.test_client(), {"Accept-Encoding": encoding}
    first = await client.get("/app/", headers=headers)
    again = await client.get("/app/", headers={**headers, "If-None-Match": first.headers["ETag"]})
    assert again.status_code == 304
    assert await again.get_data() == b""
    other = await client.get("/app/", headers={**headers, "If-None-Match": '"another"'})
    assert other.status_code == 200


async def test_gzip_copy_unpacks_to_the_file_and_has_an_etag_of_its_own(app: GuardedQuart) -> None:
    client = app.test_client()
    plain = await client.get("/app/", headers={"Accept-Encoding": "identity"})
    packed = await client.get("/app/", headers={"Accept-Encoding": "br, gzip"})
    assert packed.headers["Content-Encoding"] == "gzip"
    assert "Content-Encoding" not in plain.headers
    assert gzip.decompress(await packed.get_data(as_text=False)) == await plain.get_data(
        as_text=False
    )
    assert packed.headers["ETag"] != plain.headers["ETag"]
    assert packed.headers["Vary"] == plain.headers["Vary"] == "Accept-Encoding"


@pytest.mark.parametrize("path", ["/app/nothing", "/app/0123456789ab/main.js", "/app/../x"])
async def test_unknown_file_is_404(app: GuardedQuart, path: str) -> None:
    assert (await app.test_client().get(path)).status_code == 404


async def test_only_reading_is_allowed(app: GuardedQuart) -> None:
    response = await app.test_client().post("/app/")
    assert response.status_code == 405
    assert set(response.headers["Allow"].split(", ")) == {"GET", "HEAD"}


@pytest.mark.parametrize(
    ("path", "address"), [("/", "app/"), ("/app", "app/"), ("/dashboard", "app/#/crews")]
)
async def test_old_and_short_addresses_lead_to_the_page_by_a_relative_one(
    app: GuardedQuart, path: str, address: str
) -> None:
    response = await app.test_client().get(path)
    assert (response.status_code, response.headers["Location"]) == (302, address)


async def test_policy_allows_own_files_and_pictures_of_one_host(app: GuardedQuart) -> None:
    response = await app.test_client().get("/app/")
    policy = dict(
        directive.split(" ", 1)
        for directive in response.headers["Content-Security-Policy"].split("; ")
    )
    named = Named(await response.get_data(as_text=True))
    [import_map] = [each for each in named.scripts if each.strip()]
    digest = base64.b64encode(hashlib.sha256(import_map.encode()).digest()).decode()
    assert policy.pop("script-src") == f"'self' 'sha256-{digest}'"
    assert policy.pop("img-src") == "'self' data: https://pictures.example"
    assert policy.pop("require-trusted-types-for") == "'script'"
    assert policy["default-src"] == policy["frame-ancestors"] == policy["trusted-types"] == "'none'"
    assert set(policy.values()) <= {"'none'", "'self'"}
    assert named.unsafe == 0
    assert response.headers["Referrer-Policy"] == "no-referrer"
    assert response.headers["X-Content-Type-Options"] == "nosniff"


async def test_page_knows_the_currency_and_the_marketplace(app: GuardedQuart) -> None:
    text = await (await app.test_client().get("/app/")).get_data(as_text=True)
    found = dict(re.findall(r'<meta name="(currency|portal|shop)" content="([^"]*)">', text))
    assert found == {
        "currency": "VND",
        "portal": "https://portal.example",
        "shop": "https://shop.example",
    }
