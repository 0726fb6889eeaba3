"""The module `smartlinkd_crew`, as a project sees it."""

from __future__ import annotations

from typing import Any

from smartlinkd.crews.protocol import Failed, Result, Started, ToolCall, ToolResult
from smartlinkd.crews.tools import TOOL_NAMES
from tests.crews.scripts import Begin, whole


async def test_tools_are_those_of_the_daemon(crew: Begin) -> None:
    code = """
        from crewai import Crew
        from smartlinkd_crew import tools
        press = Crew(kickoff=lambda crew, inputs: sorted(tool.name for tool in tools))
        """
    _, end = await whole(crew(code, tools=tuple(TOOL_NAMES)))
    assert isinstance(end, Result)
    assert end.output_json == sorted(TOOL_NAMES)


async def test_crew_without_tools_has_none(crew: Begin) -> None:
    code = """
        from crewai import Crew
        from smartlinkd_crew import ConvertLinks, tools
        press = Crew(kickoff=lambda crew, inputs: tools or ConvertLinks())
        """
    _, end = await whole(crew(code))
    assert isinstance(end, Failed)
    assert end.error.startswith("this crew may not use convert_links; if it should, add it")


async def test_tool_calls_overlap_and_are_answered_in_any_order(crew: Begin) -> None:
    code = """
        from concurrent.futures import ThreadPoolExecutor
        from crewai import Crew
        from smartlinkd_crew import ToolFailed, call

        def one(n):
            try:
                return call("convert_links", links=[str(n)])
            except ToolFailed as fault:
                return str(fault)

        def kickoff(crew, inputs):
            with ThreadPoolExecutor(40) as pool:
                return list(pool.map(one, range(40)))

        press = Crew(kickoff=kickoff)
        """
    waiting: list[ToolCall] = []
    answered = 0
    async with crew(code, tools=("convert_links",)) as worker:
        async for message in worker.channel:
            assert isinstance(message, ToolCall | Started)
            if isinstance(message, ToolCall):
                waiting.append(message)
            if len(waiting) == min(16, 40 - answered):
                while waiting:
                    call = waiting.pop()
                    answered += 1
                    n = int(call.arguments["links"][0])  # type: ignore[index, arg-type]
                    how: Any = {"error": f"not {n}"} if n % 2 else {"result": n}
                    await worker.channel.send(ToolResult(call_id=call.call_id, **how))
        end = await worker.exit_reason()
    assert isinstance(end, Result)
    assert end.output_json == [f"not {n}" if n % 2 else n for n in range(40)]
