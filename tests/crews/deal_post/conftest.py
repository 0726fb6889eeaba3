"""The example crew as the daemon runs it, with the test in the daemon's place."""

from __future__ import annotations

import json
import sys
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
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
from smartlinkd.crews.worker import Worker

Begin = Callable[..., AbstractAsyncContextManager[Worker]]
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

    @property
    def calls(self) -> list[ToolCall]:
        return [m for m in self.said if isinstance(m, ToolCall)]

    def steps(self, agent: str) -> list[Step]:
        return [m for m in self.said if isinstance(m, Step) and m.agent == agent]


RunCrew = Callable[..., Awaitable[Run]]


@pytest.fixture
def links() -> list[str]:
    """The links that the daemon converts here: two products, one without data, one that fails."""
    return list(MAPPING)


@pytest.fixture
def run_crew(begin: Begin) -> RunCrew:
    """`await run_crew(inputs, environment={…}, refusal="…")`: one execution, to its end.

    The links asked for are answered out of the table above; with a `refusal` the call fails.
    """

    async def run(
        inputs: dict[str, Any],
        *,
        environment: dict[str, str] | None = None,
        refusal: str | None = None,
    ) -> Run:
        said = []
        async with begin(
            sys.executable,
            "-m",
            "smartlinkd.crews.deal_post",
            inputs=Inputs(inputs=inputs, tools=("convert_links",)),
            environment=environment,
        ) as worker:
            with trio.fail_after(30):
                async for message in worker.channel:
                    said.append(message)
                    if isinstance(message, ToolCall):
                        await worker.channel.send(_answer(message, refusal))
                return Run(said, await worker.exit_reason())

    return run


def _answer(call: ToolCall, refusal: str | None) -> ToolResult:
    if refusal is not None:
        return ToolResult(call_id=call.call_id, error=refusal)
    wanted = call.arguments["links"]
    assert isinstance(wanted, list)
    mapping = {str(link): MAPPING[str(link)] for link in wanted}
    return ToolResult(call_id=call.call_id, result={"mapping": mapping})


class FakeModel:
    """An OpenAI-compatible server that answers as it is told, and keeps what it was asked.

    `answers` are whole HTTP responses, one for each call; when there is none left, it is silent.
    """

    def __init__(self, port: int) -> None:
        self.environment = {
            "OPENAI_BASE_URL": f"http://127.0.0.1:{port}/v1/",
            "OPENAI_API_KEY": "sk-a-secret-of-the-owner",
        }
        self.answers: list[bytes] = []
        self.heads: list[str] = []
        self.bodies: list[Any] = []

    def will_write(self, text: object, **usage: int) -> None:
        """The next answer is a `chat.completion` with this text."""
        completion = {
            "object": "chat.completion",
            "choices": [{"index": 0, "message": {"role": "assistant", "content": text}}],
            "usage": usage,
        }
        self.will_answer(200, json.dumps(completion).encode())

    def will_answer(self, status: int, body: bytes, *headers: str) -> None:
        """The next answer is this."""
        lines = [f"HTTP/1.1 {status} Said", f"Content-Length: {len(body)}", *headers, "", ""]
        self.answers.append("\r\n".join(lines).encode() + body)

    async def serve(self, stream: trio.SocketStream) -> None:
        """One connection, one call."""
        data = b""
        while b"\r\n\r\n" not in data:
            data += await stream.receive_some()
        head, _, body = data.partition(b"\r\n\r\n")
        [length] = [
            int(line.partition(b":")[2])
            for line in head.split(b"\r\n")
            if line.lower().startswith(b"content-length:")
        ]
        while len(body) < length:
            body += await stream.receive_some()
        self.heads.append(head.decode())
        self.bodies.append(json.loads(body))
        if not self.answers:
            await trio.sleep_forever()
        await stream.send_all(self.answers.pop(0))


@pytest.fixture
async def fake_model(nursery: trio.Nursery) -> FakeModel:
    [listener] = await trio.open_tcp_listeners(0, host="127.0.0.1")
    model = FakeModel(listener.socket.getsockname()[1])

    async def serve(stream: trio.SocketStream) -> None:
        async with stream:
            await model.serve(stream)

    nursery.start_soon(trio.serve_listeners, serve, [listener])
    return model
