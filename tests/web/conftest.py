"""The page's routes in an app of their own."""

from __future__ import annotations

import pytest

from smartlinkd.http_server import GuardedQuart
from smartlinkd.web import routes
from smartlinkd.web.bundle import Site

SITE = Site(
    currency="VND",
    portal_url="https://portal.example",
    shop_url="https://shop.example",
    picture_url="https://pictures.example/file/",
    needs_cookie=True,
)


@pytest.fixture
def app() -> GuardedQuart:
    made = GuardedQuart()
    routes.register(made, SITE)
    return made
