"""What a client that has stopped an execution is told in the end."""

from __future__ import annotations

import pytest

from smartlinkd.crews.execution import Completion
from smartlinkd.errors import Invalid, Unavailable
from smartlinkd.journal.model import Status


async def test_completion_whose_outcome_is_recorded_does_not_wait_for_the_worker() -> None:
    completion = Completion(0.0)
    completion.status = Status.STOPPED
    await completion.wait_stopped()


async def test_completion_with_another_outcome_was_not_stopped() -> None:
    completion = Completion(0.0)
    completion.status = Status.COMPLETED
    with pytest.raises(Invalid, match="ended by itself before it was stopped"):
        await completion.wait_stopped()


async def test_completion_that_is_not_recorded_in_time_is_unavailable() -> None:
    with pytest.raises(Unavailable, match="cannot record its end"):
        await Completion(0.0).wait_stopped()
