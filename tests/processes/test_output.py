"""The tail of a pipe's output. More of it: `test_process_tree.py`."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from smartlinkd.processes.output import CUT, KEPT, OutputTail


@pytest.fixture
def pipe() -> Iterator[tuple[OutputTail, int]]:
    """A tail, and the write end of its pipe, which the test closes."""
    reader, writer = os.pipe()
    yield OutputTail(reader), writer
    os.close(reader)


async def test_output_is_read_when_it_comes_until_the_writer_closes(
    pipe: tuple[OutputTail, int], nursery: trio.Nursery
) -> None:
    tail, writer = pipe
    followed = trio.Event()

    async def follow() -> None:
        await tail.follow()
        followed.set()

    nursery.start_soon(follow)
    for text in ("a", "b"):
        os.write(writer, text.encode())
        await wait_all_tasks_blocked(0.01)
    assert tail.text == "ab"
    os.close(writer)
    with trio.fail_after(10):
        await followed.wait()


def test_read_of_an_empty_pipe_does_not_block(pipe: tuple[OutputTail, int]) -> None:
    tail, writer = pipe
    assert tail.read()
    os.close(writer)
    assert not tail.read()
    assert tail.text == ""


def test_only_the_end_of_much_output_is_kept(pipe: tuple[OutputTail, int]) -> None:
    tail, writer = pipe
    for text in (b"a" * KEPT, b"end"):
        os.write(writer, text)
        assert tail.read()
    os.close(writer)
    assert tail.text == CUT + "a" * (KEPT - 3) + "end"
