"""The statuses that `/openapi.json` names for a crew's operations.

That nothing else is given is checked for every answer of every test here (`conftest.serving`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.api.conftest import Conformity
    from tests.api.crews.conftest import ServedCrews

UNDER = "/crews/{crew}"


async def test_documented_statuses_are_these(served: ServedCrews, conformity: Conformity) -> None:
    found = {
        f"{method} {path.removeprefix(UNDER) or '/'}": set(map(int, operation["responses"]))
        for method, path, operation in conformity.operations()
        if path.startswith(UNDER)
    }
    everywhere = {200, 401, 403, 500, 503}
    assert found == {
        "GET /": everywhere,
        "GET /inputs": everywhere,
        "POST /kickoff": everywhere | {400, 408, 413, 422, 429},
        "GET /status/{kickoff_id}": everywhere | {400, 404, 429},
        "GET /executions": everywhere | {400},
        "POST /stop/{kickoff_id}": everywhere | {400, 404},
        "GET /events/{kickoff_id}": everywhere | {400, 404, 429},
        "POST /resume": everywhere | {400, 404, 408, 413, 429},
    }
