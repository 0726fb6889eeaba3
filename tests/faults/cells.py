"""A matrix of faults by phases, as data: what is due in each cell, or why there is no such cell."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Generic, TypeVar

D = TypeVar("D")

Cell = tuple[str, str]
Where = str | Iterable[str]


@dataclass(frozen=True)
class Impossible:
    """Why a fault cannot strike in a phase."""

    why: str


class Matrix(Generic[D]):
    """`D` says what is due."""

    def __init__(self) -> None:
        self._said: dict[Cell, D | Impossible] = {}

    def put(self, faults: Where, phases: Where, what: D | Impossible) -> None:
        """Say it for each of the cells; what is said later counts."""
        for fault in [faults] if isinstance(faults, str) else faults:
            for phase in [phases] if isinstance(phases, str) else phases:
                self._said[fault, phase] = what

    def due(self, cell: Cell) -> D:
        """What is due in a cell that there is."""
        what = self._said[cell]
        assert not isinstance(what, Impossible)
        return what

    @property
    def cells(self) -> list[Cell]:
        """Those that there are."""
        return [cell for cell in self._said if cell not in self.impossible]

    @property
    def impossible(self) -> dict[Cell, str]:
        """The others, and why."""
        return {cell: what.why for cell, what in self._said.items() if isinstance(what, Impossible)}

    def check(self, faults: Iterable[str], phases: Iterable[str]) -> None:
        """Each fault is decided in each phase, and what is impossible says why."""
        where = list(phases)
        assert self._said.keys() == {(fault, phase) for fault in faults for phase in where}
        assert all(len(why.split()) > 4 for why in self.impossible.values())
