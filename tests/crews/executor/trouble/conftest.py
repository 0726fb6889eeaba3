"""What goes wrong around an executor: a disk that refuses, and a strike at every single step."""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable
from itertools import count
from typing import TYPE_CHECKING, Any

import pytest
import trio

from daemon.crews import run
from daemon.errors import Unavailable
from daemon.journal.store import Store

if TYPE_CHECKING:
    from tests.crews.executor.conftest import NewHouse

HANG = 20.0  # seconds; what takes that long hangs


class Disk:
    """Refuses to write as long as it is `refusing`, or at a certain one of all records."""

    def __init__(self) -> None:
        self.refusing = False
        self.refused = 0
        self._records = 0
        self._at = 0
        self._times = 0

    def refuses_record(self, *, number: int, times: int) -> None:
        """Refuse the so-manieth thing that is recorded from now on, so many times."""
        self._records, self._at, self._times = 0, number, times

    async def has_refused(self, times: int) -> None:
        """Wait until it has refused so many times in all."""
        with trio.fail_after(HANG):
            while self.refused < times:  # noqa: ASYNC110 - a thread of the journal's counts
                await trio.sleep(0.002)

    def create(self) -> None:
        """Something is to be created."""
        if self.refusing:
            self._refuse()

    def record(self) -> None:
        """Something is to be recorded."""
        if self.refusing or (self._records + 1 == self._at and self._times > 0):
            self._times -= 1
            self._refuse()
        self._records += 1

    def _refuse(self) -> None:
        self.refused += 1
        raise Unavailable("its disk is full", retry_after=5)


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Disk:
    """The disk under the journal. Between two tries of the executor's there is no long pause."""
    disk = Disk()
    create, record = Store.create, Store.record

    def try_to_create(self: Store, *args: Any) -> Any:
        disk.create()
        return create(self, *args)

    def try_to_record(self: Store, *args: Any) -> None:
        disk.record()
        record(self, *args)

    monkeypatch.setattr(Store, "create", try_to_create)
    monkeypatch.setattr(Store, "record", try_to_record)
    monkeypatch.setattr(run, "FIRST_RETRY", 0.01)
    monkeypatch.setattr(run, "LONGEST_RETRY", 0.01)
    return disk


class Strike(trio.abc.Instrument):
    """Does its deed right before the `at`-th step that any task takes after `arm`."""

    def __init__(self) -> None:
        self.at = 0
        self.happened = False
        self._steps = 0
        self._deed: Callable[[], object] | None = None

    def arm(self, deed: Callable[[], object]) -> None:
        self.happened, self._steps, self._deed = False, 0, deed

    def disarm(self) -> None:
        self._deed = None

    def before_task_step(self, task: trio.lowlevel.Task) -> None:  # noqa: ARG002 - trio's
        if self._deed is None or self.happened:
            return
        self._steps += 1
        if self._steps == self.at:
            self.happened = True
            self._deed()


Scenario = Callable[..., Awaitable[None]]
AtEveryStep = Callable[..., int]


@pytest.fixture
def at_every_step(new_house: NewHouse, monkeypatch: pytest.MonkeyPatch) -> AtEveryStep:
    """`at_every_step(scenario)` runs it again and again on one daemon, with the strike one step, or
    a `stride`, later each time, until it is through before the strike. Returns the number of the
    last step, so that a test can tell that it has not been idle.
    """

    async def repeat(scenario: Scenario, stride: int, strike: Strike) -> int:
        house = new_house()
        async with trio.open_nursery() as nursery:
            await nursery.start(house.serve)
            for strike.at in count(1, stride):
                monkeypatch.setattr("trio._core._run._r", random.Random(strike.at))
                with trio.fail_after(HANG):
                    await scenario(strike, house)
                if not strike.happened:
                    break
            await house.stop()
        return strike.at

    def drive(scenario: Scenario, *, stride: int = 1) -> int:
        strike = Strike()
        try:
            return trio.run(repeat, scenario, stride, strike, instruments=[strike])
        except BaseException as error:
            error.add_note(f"strike at step {strike.at}")
            raise

    return drive
