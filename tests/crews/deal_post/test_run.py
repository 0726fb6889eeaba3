"""The example crew without a model, through the real worker process."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import smartlinkd
from smartlinkd.crews.protocol import (
    Inputs,
    Started,
    TokenUsage,
    ToolCall,
)
from smartlinkd.crews.worker import Stopped
from tests.crews.deal_post.conftest import LINKS, RunCrew
from tests.crews.scripts import Begin

pytestmark = pytest.mark.usefixtures("nothing_left")
POST = """\
🔥 3 deal đáng mua hôm nay

1. Tai Nghe Chống Ồn
💰 Giá: 5.290.000đ
🛒 Đã bán 2.481
👉 Mua tại đây: https://s.shopee.vn/ears

2. Son Kem Lì
💰 Giá: 122.200đ
⭐ 4,8/5 · Đã bán 15.234
🏬 Shop: Cánh Hồng
👉 Mua tại đây: https://s.shopee.vn/lips

3. Sản phẩm gợi ý
👉 Mua tại đây: https://s.shopee.vn/what

Giá và khuyến mãi có thể thay đổi, bạn nhớ kiểm tra lại trước khi đặt mua nhé.
Bài viết có gắn link tiếp thị liên kết: khi bạn mua qua link, mình có thể nhận được một khoản hoa \
hồng nhỏ, còn bạn không phải trả thêm đồng nào."""


async def test_post_in_vietnamese_has_all_deals_and_failures(run_crew: RunCrew) -> None:
    run = await run_crew({"links": LINKS})
    assert run.result.output == POST
    assert run.json["post"] == POST
    assert (run.json["language"], run.json["writer"]) == ("vi", "template")
    assert [deal["links"] for deal in run.json["deals"]] == [[LINKS[1]], [LINKS[0]], [LINKS[2]]]
    assert run.json["failed"] == [
        {
            "link": LINKS[3],
            "failCode": 10,
            "reason": "it is no product or short link of the marketplace, or it has expired",
        }
    ]
    assert run.result.token_usage == TokenUsage()


async def test_post_in_english_has_its_title(run_crew: RunCrew) -> None:
    run = await run_crew({"links": LINKS[:1], "language": "en", "title": "Only  today!"})
    assert run.result.output == (
        "🔥 Only today!\n\n"
        "Son Kem Lì\n"
        "💰 Price: 122,200 VND\n"
        "⭐ 4.8/5 · 15,234 sold\n"
        "🏬 Shop: Cánh Hồng\n"
        "👉 Get it here: https://s.shopee.vn/lips\n\n"
        "Prices and offers can change, so check them before you order.\n"
        "These are affiliate links: when you buy through one I may earn a small commission, and "
        "you pay nothing extra."
    )


async def test_run_without_a_converted_link_fails_with_the_reasons(run_crew: RunCrew) -> None:
    run = await run_crew({"links": LINKS[3:]})
    assert run.error == (
        f"no link was converted: {LINKS[3]}: it is no product or short link of the marketplace, "
        "or it has expired"
    )


async def test_wrong_input_fails_the_run_before_any_task(run_crew: RunCrew) -> None:
    run = await run_crew({"links": []})
    assert run.error.startswith("links: give product or short links")
    assert run.said == [Started(total_tasks=3)]


def test_crew_imports_the_standard_library_alone() -> None:
    root = str(Path(smartlinkd.__file__).parents[1])
    code = "import sys; sys.path.append(sys.argv[1]); import smartlinkd.crews.deal_post.__main__"
    # Isolated and without site-packages: what is not Python's own cannot be imported.
    command = [sys.executable, "-I", "-S", "-c", code, root]
    subprocess.run(command, check=True, timeout=30)


async def test_stopped_crew_ends_without_a_signal(begin: Begin) -> None:
    command = (sys.executable, "-m", "smartlinkd.crews.deal_post")
    inputs = Inputs(inputs={"links": ["https://shopee.vn/x"]}, tools=("convert_links",))
    async with begin(*command, inputs=inputs) as worker:
        async for message in worker.channel:
            if isinstance(message, ToolCall):
                break  # it waits for the result, which never comes
        assert await worker.stop() == Stopped.WITHOUT_SIGNAL
