"""`progress.total_tasks` is always a whole number, and never less than `completed_tasks`."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.config_file import WITHOUT_BROWSER
from tests.e2e.crews.conftest import client_of

if TYPE_CHECKING:
    from tests.e2e.conftest import Daemon, Running
    from tests.e2e.crews.conftest import Client as CrewClient

Progress = tuple[int, int]


class Client:
    """A client of the crew that watches its executions' progress."""

    def __init__(self, client: CrewClient) -> None:
        self._client = client

    async def kick_off(self) -> str:
        return await self._client.kick_off()

    async def progress(self, kickoff_id: str) -> Progress:
        """Return the numbers of completed tasks and of all tasks, which the list shows, too."""
        shown = (await self._client.status(kickoff_id))["progress"]
        listed = (await self._client.get("/executions"))["executions"]
        found = {each["kickoff_id"]: each["progress"] for each in listed}
        assert found[kickoff_id].keys() == shown.keys() == {"completed_tasks", "total_tasks"}
        return shown["completed_tasks"], shown["total_tasks"]

    async def until(self, kickoff_id: str, wanted: Progress) -> None:
        async def reached() -> bool:
            return await self.progress(kickoff_id) == wanted

        await self._client.daemon.until(f"progress {wanted}", reached)

    async def ended(self, kickoff_id: str) -> str:
        """Wait for the execution's end, and return its state."""
        return str((await self._client.ended(kickoff_id))["state"])


def script(gates: Path, *, told: str) -> str:
    """Return a worker in sh that does two tasks. Each waits for the file of its number."""
    return "\n".join(
        [
            "say() { printf '%s\\n' \"$1\" >&3; }",
            "IFS= read -r inputs <&3",
            f"""say '{{"type": "started"{told}}}'""",
            *(
                f"""say '{{"type": "task_started", "task_id": "{n}"}}'
                until [ -e '{gates}/{n}' ]; do sleep 0.02; done
                say '{{"type": "task_completed", "task_id": "{n}", "output": ""}}'"""
                for n in (1, 2)
            ),
            f"until [ -e '{gates}/end' ]; do sleep 0.02; done",
            """say '{"type": "result", "output": "done"}'""",
        ]
    )


Employ = Callable[..., AbstractContextManager["Daemon"]]


@pytest.fixture
def employ(running: Running, tmp_path: Path) -> Employ:
    """Return a context manager that runs a daemon without a browser and with the crew `script`."""

    def employ(*, told: str = "") -> AbstractContextManager[Daemon]:
        words = ["/bin/sh", "-c", script(tmp_path, told=told)]
        crew = {"name": "alpha", "runner": "command", "command": words, "max_running": 1}
        return running(**WITHOUT_BROWSER, crews=[crew])

    return employ


async def meet(daemon: Daemon) -> Client:
    return Client(await client_of(daemon, "alpha"))


async def test_total_tasks_is_the_started_tasks_where_the_worker_told_none(
    employ: Employ, tmp_path: Path
) -> None:
    with employ() as daemon:
        client = await meet(daemon)
        first, queued = await client.kick_off(), await client.kick_off()
        await client.until(first, (0, 1))
        assert await client.progress(queued) == (0, 0)
        (tmp_path / "1").touch()
        await client.until(first, (1, 2))
        (tmp_path / "2").touch()
        await client.until(first, (2, 2))
        (tmp_path / "end").touch()
        assert await client.ended(first) == "SUCCESS"
        assert await client.progress(first) == (2, 2)
        assert await client.ended(queued) == "SUCCESS"


async def test_total_tasks_survives_a_daemon_that_is_killed(employ: Employ, tmp_path: Path) -> None:
    with employ() as daemon:
        client = await meet(daemon)
        kickoff_id = await client.kick_off()
        (tmp_path / "1").touch()
        await client.until(kickoff_id, (1, 2))
        await daemon.kill()
        daemon.start()
        client = await meet(daemon)
        assert await client.ended(kickoff_id) == "FAILED"
        assert await client.progress(kickoff_id) == (1, 2)


@pytest.mark.parametrize(
    ("told", "seen"),
    [
        (5, [(0, 5), (1, 5), (2, 5)]),
        (1, [(0, 1), (1, 1), (2, 2)]),
        (0, [(0, 0), (1, 1), (2, 2)]),
    ],
)
async def test_total_tasks_is_what_the_worker_told_and_no_less_than_completed(
    employ: Employ, tmp_path: Path, told: int, seen: list[Progress]
) -> None:
    with employ(told=f', "total_tasks": {told}') as daemon:
        client = await meet(daemon)
        kickoff_id = await client.kick_off()
        await client.until(kickoff_id, seen[0])
        for number, wanted in enumerate(seen[1:], 1):
            (tmp_path / str(number)).touch()
            await client.until(kickoff_id, wanted)
        (tmp_path / "end").touch()
        assert await client.ended(kickoff_id) == "SUCCESS"
        assert await client.progress(kickoff_id) == seen[-1]
