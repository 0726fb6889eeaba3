"""A configuration with a fault is refused as a whole, and a slip ends nothing."""

from __future__ import annotations

import pytest

from tests.app.reload.played import WAIT, Daemon, crew, running
from tests.shortage import Shortage


async def test_a_faulty_file_or_faulty_crew_changes_nothing_and_is_told(daemon: Daemon) -> None:
    daemon.write(crew("one"))
    async with running(daemon):
        daemon.write(cookie={"open_to": []}, browser={"queue": 0}, server={"max_bdy": 1})
        said = await daemon.hang_up()
        assert "ERROR: the configuration is not reloaded: browser.queue: " in said
        assert "not reloaded: server.max_bdy: " in said
        assert "has 2 problem(s)" in said
        daemon.write(crew("one", command=["/nowhere/at-all"]), cookie={"open_to": []})
        said = await daemon.hang_up()
        assert "not reloaded: " in said
        assert "/nowhere/at-all" in said
        assert (await daemon.get("/api/sync-cookie")).status_code == 200
        token, kickoff_id = await daemon.kickoff("one")
        assert (await daemon.end_of("one", token, kickoff_id))["result"] == "done"
        daemon.file.unlink()
        assert "goes on by the one before" in await daemon.hang_up()
        daemon.write(crew("one"))
        assert "nothing has changed" in await daemon.hang_up()


async def test_with_no_thread_to_read_it_the_file_changes_nothing(
    daemon: Daemon, no_thread: Shortage
) -> None:
    daemon.write(crew("old"))
    async with running(daemon):
        daemon.write(crew("new"))
        with no_thread():
            assert "cannot start a thread" in await daemon.hang_up()
        assert (await daemon.login()).status_code == 200
        assert "is reloaded: crews" in await daemon.hang_up()


@pytest.mark.parametrize(
    ("right", "slip"),
    [
        ('name = "one"', 'name = "One"'),
        ('name = "one"', 'name = "two"'),
        ('name = "one"\n', ""),
        ("[[crews]]", "[crews]"),
    ],
)
async def test_a_slip_in_a_crews_name_ends_nothing_that_waits_for_it(
    daemon: Daemon, right: str, slip: str
) -> None:
    two = [crew("two")] if right.startswith("name") else []
    daemon.write(crew("one", WAIT, max_running=1), *two)
    async with running(daemon):
        await daemon.kickoff("one")
        token, waiting = await daemon.kickoff("one")
        daemon.file.write_text(daemon.file.read_text().replace(right, slip, 1))
        assert "not reloaded: crews" in await daemon.hang_up()
        found = (await daemon.get(f"/crews/one/status/{waiting}", token)).json()
        assert found["state"] == "PENDING"


async def test_a_crew_that_was_broken_may_stay_so_and_has_a_name_to_lose(daemon: Daemon) -> None:
    broken = ["/nowhere/at-all"]
    daemon.write(crew("one", command=broken))
    async with running(daemon):
        await daemon.hears('a crew cannot run: crew "one": command: ')
        daemon.write(crew("one", command=broken), crew("two"))
        assert "is reloaded: crews" in await daemon.hang_up()
        daemon.write(crew("One", command=broken), crew("two"))
        assert "not reloaded: crews[0].name: " in await daemon.hang_up()
