"""Tabs of a real Chromium, as the browser's tests have them."""

from __future__ import annotations

from tests.browser.conftest import connection, page, shared_endpoint

__all__ = ["connection", "page", "shared_endpoint"]
