"""The demo: the first command in the README."""

from __future__ import annotations

import json
import re
import signal
import subprocess
from typing import TYPE_CHECKING

import httpx
import pytest

if TYPE_CHECKING:
    from tests.e2e.conftest import RunProgram

pytestmark = pytest.mark.chromium


async def test_demo(run_program: RunProgram) -> None:
    program = run_program("demo", "--once", "--port", "0")
    assert await program.ended() == 0, program.log.read_text()
    output = program.output.read_text().splitlines()
    rows = [line for line in output if line.startswith("  127.")]
    links = [row.split()[0].partition("/")[2] for row in rows]
    assert links == [
        "product/88201679/23456789012",
        "Ten-san-pham-i.40011223.17788990011",
        "opaanlp/55104422/21334455667",
        "direct",
        "chain3",
        "gone",
    ]
    # The commissions of the first three products; the short links lead to the first one.
    earned = [row.split()[-2] for row in rows]
    assert earned == ["21996", "40000", "198700", "21996", "21996", "-"]
    assert "failCode 10" in rows[-1]
    # The crew's post has each of these links once, the best first.
    first, second, third = (row.split()[1] for row in rows[:3])
    post = [line.removeprefix("  | ") for line in output if line.startswith("  |")]
    assert post[0] == "🔥 3 deal đáng mua hôm nay"
    linked = [line.split()[-1] for line in post if line.startswith("👉")]
    assert linked == [third, second, first]
    assert {path.name for path in program.folder.iterdir()} == {"output", "log"}


async def test_demo_ends_with_its_terminal(run_program: RunProgram) -> None:
    """The user could find neither the demo nor the keys in its folder later."""
    program = run_program("demo", "--port", "0")
    program.wait_for("The daemon keeps serving", program.output)
    program.process.send_signal(signal.SIGHUP)
    assert await program.ended() == 0, program.log.read_text()
    assert {path.name for path in program.folder.iterdir()} == {"output", "log"}


def test_printed_commands_work(run_program: RunProgram) -> None:
    program = run_program("demo", "--port", "0")
    program.wait_for("The daemon keeps serving", program.output)
    printed = program.output.read_text()
    commands = printed.partition("To do it again:\n")[2].partition("In a browser: ")
    script = re.sub(r"^The crew, by its own token:$", "", commands[0], flags=re.MULTILINE)
    done = subprocess.run(
        ["sh", "-eu", "-c", script], capture_output=True, text=True, timeout=60, check=True
    )
    said = done.stdout
    assert re.search(r'"failCode":\s*0\b', said), said
    assert re.search(r'"browserReady":\s*true\b', said)
    assert re.search(r'^data: \{"type":\s*"task_started"', said, flags=re.MULTILINE), said
    assert json.loads(said.rpartition("\n")[2])["state"] == "SUCCESS"
    page, _, password = commands[2].split(maxsplit=2)
    assert httpx.get(page, trust_env=False).status_code == 200
    login = {"password": password.partition(")")[0]}
    origin = page.removesuffix("/app/")
    session = httpx.post(f"{origin}/api/auth/login", json=login, trust_env=False).json()
    bearer = {"Authorization": f"Bearer {session['token']}"}
    days = httpx.get(f"{origin}/api/history-days", headers=bearer, trust_env=False).json()["days"]
    assert len(days) == 10, "nine of the days before, and today"
    listed = httpx.get(f"{origin}/api/history?limit=200", headers=bearer, trust_env=False).json()
    oldest = listed["entries"][-1]
    opened = httpx.get(oldest["shortLink"], trust_env=False)
    assert (opened.status_code, opened.headers["Location"]) == (302, oldest["longLink"])
