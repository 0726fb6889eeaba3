"""The disk under the state directory is full: new work is refused, what was accepted is kept."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.systemd.machine import PORTAL, Service, run, until

SIZE = "6m"


@pytest.fixture
def small(service: Service) -> Iterator[Service]:
    """Its state is on a file system of SIZE, which begins empty."""
    run("systemctl", "stop", "smartlinkd.socket", "smartlinkd.service")
    run("mount", "-t", "tmpfs", "-o", f"size={SIZE},mode=700", "tmpfs", str(service.state))
    run("systemctl", "start", "smartlinkd.socket", "smartlinkd.service")
    service.forget_tokens()
    yield service
    run("systemctl", "stop", "smartlinkd.socket", "smartlinkd.service")
    run("umount", str(service.state))
    service.forget_tokens()


def fill(folder: Path) -> Path:
    """Leave no room in a folder; the file that takes it."""
    filler = folder / "filler"
    with filler.open("wb", buffering=0) as file:
        for size in (65536, 4096, 1):
            try:
                while file.write(b"x" * size) == size:
                    pass
            except OSError:
                continue
    return filler


def test_it_says_so_loses_nothing_and_goes_on_when_there_is_room(small: Service) -> None:
    accepted = [small.kickoff("quick", number=number) for number in range(3)]
    runs = small.kickoff("slow", seconds=3)
    waits = small.kickoff("slow")
    for each in accepted:
        assert small.execution("quick", each, wait=20)["state"] == "SUCCESS"
    until("it runs", lambda: small.execution("slow", runs)["state"] == "RUNNING")
    before = small.pid
    filler = fill(small.state)
    token = small.crew_token("quick")

    def refusal() -> str:
        answer = small.ask("/crews/quick/kickoff", {"inputs": {}}, token=token)
        return answer.text if answer.status_code == 503 else ""

    # What the journal has room for by itself it still takes, and then it keeps its promise.
    reason = until("a kickoff is refused", refusal)
    print(reason)
    assert "disk" in reason
    assert small.pid == before
    for each in accepted:
        assert small.execution("quick", each)["result"] == "done"
    assert small.health()["ok"] is True
    # A conversion needs no disk.
    small.store_cookie()
    small.until_ready()
    link = f"http://127.0.0.1:{PORTAL + 1}/product/88201679/{PORTAL}1"
    answer = small.answer("/api/convert", {"links": [link]}, token=small.login())
    assert answer["mapping"][link]["failCode"] == 0
    filler.unlink()
    for crew, each in (("slow", runs), ("slow", waits), ("quick", small.kickoff("quick"))):
        assert small.execution(crew, each, wait=60)["state"] == "SUCCESS"
    assert small.pid == before
