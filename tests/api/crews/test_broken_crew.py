"""A crew with a wrong configuration: it cannot run, but its earlier executions stay readable."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from smartlinkd.store.model import Status

if TYPE_CHECKING:
    from tests.api.crews.conftest import FakeExecutor, ServedCrews


@pytest.mark.parametrize("path", ["/", "/inputs"])
async def test_broken_crew_is_503(served: ServedCrews, path: str) -> None:
    answer = await served.main.get(f"/crews/gamma{path}", served.tokens["gamma"])
    assert answer.status_code == 503
    assert int(answer.headers["Retry-After"]) >= 1
    assert answer.json()["error"] == "Service Unavailable"
    assert "gamma" in answer.json()["message"]


@pytest.mark.parametrize("user", ["", "ann"])
async def test_executions_of_a_broken_crew_stay_readable(
    served: ServedCrews, executor: FakeExecutor, user: str
) -> None:
    known = executor.add("gamma", user, status=Status.COMPLETED, result="done")
    executor.add_event(known.id, "crew_kickoff_completed")
    token = (await served.crew_tokens.show("gamma", user)).get_secret_value()
    status = await served.main.get(f"/crews/gamma/status/{known.id}", token)
    assert status.json()["result"] == "done"
    listed = await served.main.get("/crews/gamma/executions", token)
    assert [each["kickoff_id"] for each in listed.json()["executions"]] == [known.id]
    told = await served.main.get(f"/crews/gamma/events/{known.id}", token)
    assert "crew_kickoff_completed" in told.text
