"""One row in earnest, the shortest that needs no package of a peer's; the others by their names."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from bench.__main__ import ROWS
from bench.bare import Bare, bare
from bench.daemons import new_folder
from bench.measure import Plan
from smartlinkd.browser.chromium import FLAGS


@pytest.fixture
def folder() -> Iterator[Path]:
    made = new_folder()
    yield made
    shutil.rmtree(made)


@pytest.mark.chromium
def test_recovery_is_measured(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from bench import startup

    flags: dict[str, Sequence[str]] = {}

    def noting(place: Path, given: Sequence[str]) -> AbstractContextManager[Bare]:
        flags[place.name] = given
        return bare(place, given)

    monkeypatch.setattr(startup, "bare", noting)
    (compared,) = startup.row_5(Plan(folder, quick=True)).comparisons
    assert flags == {"bare": startup.FLAGS, "first": FLAGS, "second": FLAGS}
    assert compared.floor is not None
    assert len(compared.ours.values) == len(compared.theirs.values) > 1
    assert min(*compared.ours.values, *compared.theirs.values) > 0


def test_each_row_is_a_function_where_it_is_said_to_be() -> None:
    for place in ROWS.values():
        module, _, function = place.partition(":")
        source = Path(module.replace(".", "/")).with_suffix(".py").read_text(encoding="utf-8")
        assert f"def {function}(plan: Plan) -> Row:" in source
