"""Failures of the crews' API: `{"error": "<title>", "message": "<detail>"}`.

Every failure below a crew's base address has this shape, also for paths that no operation has.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from http import HTTPStatus
from typing import Final

from pydantic import JsonValue

from smartlinkd.api.crews.schemas import CrewFailure
from smartlinkd.crews.catalog.catalog import UNDER

_TITLES: Final = {
    413: "Content Too Large",  # http.HTTPStatus has older names for these two
    422: "Validation Error",
}
_IN_BRACES: Final = re.compile(r"\\\{\w+\\\}")


def crew_failure_body(status: int, text: str, _path: str) -> Mapping[str, JsonValue]:
    """Return a failure's body."""
    title = _TITLES.get(status) or HTTPStatus(status).phrase
    return CrewFailure(error=title, message=text).model_dump()


def crew_paths(at_root: Collection[str]) -> Callable[[str], bool]:
    """Return a test for paths of crews, when one crew also answers at the paths `at_root`.

    `at_root` are as in the table of operations, with parameters in braces. What begins with /api/
    is the affiliate service's, even where a parameter would take it in.
    """
    patterns = (_IN_BRACES.sub("[^/]+", re.escape(path)) for path in at_root)
    root = re.compile("|".join(patterns)) if at_root else None

    def is_crews(path: str) -> bool:
        if path.startswith(UNDER):
            return True
        return (
            root is not None and not path.startswith("/api/") and root.fullmatch(path) is not None
        )

    return is_crews
