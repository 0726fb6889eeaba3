"""`/openapi.json`, and the page that shows it without any other server."""

from __future__ import annotations

import re
from html.parser import HTMLParser

import pytest
from pydantic import BaseModel

from smartlinkd.api import static
from smartlinkd.api.document import document
from smartlinkd.api.operations import Access, Api
from smartlinkd.http_server import GuardedQuart


class Nothing(BaseModel):
    pass


async def anyone() -> None:
    return None


class Addresses(HTMLParser):
    """The addresses that a page loads or links to."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.found: list[str] = []
        self.scripts_inside = 0
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        attributes = dict(attrs)
        self.found += [value for key in ("src", "href") if (value := attributes.get(key))]
        self.scripts_inside += tag == "style" or (tag == "script" and "src" not in attributes)


@pytest.fixture
def app() -> GuardedQuart:
    made = GuardedQuart()
    api = Api(made, failure=Nothing)

    @api.operation("GET", "/x", access=Access(anyone, bearer="none"), ok=Nothing)
    async def x(_: None) -> Nothing:
        return Nothing()

    static.register(made, lambda: document([api]))
    return made


async def get(app: GuardedQuart, path: str) -> str:
    response = await app.test_client().get(path)
    assert response.status_code == 200
    return await response.get_data(as_text=True)


async def test_document_is_served_as_json(app: GuardedQuart) -> None:
    response = await app.test_client().get("/openapi.json")
    assert response.headers["Content-Type"] == "application/json"
    assert (await response.get_json())["paths"].keys() == {"/x"}


async def test_file_that_the_page_names_is_served(app: GuardedQuart) -> None:
    page = Addresses(await get(app, "/docs"))
    assert (page.scripts_inside, len(page.found)) == (0, 5)
    for address in page.found:
        if not address.startswith("app/"):  # the owner's page serves its own files
            await get(app, f"/{address}")


@pytest.mark.parametrize("path", ["/docs", "/docs/docs.js"])
async def test_page_names_no_other_server(app: GuardedQuart, path: str) -> None:
    assert not re.search(r"https?:|[\"'(]//", await get(app, path))


async def test_address_with_slash_leads_to_the_page(app: GuardedQuart) -> None:
    response = await app.test_client().get("/docs/")
    assert (response.status_code, response.headers["Location"]) == (302, "../docs")


async def test_policy_allows_own_files_and_drawn_pictures_alone(app: GuardedQuart) -> None:
    response = await app.test_client().get("/docs")
    policy = dict(
        directive.split(" ", 1)
        for directive in response.headers["Content-Security-Policy"].split("; ")
    )
    assert policy.pop("img-src") == "'self' data:"
    assert policy["default-src"] == "'none'"
    assert set(policy.values()) == {"'none'", "'self'"}
