"""What whoever has stopped an execution is told in the end."""

from __future__ import annotations

import pytest
import trio

from smartlinkd.crews.stopping import Stopping
from smartlinkd.errors import Invalid, Unavailable
from smartlinkd.store.model import Status


async def test_one_whose_end_is_recorded_is_over_though_its_worker_is_still_cleared_away() -> None:
    await Stopping(trio.Event(), 0.0, lambda: Status.STOPPED).wait_over()


async def test_one_that_came_to_another_end_was_not_stopped_though_it_is_still_cleared_away() -> (
    None
):
    with pytest.raises(Invalid, match="ended by itself before it was stopped"):
        await Stopping(trio.Event(), 0.0, lambda: Status.COMPLETED).wait_over()


async def test_one_whose_end_is_not_recorded_in_time_is_told_so() -> None:
    with pytest.raises(Unavailable, match="cannot record its end"):
        await Stopping(trio.Event(), 0.0, lambda: None).wait_over()
