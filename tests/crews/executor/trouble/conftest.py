"""What goes wrong around an executor: a disk that refuses."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest
import trio

from smartlinkd.errors import Unavailable
from smartlinkd.store.actor import Store

if TYPE_CHECKING:
    from tests.crews.executor.conftest import House, NewHouse

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
def disk(monkeypatch: pytest.MonkeyPatch, limits: dict[str, Any]) -> Disk:
    """The disk under the journal. Between two tries of the executor's there is no long pause."""
    disk = Disk()
    create, record = Store.create, Store.record

    async def try_to_create(self: Store, *args: Any, **named: Any) -> Any:
        disk.create()
        return await create(self, *args, **named)

    async def try_to_record(self: Store, *args: Any) -> None:
        disk.record()
        await record(self, *args)

    monkeypatch.setattr(Store, "create", try_to_create)
    monkeypatch.setattr(Store, "record", try_to_record)
    limits.update(first_retry_s=0.01, longest_retry_s=0.01)
    return disk


OpenedHouse = Callable[[], AbstractAsyncContextManager["House"]]


@pytest.fixture
def opened_house(new_house: NewHouse) -> OpenedHouse:
    """A daemon with one crew "c", for scenarios that are struck at every step."""

    @asynccontextmanager
    async def opened() -> AsyncIterator[House]:
        house = new_house()
        async with trio.open_nursery() as nursery:
            await nursery.start(house.serve)
            yield house
            await house.stop()

    return opened
