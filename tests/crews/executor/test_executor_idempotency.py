"""`Idempotency-Key`: one execution for a key, a body and a token, whenever it comes again."""

from __future__ import annotations

import pytest
import trio
from pydantic import JsonValue

from smartlinkd.crews.catalog.catalog import Catalog
from smartlinkd.crews.model import BrokenCrew, Input
from smartlinkd.errors import Refused, Unavailable, Unprocessable
from tests.crews.executor.conftest import WAITS, Disk, StartDaemon, make_crew

SOON = 8.0  # seconds; a call to an actor takes no longer
BODY: JsonValue = {"inputs": {"x": 1}}
BROKEN = Catalog({}, (BrokenCrew("c", (), ()),))


async def test_repeated_key_needs_no_room_in_the_queue(start_daemon: StartDaemon) -> None:
    daemon = await start_daemon(make_crew(max_running=1, queue=0))
    first = await daemon.kickoff(*WAITS, key="k", body=BODY)
    with pytest.raises(Unavailable):
        await daemon.kickoff(key="other", body=BODY)
    with pytest.raises(Unavailable):  # another user's key is another one
        await daemon.kickoff(user="an", key="k", body=BODY)
    assert await daemon.kickoff(*WAITS, key="k", body=BODY) == first


@pytest.mark.parametrize("now", ["broken", "gone", "wants more"])
async def test_repeated_key_needs_no_crew_that_can_run(start_daemon: StartDaemon, now: str) -> None:
    daemon = await start_daemon(make_crew())
    first = await daemon.kickoff(key="k", body=BODY)
    catalogs = {
        "broken": BROKEN,
        "gone": Catalog({}),
        "wants more": Catalog({"c": make_crew(inputs=(Input("topic"),))}),
    }
    await daemon.executor.apply_catalog(catalogs[now])
    with pytest.raises(Refused):
        await daemon.kickoff(key="other", body=BODY)
    with pytest.raises(Unprocessable, match="Idempotency-Key"):
        await daemon.kickoff(key="k", body={"inputs": {"x": 2}})
    assert await daemon.kickoff(key="k", body=BODY) == first


async def test_repeated_key_does_not_wait_for_a_full_disk_after_a_restart(
    start_daemon: StartDaemon, disk: Disk
) -> None:
    """New kickoffs of its crew wait until what was interrupted is put back."""
    rerun = make_crew(on_restart="rerun")
    daemon = await start_daemon(rerun)
    first = await daemon.kickoff(*WAITS, key="k", body=BODY)
    await daemon.gate.reaches(1)
    await daemon.kill()
    disk.refusing = True
    daemon = await start_daemon(rerun)
    await disk.has_refused(1)
    with trio.fail_after(SOON):
        assert await daemon.kickoff(*WAITS, key="k", body=BODY) == first
    disk.refusing = False
