"""A full disk while crews run: kickoffs are refused, executions wait, nothing is lost.

The state directory is a file system of a few megabytes.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.fakes import small_disk as disks
from tests.fakes.small_disk import fill

if TYPE_CHECKING:
    from tests.e2e.crews.conftest import Employing, Meet
    from tests.fakes.receiver import Receiver

SIZE = 8  # MiB, including the database and its log


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    with disks.small_disk(tmp_path / "small", f"{SIZE}m") as folder:
        yield folder


async def test_full_disk(
    employing: Employing, meet: Meet, receiver: Receiver, small_disk: Path, tmp_path: Path
) -> None:
    gate, filler = tmp_path / "gate", small_disk / "filler"
    target = f"{receiver.url}/ends"
    with employing(
        {"gated": {"gate": gate, "max_running": 2, "on_restart": "rerun"}},
        state={"directory": str(small_disk)},
    ) as daemon:
        gated = await meet(daemon, "gated")

        async def run_out_of_space() -> list[str]:
            """Fill the disk while two executions run and two wait; return all ids."""
            ids = [await gated.kick_off(crewWebhookUrl=target) for _ in range(4)]
            await daemon.until("one works", lambda: gated.works(ids[0]))
            await daemon.until("two work", lambda: gated.works(ids[1]))
            fill(filler)
            while (answer := await gated.ask("POST", "/kickoff", {})).status_code == 200:
                ids.append(answer.json()["kickoff_id"])
            assert answer.status_code == 503
            assert "its disk is full" in answer.json()["message"]
            assert int(answer.headers["retry-after"]) > 0
            gate.touch()
            daemon.program.wait_for(f"execution {ids[0]} is held up", daemon.program.log)
            daemon.program.wait_for(f"execution {ids[1]} is held up", daemon.program.log)
            states = [(await gated.status(each))["state"] for each in ids]
            assert states == ["RUNNING"] * 2 + ["PENDING"] * (len(ids) - 2)
            return ids

        ids = await run_out_of_space()
        filler.unlink()
        for each in ids:
            assert (await gated.ended(each))["status"] == "completed"

        gate.unlink()
        ids += await run_out_of_space()
        await daemon.kill()
        filler.unlink()
        daemon.start()
        assert await gated.ids() == ids
        for each in ids:
            assert (await gated.ended(each))["status"] == "completed"
        await daemon.until("all calls", lambda: has_eight_calls(receiver))
    assert {call.body["kickoff_id"] for call in receiver.calls} <= set(ids)


async def test_start_on_full_disk_fails_until_there_is_room(
    employing: Employing, meet: Meet, small_disk: Path, tmp_path: Path
) -> None:
    """SQLite needs to create a file beside the database to open it."""
    gate, filler = tmp_path / "gate", small_disk / "filler"
    gate.touch()
    state = {"directory": str(small_disk)}
    with employing({"gated": {"gate": gate}}, state=state) as daemon:
        gated = await meet(daemon, "gated")
        ended = await gated.kick_off()
        await gated.ended(ended)
        assert daemon.program.stop() == 0
        fill(filler)
        daemon.spawn()
        assert await daemon.program.ended() != 0
        assert '"disk_full"' in daemon.program.log.read_text(encoding="utf-8")
        filler.unlink()
        daemon.start()
        assert (await gated.status(ended))["state"] == "SUCCESS"
        await gated.ended(await gated.kick_off())


async def has_eight_calls(receiver: Receiver) -> bool:
    return len({call.body["kickoff_id"] for call in receiver.calls}) == 8
