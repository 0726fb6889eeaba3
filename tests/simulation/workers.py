"""The machine that workers run on, as the simulation has it: each start is looked at."""

from __future__ import annotations

from pathlib import Path

from smartlinkd.processes.guardian import Order
from tests.fakes import workers
from tests.fakes.workers import Guardian
from tests.simulation.executions import Executions


class Workers(workers.Workers):
    """See above."""

    def __init__(self, folder: Path, executions: Executions) -> None:
        super().__init__(folder)
        self._executions = executions

    def start(self, order: Order, *descriptors: int) -> Guardian:
        guardian = super().start(order, *descriptors)
        crew = guardian.command[-1]
        running = sum(each.command[-1] == crew for each in self.guardians)
        self._executions.worker_started(crew, guardian.execution, running)
        return guardian
