from __future__ import annotations

import trio

from smartlinkd.sandbox.batch import Origins
from smartlinkd.sandbox.state import MADE_KEPT, SUBMITS_KEPT, SandboxState, SubmitLog


async def test_log_of_submits_is_bounded() -> None:
    log = SubmitLog()
    for number in range(SUBMITS_KEPT + 5):
        with log.submit(str(number), ["link"], [("", "", "", "", "")]):
            pass

    assert len(log.entries) == SUBMITS_KEPT
    assert log.entries[-1].account == str(SUBMITS_KEPT + 4)


async def test_kept_short_links_are_bounded() -> None:
    state = SandboxState(Origins("p", "s", "x"), hold=1)
    for number in range(MADE_KEPT + 1):
        state.keep_short_link(str(number), "long")

    assert len(state.made) == MADE_KEPT
    assert "0" not in state.made


async def test_hold_back_ends_when_the_sandbox_closes(autojump_clock: object) -> None:
    state = SandboxState(Origins("p", "s", "x"), hold=1e9)
    with trio.move_on_after(1e6) as patience:
        await state.hold_back()
    assert patience.cancelled_caught

    state.closing.set()
    await state.hold_back()
