"""`progress.total_tasks` is always a whole number, and never less than `completed_tasks`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from tests.e2e.conftest import Daemon, Running

Json = dict[str, Any]
Progress = tuple[int, int]


class Client:
    """A client with the crew's organization token."""

    def __init__(self, daemon: Daemon, token: str) -> None:
        self._daemon = daemon
        self._token = token

    async def kick_off(self) -> str:
        return str((await self._ask("POST", "/kickoff", {"inputs": {}}))["kickoff_id"])

    async def progress(self, kickoff_id: str) -> Progress:
        """Return the numbers of completed tasks and of all tasks, which the list shows, too."""
        shown = (await self._ask("GET", f"/status/{kickoff_id}"))["progress"]
        listed = (await self._ask("GET", "/executions"))["executions"]
        found = {each["kickoff_id"]: each["progress"] for each in listed}
        assert found[kickoff_id].keys() == shown.keys() == {"completed_tasks", "total_tasks"}
        return shown["completed_tasks"], shown["total_tasks"]

    async def until(self, kickoff_id: str, wanted: Progress) -> None:
        async def reached() -> bool:
            return await self.progress(kickoff_id) == wanted

        await self._daemon.until(f"progress {wanted}", reached)

    async def ended(self, kickoff_id: str) -> str:
        """Wait for the execution's end, and return its state. A wait also ends at the start."""
        while True:
            state = str((await self._ask("GET", f"/status/{kickoff_id}?wait=30"))["state"])
            if state in {"SUCCESS", "FAILED"}:
                return state

    async def _ask(self, method: str, path: str, body: Json | None = None) -> Json:
        answer = await self._daemon.ask(method, f"/crews/alpha{path}", body, token=self._token)
        assert answer.status_code == 200, answer.text
        found: Json = answer.json()
        return found


def script(gates: Path, *, told: str, tasks: int) -> str:
    """Return a worker in sh that does tasks one after the other. Each waits for the file of its
    number."""
    return "\n".join(
        [
            "say() { printf '%s\\n' \"$1\" >&3; }",
            "IFS= read -r inputs <&3",
            f"""say '{{"type": "started"{told}}}'""",
            *(
                f"""say '{{"type": "task_started", "task_id": "{n}"}}'
                until [ -e '{gates}/{n}' ]; do sleep 0.02; done
                say '{{"type": "task_completed", "task_id": "{n}", "output": ""}}'"""
                for n in range(1, tasks + 1)
            ),
            f"until [ -e '{gates}/end' ]; do sleep 0.02; done",
            """say '{"type": "result", "output": "done"}'""",
        ]
    )


Employ = Callable[..., AbstractContextManager["Daemon"]]
Meet = Callable[["Daemon"], Awaitable[Client]]


@pytest.fixture
def employ(running: Running, tmp_path: Path) -> Employ:
    """Return a context manager that runs a daemon without a browser and with the crew `script`."""

    def employ(*, told: str = "", tasks: int = 2) -> AbstractContextManager[Daemon]:
        words = ["/bin/sh", "-c", script(tmp_path, told=told, tasks=tasks)]
        return running(
            links={"source": "open_api"},
            products={"source": "none"},
            open_api={"app_id": "1", "secret": "unused-here", "url": "http://127.0.0.1:1/"},
            crews=[{"name": "alpha", "runner": "command", "command": words, "max_running": 1}],
        )

    return employ


async def meet(daemon: Daemon) -> Client:
    session = await daemon.login()
    answer = await daemon.ask("POST", "/api/crews/token", {"crew": "alpha"}, token=session)
    token = str(answer.json()["token"])
    daemon.secrets.add(token)
    return Client(daemon, token)


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
