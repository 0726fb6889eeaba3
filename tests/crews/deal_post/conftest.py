"""The example crew as the daemon runs it, with the test in the daemon's place."""

from __future__ import annotations

import json
import sys
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

import pytest
import trio

from smartlinkd.crews.outcome import ExitReason
from smartlinkd.crews.protocol import (
    Failed,
    FromWorker,
    Inputs,
    Log,
    Result,
    Step,
    ToolCall,
    ToolResult,
)
from tests.crews.scripts import Begin, whole
from tests.fakes.internet import Receiver
from tests.fakes.receiver import Call
from tests.net.receivers import open_receiver, receiver

__all__ = ["open_receiver", "receiver"]  # fixtures
LIPSTICK = "https://shopee.vn/product/1/11"
HEADPHONES = "https://shopee.vn/product/2/22"
MYSTERY = "https://shopee.vn/product/3/33"
GONE = "https://s.shopee.vn/gone"
MAPPING: dict[str, Any] = {
    LIPSTICK: {
        "shortLink": "https://s.shopee.vn/lips",
        "longLink": "https://shopee.vn/long/lips",
        "failCode": 0,
        "product": {
            "name": "Son Kem Lì",
            "price": 122_200,
            "rating": "4.8",
            "sales": 15_234,
            "shopName": "Cánh Hồng",
            "commission": 21_996,
            "commissionRate": "18%",
        },
    },
    HEADPHONES: {
        "shortLink": "https://s.shopee.vn/ears",
        "longLink": "https://shopee.vn/long/ears",
        "failCode": 0,
        "product": {
            "name": "Tai Nghe Chống Ồn",
            "price": 5_290_000,
            "rating": None,
            "sales": 2_481,
            "shopName": None,
            "commission": 198_700,
            "commissionRate": "10%",
        },
    },
    MYSTERY: {
        "shortLink": "https://s.shopee.vn/what",
        "longLink": "https://shopee.vn/long/what",
        "failCode": 0,
        "product": None,
    },
    GONE: {"error": True, "failCode": 10},
}
LINKS = list(MAPPING)
"""The links that the daemon converts here: two products, one without data, one that fails."""


@dataclass(frozen=True)
class Run:
    """The messages of an execution, and its end."""

    said: list[FromWorker]
    end: ExitReason

    @property
    def result(self) -> Result:
        assert isinstance(self.end, Result), self.end
        return self.end

    @property
    def error(self) -> str:
        assert isinstance(self.end, Failed), self.end
        return self.end.error

    @property
    def json(self) -> Any:
        return self.result.output_json

    @property
    def warnings(self) -> list[str]:
        return [m.text for m in self.said if isinstance(m, Log) and m.level == "warning"]

    def steps(self, agent: str) -> list[Step]:
        return [m for m in self.said if isinstance(m, Step) and m.agent == agent]


RunCrew = Callable[..., Awaitable[Run]]


@pytest.fixture
def run_crew(begin: Begin) -> RunCrew:
    """`await run_crew(inputs, environment={…})`: one execution, to its end.

    The links asked for are answered out of the table above.
    """

    async def run(inputs: dict[str, Any], *, environment: dict[str, str] | None = None) -> Run:
        worker = begin(
            sys.executable,
            "-m",
            "smartlinkd.crews.deal_post",
            inputs=Inputs(inputs=inputs, tools=("convert_links",)),
            environment=environment,
        )
        return Run(*await whole(worker, _convert))

    return run


def _convert(said: FromWorker) -> ToolResult | None:
    if not isinstance(said, ToolCall):
        return None
    wanted = said.arguments["links"]
    assert isinstance(wanted, list)
    mapping = {str(link): MAPPING[str(link)] for link in wanted}
    return ToolResult(call_id=said.call_id, result={"mapping": mapping})


class FakeModel:
    """An OpenAI-compatible server, at a receiver that answers as it is told."""

    def __init__(self, receiver: Receiver) -> None:
        self._receiver = receiver
        self.environment = {
            "OPENAI_BASE_URL": receiver.url("/v1/"),
            "OPENAI_API_KEY": "sk-a-secret-of-the-owner",
        }

    @property
    def request(self) -> Call:
        """The only request that came."""
        (request,) = self._receiver.calls
        return request

    def will_write(self, text: object, **usage: int) -> None:
        """The next answer is a `chat.completion` with this text."""
        choice = {"index": 0, "message": {"role": "assistant", "content": text}}
        self.will_answer(200, {"object": "chat.completion", "choices": [choice], "usage": usage})

    def will_answer(self, status: int, answer: object) -> None:
        """The next answer is this."""
        body = json.dumps(answer).encode()
        head = f"HTTP/1.1 {status} Said\r\nContent-Length: {len(body)}\r\n\r\n".encode()

        async def say(stream: trio.SocketStream) -> bool:
            await stream.send_all(head + body)
            return status < 300

        self._receiver.next.append(say)


@pytest.fixture
def fake_model(receiver: Receiver) -> FakeModel:
    return FakeModel(receiver)
