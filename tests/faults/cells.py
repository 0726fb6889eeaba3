"""A matrix of faults by phases, as data: the due outcome of each cell, or why it is impossible."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Generic, TypeVar

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

D = TypeVar("D", bound="DataclassInstance")

Cell = tuple[str, str]
Where = str | Iterable[str]


@dataclass(frozen=True)
class Impossible:
    """A fault cannot strike in a phase, for this reason."""

    why: str


class Matrix(Generic[D]):
    """Cells by fault and phase. `D` is the type of a due outcome."""

    def __init__(self) -> None:
        self._cells: dict[Cell, D | Impossible] = {}

    def put(self, faults: Where, phases: Where, what: D | Impossible) -> None:
        """Set these cells. A later call replaces an earlier one."""
        for cell in _cells(faults, phases):
            self._cells[cell] = what

    def change(self, faults: Where, phases: Where, **different: Any) -> None:
        """Change these fields of the due outcomes in these possible cells."""
        for cell in _cells(faults, phases):
            self._cells[cell] = replace(self.due(cell), **different)

    def due(self, cell: Cell) -> D:
        """Return the due outcome of a possible cell."""
        what = self._cells[cell]
        assert not isinstance(what, Impossible)
        return what

    @property
    def cells(self) -> list[Cell]:
        """The possible cells."""
        return [cell for cell in self._cells if cell not in self.impossible]

    @property
    def impossible(self) -> dict[Cell, str]:
        """The impossible cells, with the reason."""
        return {
            cell: what.why for cell, what in self._cells.items() if isinstance(what, Impossible)
        }

    def check(self, faults: Iterable[str], phases: Iterable[str]) -> None:
        """Check that each fault is decided in each phase, and each impossible cell has a reason."""
        where = list(phases)
        assert self._cells.keys() == {(fault, phase) for fault in faults for phase in where}
        assert all(len(why.split()) > 4 for why in self.impossible.values())


def _cells(faults: Where, phases: Where) -> list[Cell]:
    rows = [faults] if isinstance(faults, str) else faults
    columns = [phases] if isinstance(phases, str) else list(phases)
    return [(fault, phase) for fault in rows for phase in columns]
