"""The page's routes in an app of their own."""

from __future__ import annotations

import pytest

from daemon.serving import GuardedQuart
from daemon.web import routes
from daemon.web.bundle import Site

PICTURES = "https://pictures.example/file/"
SITE = Site("VND", "https://portal.example", "https://shop.example")


@pytest.fixture
def app() -> GuardedQuart:
    made = GuardedQuart()
    routes.register(made, site=SITE, picture_url=PICTURES)
    return made
