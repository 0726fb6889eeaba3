"""`Idempotency-Key`: one execution for a key, a body and a token, whenever it comes again."""

from __future__ import annotations

import pytest
from pydantic import JsonValue

from smartlinkd.crews.catalog.catalog import Catalog
from smartlinkd.crews.model import BrokenCrew
from smartlinkd.errors import Refused, Unavailable, Unprocessable
from tests.crews.executor.conftest import WAITS, StartDaemon, make_crew

BODY: JsonValue = {"inputs": {"x": 1}}


async def test_repeated_key_needs_no_room_in_the_queue_and_no_crew_that_can_run(
    start_daemon: StartDaemon,
) -> None:
    daemon = await start_daemon(make_crew(max_running=1, queue=0))
    first = await daemon.kickoff(*WAITS, key="k", body=BODY)
    with pytest.raises(Unavailable):
        await daemon.kickoff(key="other", body=BODY)
    with pytest.raises(Unavailable):  # another user's key is another one
        await daemon.kickoff(user="an", key="k", body=BODY)
    assert await daemon.kickoff(*WAITS, key="k", body=BODY) == first

    for without in (Catalog({}, (BrokenCrew("c", ()),)), Catalog({})):
        await daemon.executor.apply_catalog(without)
        with pytest.raises(Refused):
            await daemon.kickoff(key="other", body=BODY)
        with pytest.raises(Unprocessable, match="Idempotency-Key"):
            await daemon.kickoff(key="k", body={"inputs": {"x": 2}})
        assert await daemon.kickoff(key="k", body=BODY) == first
    daemon.gate.open()
