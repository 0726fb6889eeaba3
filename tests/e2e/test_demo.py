"""The one command that the README begins with."""

from __future__ import annotations

from typing import TYPE_CHECKING

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
    assert {path.name for path in program.folder.iterdir()} == {"stdout", "stderr"}
