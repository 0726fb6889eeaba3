"""Failures of the crews' API: `{"error": "<title>", "message": "<detail>"}`.

Every failure below `/crews/`, and at a crew's address of its own, has this shape, also for paths
that no operation has. At `/` of the main app only the paths of the default crew's operations do.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from http import HTTPStatus
from typing import Final

from pydantic import JsonValue

from smartlinkd.api.crews.schemas import CrewFailure
from smartlinkd.crews.catalog.catalog import UNDER
from smartlinkd.http_server.failures import FailureBody, plain_body

_TITLES: Final = {
    413: "Content Too Large",  # RFC 9110; http.HTTPStatus has an older name
    422: "Validation Error",
}
_IN_BRACES: Final = re.compile(r"\\\{\w+\\\}")


def crew_failure_body(status: int, text: str, _path: str) -> Mapping[str, JsonValue]:
    title = _TITLES.get(status) or HTTPStatus(status).phrase
    return CrewFailure(error=title, message=text).model_dump()


def main_failure_body(at_root: Collection[str]) -> FailureBody:
    """Return the failure body of the main app, where one crew also answers at the paths `at_root`.

    `at_root` are as in the table of operations, with parameters in braces. What begins with /api/
    is the affiliate service's, even where a parameter would take it in.
    """
    at_root_too = ("(?!/api/)" + _IN_BRACES.sub("[^/]+", re.escape(path)) for path in at_root)
    of_crews = re.compile("|".join([f"{UNDER}.*", *at_root_too]), re.DOTALL)

    def body(status: int, text: str, path: str) -> Mapping[str, JsonValue]:
        of_kind = crew_failure_body if of_crews.fullmatch(path) else plain_body
        return of_kind(status, text, path)

    return body
