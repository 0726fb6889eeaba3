"""The real CrewAI in its own interpreter, with a model that answers from a script.

`./run test --crewai` makes the interpreter and names it in CREWAI_PYTHON. Without it pytest
collects nothing in this folder, because the environment has about 1 GB.
"""

from __future__ import annotations

import json
import os
import tempfile
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AbstractAsyncContextManager
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from smartlinkd.crews.catalog.catalog import ADAPTER
from smartlinkd.crews.outcome import ExitReason
from smartlinkd.crews.protocol import FromWorker, Inputs
from smartlinkd.crews.worker import Worker, WorkerSettings, start_worker
from tests.crews.crewai_adapter.stand_in import write
from tests.crews.scripts import Answer, whole

PYTHON = os.environ.get("CREWAI_PYTHON", "")
collect_ignore_glob = [] if PYTHON else ["*"]

KEY = "sk-this-is-the-key-of-the-model"

# The worker runs this first: calls and look-ups of other hosts fail and are written to a file.
GUARD = """
import os, socket

def refuse(host):
    if isinstance(host, (str, bytes)) and host not in ("127.0.0.1", "localhost", b"localhost"):
        with open(os.environ["STRANGERS"], "a") as file:
            print(host, file=file)
        raise OSError(f"the test lets nobody call {host}")

def guarded(call, host_of):
    def wrapper(*arguments, **named):
        refuse(host_of(*arguments, **named))
        return call(*arguments, **named)
    return wrapper

def peer(_self, address):
    return address[0] if isinstance(address, tuple) else None

socket.getaddrinfo = guarded(socket.getaddrinfo, lambda host, *_, **__: host)
socket.socket.connect = guarded(socket.socket.connect, peer)
socket.socket.connect_ex = guarded(socket.socket.connect_ex, peer)
"""


class Model:
    """The model's scripted answers, and the requests that it received. The last answer is
    repeated."""

    def __init__(self) -> None:
        self.requests: list[dict[str, Any]] = []
        self.url = ""
        self._answers: list[dict[str, Any]] = []
        self._lock = threading.Lock()
        self.asked = threading.Event()
        self.is_silent = False  # the model answers no more requests
        self.ends = threading.Event()

    def answers(self, *texts: str) -> None:
        self._answers += [{"role": "assistant", "content": text} for text in texts]

    def calls(self, tool: str, **arguments: Any) -> None:
        function = {"name": tool, "arguments": json.dumps(arguments)}
        call = {"id": f"call-{len(self._answers)}", "type": "function", "function": function}
        self._answers.append({"role": "assistant", "content": None, "tool_calls": [call]})

    def refuses(self, status: int, text: str) -> None:
        self._answers.append({"status": status, "error": {"message": text, "type": "error"}})

    def answer(self, request: dict[str, Any]) -> dict[str, Any]:
        with self._lock:
            self.requests.append(request)
            self.asked.set()
            return self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]

    def request_text(self, number: int) -> str:
        """Return all messages of a request."""
        return json.dumps(self.requests[number]["messages"], ensure_ascii=False)


class Handler(BaseHTTPRequestHandler):
    """Chat completions, whole or streamed, with 10 prompt tokens and 5 completion tokens each."""

    protocol_version = "HTTP/1.1"
    timeout = 30  # seconds that a connection may outlive its worker
    model: Model

    def log_message(self, *_: object) -> None:
        pass

    def do_POST(self) -> None:
        request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        answer = self.model.answer(request)
        if self.model.is_silent:
            self.model.ends.wait()
            self.close_connection = True
        elif "status" in answer:
            body = json.dumps({"error": answer["error"]}).encode()
            self._send(answer["status"], "application/json", body)
        elif request.get("stream"):
            events = [*map(json.dumps, chunks(request, answer)), "[DONE]"]
            body = "".join(f"data: {event}\n\n" for event in events).encode()
            self._send(200, "text/event-stream", body)
        else:
            choice = {"index": 0, "message": answer, "finish_reason": finish(answer)}
            body = json.dumps(shape(request, "chat.completion", [choice], USAGE)).encode()
            self._send(200, "application/json", body)

    def _send(self, status: int, kind: str, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


USAGE = {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15}


def finish(answer: dict[str, Any]) -> str:
    return "tool_calls" if answer.get("tool_calls") else "stop"


def shape(
    request: dict[str, Any], kind: str, choices: list[Any], usage: dict[str, int] | None
) -> dict[str, Any]:
    said = {"id": "answer", "object": kind, "created": 1, "model": request["model"]}
    return {**said, "choices": choices, "usage": usage}


def chunks(request: dict[str, Any], answer: dict[str, Any]) -> Iterator[dict[str, Any]]:
    kind = "chat.completion.chunk"
    calls = [{**call, "index": at} for at, call in enumerate(answer.get("tool_calls", []))]
    for delta in ({**answer, "tool_calls": calls or None}, {}):
        end = None if delta else finish(answer)
        yield shape(request, kind, [{"index": 0, "delta": delta, "finish_reason": end}], None)
    yield shape(request, kind, [], USAGE)


@pytest.fixture
def model() -> Iterator[Model]:
    made = Model()
    handler = type("Handler", (Handler,), {"model": made})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    server.daemon_threads = False  # shutdown waits for each thread
    made.url = f"http://127.0.0.1:{server.server_port}/v1"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield made
    made.ends.set()
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture
def foreign_calls(tmp_path: Path) -> Iterator[Path]:
    """The file with calls of other hosts; the test fails if there were any."""
    file = tmp_path / "strangers"
    file.touch()
    yield file
    assert file.read_text() == ""


Project = Callable[[dict[str, str]], Path]


@pytest.fixture
def project(tmp_path: Path) -> Project:
    """Return a function that writes a folder: `project({"src/x/crew.py": "…"})`."""
    return partial(write, tmp_path / "project")


def one_task(
    *, imports: str = "", agent: str = "", task: str = "", crew: str = ""
) -> dict[str, str]:
    """Return a project with the task `post`, and more arguments for its agent, task and crew."""
    return {
        "src/press/crew.py": f"""
            from crewai import Agent, Crew, Task
            {imports}
            writer = Agent(role="Writer", goal="Write", backstory="b"{agent})
            post = Task(name="post", description="Write", expected_output="A post",
                        agent=writer{task})
            press = Crew(agents=[writer], tasks=[post]{crew})
            """
    }


Start = Callable[..., AbstractAsyncContextManager[Worker]]
Run = Callable[..., Awaitable[tuple[list[FromWorker], ExitReason]]]


@pytest.fixture
def start(model: Model, foreign_calls: Path, tmp_path: Path) -> Iterator[Start]:
    """Return a function: `async with start(project, inputs={…}, tools=(…)) as worker`."""
    guard = tmp_path / "guard"
    guard.mkdir()
    (guard / "sitecustomize.py").write_text(GUARD)

    def start_project(
        project: Path,
        inputs: dict[str, Any] | None = None,
        tools: tuple[str, ...] = (),
        **environment: str,
    ) -> AbstractAsyncContextManager[Worker]:
        settings = WorkerSettings(
            command=(PYTHON, str(ADAPTER), str(project)),
            environment={
                "OPENAI_API_KEY": KEY,
                "OPENAI_BASE_URL": model.url,
                "OPENAI_MODEL_NAME": "gpt-4o-mini",
                "PYTHONPATH": str(guard),
                "STRANGERS": str(foreign_calls),
                **environment,
            },
            memory=2 * 2**30,
        )
        told = Inputs(inputs=inputs or {}, tools=tools)
        return start_worker(settings, "some-id", told, runs=Path(runs))

    with tempfile.TemporaryDirectory(prefix="smartlinkd-test-") as runs:
        yield start_project
        assert list(Path(runs).iterdir()) == []


@pytest.fixture
def run(start: Start) -> Run:
    """Return a function: `messages, end = await run(project, answer, …)`."""

    def run_to_end(
        project: Path, answer: Answer = lambda _: None, **how: Any
    ) -> Awaitable[tuple[list[FromWorker], ExitReason]]:
        return whole(start(project, **how), answer)

    return run_to_end
