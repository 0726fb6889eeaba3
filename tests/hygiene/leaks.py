"""A pytest plugin: a test that leaves something behind fails and names it.

`look.py` and `processes.py` define what counts. After each test and its fixtures the plugin
compares all there is with what there was after the test before. What came during the setup of a
wider fixture belongs to that fixture, and must be gone after its teardown. The garbage collector
runs after each module, as only it reports coroutines never awaited and sockets never closed. A
fixture could not do this: it ends before some of pytest-trio's.
"""

from __future__ import annotations

import gc
import sys
import time
from collections.abc import Generator
from dataclasses import dataclass, field
from typing import Any

import pytest

from tests.hygiene.look import PROCESSES, Snapshot, Thing, snapshot, state_of
from tests.hygiene.processes import Strays, end

PATIENCE = 2.0
"""Seconds to wait for what is about to end, such as a killed process or a finished thread."""
POLL_INTERVAL = 0.005  # seconds
WIDE = ("class", "module", "package", "session")


@dataclass
class Change:
    """Added things, and removed things of the process's state."""

    added: Snapshot = field(default_factory=set)
    removed: Snapshot = field(default_factory=set)

    def __sub__(self, other: Change) -> Change:
        return Change(self.added - other.added, self.removed - other.removed)

    def __bool__(self) -> bool:
        return bool(self.added or self.removed)

    def add(self, other: Change) -> None:
        self.added |= other.added
        self.removed |= other.removed


def change(before: Snapshot, now: Snapshot) -> Change:
    return Change(now - before, state_of(before - now))


def collect_garbage() -> list[str]:
    """Run the collector and return its complaints."""
    told: list[str] = []

    def hook(args: sys.UnraisableHookArgs) -> None:
        told.append(f"{args.exc_type.__name__}: {args.exc_value}, at the end of {args.object!r}")

    before, sys.unraisablehook = sys.unraisablehook, hook
    try:
        gc.collect()
    finally:
        sys.unraisablehook = before
    return told


class Watch:
    """Compares what there is after each test with what is expected."""

    def __init__(self) -> None:
        self.expected: Snapshot = set()
        self.strays = Strays()
        self._held: dict[object, Change] = {}  # by the fixtures that are set up
        self._nested: list[Change] = []  # of the fixtures that another one requests
        self._made: list[Change] = []  # set up during this test
        self._ended: list[tuple[str, Change]] = []  # torn down during this test, with names

    def snapshot(self) -> Snapshot:
        """Return all there is, including stray processes."""
        return snapshot() | {Thing("stray process", pid, "") for pid in self.strays.find()}

    def begin(self) -> None:
        """Take the first snapshot, before the first test."""
        gc.collect()
        gc.freeze()  # imported objects stay; the collector skips them from now on
        self.expected = self.snapshot()

    def measure_setup(self, fixture: object) -> Generator[None, object, object]:
        before = snapshot()
        self._nested.append(Change())
        try:
            return (yield)
        finally:
            whole = change(before, snapshot())
            own = whole - self._nested.pop()
            if self._nested:
                self._nested[-1].add(whole)
            self._held[fixture] = own
            self._made.append(own)

    def note_teardown(self, fixture: object, name: str) -> None:
        if (held := self._held.pop(fixture, None)) is not None:
            self._ended.append((name, held))

    def after_test(self) -> list[str]:
        """Return a line for each thing that was left; expect it from now on."""
        for made in self._made:
            self.expected = (self.expected | made.added) - made.removed
        for _, held in self._ended:
            self.expected = (self.expected - held.added) | held.removed
        left, said = self._left()
        said += [self._describe(thing) for thing in sorted(left.added)]
        said += [f"{thing} (was removed)" for thing in sorted(left.removed)]
        for thing in left.added:
            if thing.kind in PROCESSES:
                end(thing.number)
        self._made, self._ended = [], []
        self.expected = (self.expected | left.added) - left.removed
        return said

    def _left(self) -> tuple[Change, list[str]]:
        """Return what was left and the collector's complaints, after at most PATIENCE seconds."""
        said = []
        deadline = time.monotonic() + PATIENCE
        while (
            left := change(self.expected, now := self.snapshot())
        ) and time.monotonic() < deadline:
            said += collect_garbage()
            time.sleep(POLL_INTERVAL)
        self.expected &= now | left.removed
        return left, said

    def _describe(self, thing: Thing) -> str:
        owners = [name for name, held in self._ended if thing in held.added]
        return f"{thing} (taken by the fixture {owners[0]})" if owners else str(thing)


_watch = Watch()


@pytest.hookimpl(wrapper=True)
def pytest_runtestloop() -> Generator[None, object, object]:
    _watch.begin()
    return (yield)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_fixture_setup(
    fixturedef: pytest.FixtureDef[Any], request: pytest.FixtureRequest
) -> Generator[None, object, object]:
    if request.scope in WIDE:
        return (yield from _watch.measure_setup(fixturedef))
    return (yield)


def pytest_fixture_post_finalizer(fixturedef: pytest.FixtureDef[Any]) -> None:
    _watch.note_teardown(fixturedef, fixturedef.argname)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_teardown(
    item: pytest.Item, nextitem: pytest.Item | None
) -> Generator[None, object, object]:
    try:
        result = yield
    except BaseException as error:
        if said := _check_after(item, nextitem):
            error.add_note(said)
        raise
    if said := _check_after(item, nextitem):
        pytest.fail(said, pytrace=False)
    return result


def _check_after(item: pytest.Item, nextitem: pytest.Item | None) -> str:
    if isinstance(item, pytest.Function):
        item.funcargs.clear()  # pytest does so later
    said = []
    if nextitem is None or nextitem.path != item.path:
        said = [f"in the garbage of {item.path.name}: {text}" for text in collect_garbage()]
    said += _watch.after_test()
    return "\n  ".join(["left behind:", *said]) if said else ""
