"""The machine that workers run on, as the simulation has it: each start is looked at."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from smartlinkd.processes.reaper import CommandSpec
from tests.fakes import workers
from tests.simulation.executions import Executions


class Workers(workers.Workers):
    """See above."""

    def __init__(self, folder: Path, executions: Executions) -> None:
        super().__init__(folder)
        self._executions = executions

    def fork_reaper(self, spec: CommandSpec, *descriptors: int) -> Callable[[], None]:
        kill = super().fork_reaper(spec, *descriptors)
        reaper = self.reapers[-1]
        crew = reaper.command[-1]
        running = sum(each.command[-1] == crew for each in self.reapers)
        self._executions.worker_started(crew, reaper.execution, running)
        return kill
