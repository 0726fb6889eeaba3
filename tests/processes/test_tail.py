"""The pipes of many commands, read by one task. What comes out of one: `test_guarded.py`."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import AbstractContextManager

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from smartlinkd.nurseries import background
from smartlinkd.processes.tail import Tail, Tails


class Pipe(AbstractContextManager["Pipe"]):
    """With a tail on its end."""

    def __init__(self, kind: type[Tail] = Tail) -> None:
        self._reader, writer = os.pipe()
        self._writer: int | None = writer
        self.tail = kind(self._reader)

    def __exit__(self, *_: object) -> None:
        self.end()
        os.close(self._reader)

    def write(self, text: str) -> None:
        assert self._writer is not None
        os.write(self._writer, text.encode())

    def end(self) -> None:
        """Nothing more is written."""
        if self._writer is not None:
            os.close(self._writer)
            self._writer = None


@pytest.fixture
async def tails() -> AsyncIterator[Tails]:
    made = Tails()
    async with background(made.follow):
        yield made
    made.close()


async def settled() -> None:
    """Nobody has anything to do, which a task that goes in circles always has."""
    with trio.fail_after(10.0):
        await wait_all_tasks_blocked(0.01)


async def test_each_is_read_when_there_is_something(tails: Tails) -> None:
    with Pipe() as first, Pipe() as second:
        tails.add(first.tail)
        tails.add(second.tail)
        for text in ("a", "b"):
            first.write(text)
            await settled()
            second.write(text * 2)
            await settled()
        assert (first.tail.text, second.tail.text) == ("ab", "aabb")
        tails.drop(first.tail)
        tails.drop(second.tail)


async def test_one_that_has_ended_is_done_with(tails: Tails) -> None:
    with Pipe() as pipe:
        tails.add(pipe.tail)
        pipe.write("last")
        pipe.end()
        await settled()
        assert pipe.tail.text == "last"
        tails.drop(pipe.tail)


async def test_one_that_is_dropped_is_not_read_and_its_number_may_be_anothers(
    tails: Tails,
) -> None:
    with Pipe() as pipe:
        tails.add(pipe.tail)
        tails.drop(pipe.tail)
        pipe.write("x")
        await settled()
        assert pipe.tail.text == ""
    with Pipe() as another:
        assert another.tail.descriptor == pipe.tail.descriptor
        tails.add(another.tail)
        another.write("y")
        await settled()
        assert another.tail.text == "y"
        tails.drop(another.tail)


async def test_one_that_never_runs_dry_keeps_nobody_waiting(tails: Tails) -> None:
    class Endless(Tail):
        def read(self) -> bool:
            there_may_be_more = super().read()
            pipe.write("more")
            return there_may_be_more

    with Pipe(Endless) as pipe, Pipe() as other:
        tails.add(pipe.tail)
        pipe.write("more")
        with trio.fail_after(10.0):
            while not pipe.tail.text:
                await trio.lowlevel.checkpoint()
        tails.add(other.tail)
        other.write("a word")
        with trio.fail_after(10.0):
            while not other.tail.text:
                await trio.lowlevel.checkpoint()
        tails.drop(pipe.tail)
        tails.drop(other.tail)
