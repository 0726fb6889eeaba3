"""A test that leaves something behind fails with what it left, by name. A part of pytest.

What counts is in `look.py` and `processes.py`. It is looked at once a test, when all fixtures that
end with the test have ended, and compared with what there was after the test before it.

Fixtures of a module or of the session hold things while tests come and go. What each of them took
is what came while it was made, so nothing is exempt for their sake: it is held by that fixture
until its end, and has to be gone then; else it is told as left by that fixture.

The rest that is looked at after a module is garbage: only its collection tells of a coroutine that
was never awaited, or of a socket that was never closed, when they hold on to each other. So the
collector runs after the last test of each module, and what it finds is that module's.

Rejected: fixtures of pytest's for this. They cannot be around those of a module, and an ordinary
one ends before some of pytest-trio's.
"""

from __future__ import annotations

import gc
import sys
import time
from collections.abc import Generator
from dataclasses import dataclass, field
from typing import Any

import pytest

from tests.hygiene.look import PROCESSES, Look, Thing, look, state_of
from tests.hygiene.processes import Strays, end

PATIENCE = 2.0
"""Seconds for what is about to end by itself: a killed process, a thread that has done its work."""
LOOK_EVERY = 0.005
WIDE = ("class", "module", "package", "session")


@dataclass
class Change:
    """What came and what went (of the process's state)."""

    came: Look = field(default_factory=set)
    went: Look = field(default_factory=set)

    def __sub__(self, other: Change) -> Change:
        return Change(self.came - other.came, self.went - other.went)

    def __bool__(self) -> bool:
        return bool(self.came or self.went)

    def add(self, other: Change) -> None:
        self.came |= other.came
        self.went |= other.went


def change(before: Look, now: Look) -> Change:
    return Change(now - before, state_of(before - now))


def collect_garbage() -> list[str]:
    """What it complained of."""
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
    """What there should be, after each test."""

    def __init__(self) -> None:
        self.expected: Look = set()
        self.strays = Strays()
        self._held: dict[object, Change] = {}  # by the fixtures that are alive
        self._nested: list[Change] = []  # taken by fixtures within one that is being made
        self._made: list[Change] = []  # during this test
        self._ended: list[tuple[str, Change]] = []  # during this test, with their names

    def look(self) -> Look:
        """All there is, processes that are nobody's included."""
        return look() | {Thing("stray process", pid, "") for pid in self.strays.look()}

    def begin(self) -> None:
        """Before the first test."""
        gc.collect()
        gc.freeze()  # what was imported stays; the collector need not look at it again
        self.expected = self.look()

    def making(self, fixture: object) -> Generator[None, object, object]:
        before = look()
        self._nested.append(Change())
        try:
            return (yield)
        finally:
            whole = change(before, look())
            own = whole - self._nested.pop()
            if self._nested:
                self._nested[-1].add(whole)
            self._held[fixture] = own
            self._made.append(own)

    def ended(self, fixture: object, name: str) -> None:
        if (held := self._held.pop(fixture, None)) is not None:
            self._ended.append((name, held))

    def after_test(self) -> list[str]:
        """What was left; from here on it is expected."""
        for made in self._made:
            self.expected = (self.expected | made.came) - made.went
        for _, held in self._ended:
            self.expected = (self.expected - held.came) | held.went
        left, said = self._left()
        said += [self._say(thing) for thing in sorted(left.came)]
        said += [f"{thing} (is no more)" for thing in sorted(left.went)]
        for thing in left.came:
            if thing.kind in PROCESSES:
                end(thing.number)
        self._made, self._ended = [], []
        self.expected = (self.expected | left.came) - left.went
        return said

    def _left(self) -> tuple[Change, list[str]]:
        """Also what the garbage said. What nobody refers to any more is not left."""
        said = []
        deadline = time.monotonic() + PATIENCE
        while (left := change(self.expected, now := self.look())) and time.monotonic() < deadline:
            said += collect_garbage()
            time.sleep(LOOK_EVERY)
        self.expected &= now | left.went
        return left, said

    def _say(self, thing: Thing) -> str:
        owners = [name for name, held in self._ended if thing in held.came]
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
        return (yield from _watch.making(fixturedef))
    return (yield)


def pytest_fixture_post_finalizer(fixturedef: pytest.FixtureDef[Any]) -> None:
    _watch.ended(fixturedef, fixturedef.argname)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_teardown(
    item: pytest.Item, nextitem: pytest.Item | None
) -> Generator[None, object, object]:
    try:
        result = yield
    except BaseException as error:
        if said := _look_after(item, nextitem):
            error.add_note(said)
        raise
    if said := _look_after(item, nextitem):
        pytest.fail(said, pytrace=False)
    return result


def _look_after(item: pytest.Item, nextitem: pytest.Item | None) -> str:
    if isinstance(item, pytest.Function):
        item.funcargs.clear()  # pytest itself does so a little later
    said = []
    if nextitem is None or nextitem.path != item.path:
        said = [f"in the garbage of {item.path.name}: {text}" for text in collect_garbage()]
    said += _watch.after_test()
    return "\n  ".join(["left behind:", *said]) if said else ""
