"""The dashboard's files: what is served, and under which policy. What the page does is tested in a
real browser, in `tests/e2e/dashboard`.
"""

from __future__ import annotations

import re
from html.parser import HTMLParser

import pytest

from daemon.api import dashboard
from daemon.serving import GuardedQuart

PAGES_OF_OTHERS = {"docs"}
STARTS_A_STRING_OF_CODE = (
    r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(|Function\("
)


class Named(HTMLParser):
    """The addresses that a page names, and how many scripts and styles it has inside."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.addresses: set[str] = set()
        self.inside = 0
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        attributes = dict(attrs)
        self.addresses |= {each for key in ("src", "href") if (each := attributes.get(key))}
        self.inside += tag == "style" or (tag == "script" and "src" not in attributes)
        self.inside += sum(key == "style" or key.startswith("on") for key in attributes)


@pytest.fixture
def app() -> GuardedQuart:
    made = GuardedQuart()
    dashboard.register(made)
    return made


async def get(app: GuardedQuart, path: str) -> str:
    response = await app.test_client().get(path)
    assert response.status_code == 200, path
    return await response.get_data(as_text=True)


async def scripts(app: GuardedQuart) -> dict[str, str]:
    """The modules by their paths, all that the page's one imports, and what those import."""
    found: dict[str, str] = {}
    wanted = {"/dashboard/main.js"}
    while wanted:
        path = wanted.pop()
        found[path] = await get(app, path)
        imported = re.findall(r'from "\./([a-z]+\.js)";', found[path])
        wanted |= {f"/dashboard/{name}" for name in imported} - found.keys()
    return found


async def test_everything_that_is_named_is_served(app: GuardedQuart) -> None:
    named = Named(await get(app, "/dashboard")).addresses
    own = {address for address in named if not address.startswith("#")} - PAGES_OF_OTHERS
    assert own == {"dashboard/dashboard.css", "dashboard/main.js"}
    for address in own:
        await get(app, f"/{address}")
    assert len(await scripts(app)) > 1


async def test_everything_that_is_served_is_named(app: GuardedQuart) -> None:
    served = {rule.rule for rule in app.url_map.iter_rules()}
    assert served == {"/dashboard", "/dashboard/dashboard.css", *await scripts(app)}


async def test_nothing_names_another_server(app: GuardedQuart) -> None:
    for rule in app.url_map.iter_rules():
        assert not re.search(r"https?://|[\"'(]//[^ ]", await get(app, rule.rule)), rule.rule


async def test_the_policy_allows_our_own_files_alone(app: GuardedQuart) -> None:
    response = await app.test_client().get("/dashboard")
    policy = dict(
        directive.split(" ", 1)
        for directive in response.headers["Content-Security-Policy"].split("; ")
    )
    assert policy.pop("require-trusted-types-for") == "'script'"
    assert policy["default-src"] == policy["trusted-types"] == "'none'"
    assert set(policy.values()) == {"'none'", "'self'"}
    assert Named(await response.get_data(as_text=True)).inside == 0


async def test_text_never_becomes_markup_or_code(app: GuardedQuart) -> None:
    for path, script in (await scripts(app)).items():
        assert not re.search(STARTS_A_STRING_OF_CODE, script), path


async def test_only_reading_is_allowed(app: GuardedQuart) -> None:
    response = await app.test_client().post("/dashboard")
    assert response.status_code == 405
