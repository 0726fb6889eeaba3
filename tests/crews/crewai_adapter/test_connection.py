"""The adapter's connection to the daemon: its order, and what there is room for."""

from __future__ import annotations

import os
import socket
import threading
from typing import Any

import pytest

from smartlinkd.crews.crewai_adapter.connection import DaemonConnection
from smartlinkd.crews.protocol import (
    Log,
    Result,
    Started,
    TaskCompleted,
    TaskStarted,
    ToolCall,
    ToolResult,
)
from tests.crews.crewai_adapter.stand_in import Begin, steps, whole


async def test_threads_do_not_tear_lines(crew: Begin) -> None:
    code = """
        import threading
        from crewai import Crew, output, task, tell, used

        def work(task):
            tell(task, "task_started")
            for n in range(100):
                used(task, "t", "x" * 5000, n=n)
            tell(task, "task_completed", output=output(task.name))

        def kickoff(crew, inputs):
            threads = [threading.Thread(target=work, args=[task]) for task in crew.tasks]
            [thread.start() for thread in threads]
            [thread.join() for thread in threads]
            return "done"

        press = Crew(*(task(f"t{n}") for n in range(8)), kickoff=kickoff)
        """
    async with crew(code) as worker:
        messages, end = await whole(worker)
    assert end == Result(output="done")
    assert len(steps(messages)) == 800
    for task in range(8):
        own = [each.tool_input for each in steps(messages) if each.task_id == f"t{task}"]
        assert own == [{"n": n} for n in range(100)]


async def test_steps_end_where_the_ends_need_the_room(crew: Begin) -> None:
    code = """
        from crewai import Crew, output, task, tell, used

        def kickoff(crew, inputs):
            [post] = crew.tasks
            tell(post, "task_started")
            for n in range(12_000):
                used(post, "t", n=n)
            tell(post, "task_completed", output=output("x"))
            return "done"

        press = Crew(task("post"), kickoff=kickoff)
        """
    async with crew(code) as worker:
        messages, end = await whole(worker)
    assert end == Result(output="done")
    assert 7_000 < len(steps(messages)) < 9_000
    warning = "this execution has said so much that further steps are left out"
    assert [message for message in messages if isinstance(message, Log)] == [
        Log(level="warning", text=warning)
    ]
    assert isinstance(messages[-1], TaskCompleted)


async def test_long_texts_are_cut_and_say_so(crew: Begin) -> None:
    code = """
        from crewai import Crew, output, task, tell, used

        LONG = "ắ\\x00\\ud800" * 400_000

        def kickoff(crew, inputs):
            [post] = crew.tasks
            tell(post, "task_started")
            for n in range(40):
                used(post, LONG, LONG, given=LONG)
            tell(post, "task_completed", output=output(LONG, {"long": LONG}))
            return output(LONG, {"long": LONG})

        press = Crew(task("post", role=LONG, description=LONG, expected_output=LONG),
                     kickoff=kickoff)
        """
    async with crew(code) as worker:
        messages, end = await whole(worker)
    mark = "… (cut: 1200000 characters in all)"
    assert isinstance(end, Result), end.error
    assert end.output.endswith(mark)
    assert len(end.output) > 200_000
    assert end.output_json is None
    opened, done = messages[1], messages[-2]
    assert isinstance(opened, TaskStarted)
    assert isinstance(done, TaskCompleted)
    for text in (opened.agent, opened.description, done.output, steps(messages)[0].result):
        assert text is not None
        assert text.endswith(mark)
    assert messages[-1] == Log(
        level="warning", text="output_json is left out: with it the result would be too long"
    )


@pytest.mark.parametrize("given", ['"x" * 900_000', '"x", {"a": "y" * 200_000}'])
async def test_many_long_outputs_leave_room_for_the_result(crew: Begin, given: str) -> None:
    code = f"""
        from crewai import Crew, output, task, tell

        def kickoff(crew, inputs):
            for task in crew.tasks:
                tell(task, "task_started")
                tell(task, "task_completed", output=output({given}))
            return "x" * 900_000

        press = Crew(*(task(f"t{{n}}") for n in range(300)), kickoff=kickoff)
        """
    async with crew(code) as worker:
        messages, end = await whole(worker)
    assert end == Result(output="x" * 900_000)
    assert len(messages) == 601


async def test_calls_without_end_leave_room_for_the_result(crew: Begin) -> None:
    code = """
        from crewai import Crew
        from smartlinkd_crew import ToolFailed, call

        def kickoff(crew, inputs):
            try:
                for n in range(12_000):
                    call("convert_links", links=[])
            except ToolFailed as fault:
                return str(fault)

        press = Crew(kickoff=kickoff)
        """
    calls = 0
    async with crew(code) as worker:
        async for message in worker.messages:
            if isinstance(message, ToolCall):
                calls += 1
                await worker.send(ToolResult(call_id=message.call_id))
        end = await worker.exit_reason()
    assert end == Result(output="convert_links: this execution has had all the calls it may have")
    assert 9_000 < calls < 10_000


async def test_nothing_is_said_after_the_result(crew: Begin) -> None:
    code = """
        import threading
        from crewai import Crew, task, tell, used

        def later(task):
            threading.main_thread().join()
            used(task, "t")

        def kickoff(crew, inputs):
            threading.Thread(target=later, args=crew.tasks).start()
            return "done"

        press = Crew(task("post"), kickoff=kickoff)
        """
    async with crew(code) as worker:
        messages, end = await whole(worker)
    assert (messages, end) == ([Started(total_tasks=1)], Result(output="done"))


def test_a_connection_that_is_closed_at_its_last_message_does_not_end_the_program(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its project has still to write what it writes at its end."""
    exits: list[int] = []
    monkeypatch.setattr(os, "_exit", exits.append)
    ours, theirs = socket.socketpair()

    class Quick(socket.socket):
        """Its other end is closed, and that is seen, before the sender goes on."""

        def sendall(self, data: Any, *flags: Any) -> None:
            super().sendall(data, *flags)
            if b"result" in data:
                ours.shutdown(socket.SHUT_WR)
                listener.join(0.2)

    before = set(threading.enumerate())
    with ours, Quick(fileno=theirs.detach()) as quick:
        daemon = DaemonConnection(quick)
        (listener,) = set(threading.enumerate()) - before
        daemon.result("done", None, None)
        listener.join(20)
    assert not listener.is_alive()
    assert exits == []
