"""`/docs` shows `/openapi.json` without another server."""

from __future__ import annotations

import re

import pytest

from smartlinkd.api import static
from smartlinkd.http_server import GuardedQuart


@pytest.fixture
def app() -> GuardedQuart:
    made = GuardedQuart()
    static.register(made, dict)
    return made


async def test_answer_has_its_length(app: GuardedQuart) -> None:
    client = app.test_client()
    response = await client.get("/docs/docs.js")
    length = str(len(await response.get_data(as_text=False)))
    assert response.headers["Content-Length"] == length
    assert (await client.head("/docs/docs.js")).headers["Content-Length"] == length


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
    # The policy would block a style or script inside the page.
    page = await response.get_data(as_text=True)
    assert not re.search(r"<style|<script(?![^>]*\ssrc=)", page)
