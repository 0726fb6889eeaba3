"""The tools: each calls the HTTP API with the caller's key.

The API checks the key's scope. Here a tool is only hidden from keys that the API would refuse.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from functools import partial
from http import HTTPStatus
from typing import Annotated, Any, Final
from urllib.parse import quote

import httpx
import trio
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel import Server
from mcp_types import (
    CallToolRequestParams,
    CallToolResult,
    ListToolsResult,
    PaginatedRequestParams,
    TextContent,
    Tool,
    ToolAnnotations,
)
from pydantic import BaseModel, ConfigDict, Field, JsonValue, ValidationError
from pydantic_core import to_json

from smartlinkd import __version__
from smartlinkd.auth.keys import Scope
from smartlinkd.conversion.schemas import MAX_LINKS, MAX_SUB_IDS
from smartlinkd.validation import describe_errors

CALL_S: Final = 180.0
"""For a call: a conversion takes `browser.job_timeout` at most, by default 60 s."""
CREW_WAIT_S: Final = 60.0
"""For a crew's end; then `run_crew` answers with the id."""
POLL_S: Final = 1.0
"""Between two looks at an execution."""
ENDED: Final = ("SUCCESS", "FAILED")
INSTRUCTIONS: Final = (
    "Turns a marketplace's product links into the owner's affiliate short links, and runs crews. "
    "When a tool says that the account is paused or the session is over, tell the owner, and do "
    "not try again."
)

Answer = dict[str, JsonValue]
Context = ServerRequestContext[Any, Any]


class ToolFailed(Exception):  # noqa: N818 - said of the tool
    """A tool's error. Its text says what is wrong and what to do.

    `status` is the HTTP status; None if there is none.
    """

    def __init__(self, message: str, *, status: int | None = None) -> None:
        super().__init__(message)
        self.status = status


class ToolApi:
    """The public API, as one caller may use it.

    Attributes:
        stopping: set when the daemon begins to stop, so that a tool that waits ends.
    """

    def __init__(self, http: httpx.AsyncClient, stopping: trio.Event) -> None:
        """Use an HTTP client that sends the caller's key."""
        self._http = http
        self.stopping = stopping

    async def get(self, path: str, query: Mapping[str, str | None] | None = None) -> Answer:
        """Return the answer to a GET. A query's None is left out. Raises `ToolFailed`."""
        params = {name: value for name, value in (query or {}).items() if value is not None}
        return await self._send(self._http.build_request("GET", path, params=params))

    async def post(self, path: str, body: Mapping[str, JsonValue]) -> Answer:
        """Return the answer to a POST. Raises `ToolFailed`."""
        return await self._send(self._http.build_request("POST", path, json=body))

    async def _send(self, request: httpx.Request) -> Answer:
        try:
            response = await self._http.send(request)
        except httpx.RequestError as error:
            raise ToolFailed(
                f"the daemon cannot be reached ({type(error).__name__}); check that it runs"
            ) from None
        try:
            answer = response.json()
        except ValueError:
            answer = None
        if not isinstance(answer, dict):
            raise ToolFailed(f"what answered ({response.status_code}) is no smartlinkd")
        if not response.is_success:
            said = answer.get("message") or answer.get("error")
            wait = response.headers.get("Retry-After")
            again = f" (try again in {wait} s)" if wait else ""
            raise ToolFailed(f"{said}{again}", status=response.status_code)
        return answer


class Arguments(BaseModel):
    """A tool's arguments."""

    model_config = ConfigDict(extra="forbid", hide_input_in_errors=True)


SubIds = Annotated[
    list[str],
    Field(max_length=MAX_SUB_IDS, description="tracking sub-ids, letters and digits"),
]


Run = Callable[[ToolApi, Any, Context], Awaitable[Answer]]


class ConvertLinks(Arguments):
    links: Annotated[
        list[str],
        Field(
            min_length=1,
            max_length=MAX_LINKS,
            description="product or short links of the marketplace, as people paste them",
        ),
    ]
    sub_ids: SubIds = []


class ConvertText(Arguments):
    text: Annotated[str, Field(description="a message with at most 15 links in it")]
    sub_ids: SubIds = []


class History(Arguments):
    q: Annotated[str, Field(description="words of the product's name, the links or a sub-id")] = ""
    since: Annotated[str | None, Field(description="ISO 8601 date or time")] = None
    until: Annotated[str | None, Field(description="ISO 8601; a date counts as a whole")] = None
    limit: Annotated[int, Field(ge=1, le=200, description="entries at the most")] = 20


class RunCrew(Arguments):
    crew: Annotated[str, Field(description="its name, of list_crews")]
    inputs: Annotated[dict[str, JsonValue], Field(description="by name, of list_crews")]


class OneExecution(Arguments):
    crew: Annotated[str, Field(description="its name")]
    kickoff_id: Annotated[str, Field(description="what run_crew returned")]


@dataclass(frozen=True)
class ToolSpec:
    """A tool, the scope that a key needs for it, and its function."""

    name: str
    description: str
    scope: Scope
    arguments: type[Arguments]
    run: Run
    is_read_only: bool

    async def call(self, api: ToolApi, given: Mapping[str, Any], context: Context) -> Answer:
        """Check the arguments and run. Raises `ToolFailed`."""
        try:
            arguments = self.arguments.model_validate(given)
        except ValidationError as error:
            raise ToolFailed(describe_errors(error, whole="arguments")) from None
        return await self.run(api, arguments, context)

    def describe(self) -> Tool:
        """Return what a client is told of the tool."""
        return Tool(
            name=self.name,
            description=self.description,
            input_schema=self.arguments.model_json_schema(),
            annotations=ToolAnnotations(read_only_hint=self.is_read_only),
        )


TOOLS: Final[dict[str, ToolSpec]] = {}


def _tool(
    scope: Scope, arguments: type[Arguments] = Arguments, *, is_read_only: bool = False
) -> Callable[[Run], Run]:
    """Make a function a tool. Models read its name and its docstring."""

    def add(run: Run) -> Run:
        name, description = run.__name__, " ".join((run.__doc__ or "").split())
        TOOLS[name] = ToolSpec(name, description, scope, arguments, run, is_read_only)
        return run

    return add


@_tool("convert", ConvertLinks)
async def convert_links(api: ToolApi, given: ConvertLinks, _: Context) -> Answer:
    """Turn product links into the owner's affiliate short links, with product, price and
    commission. A link that fails has failCode: 10 is no product link, 40300 means that the account
    needs its owner.
    """
    return await api.post("/api/convert", {"links": [*given.links], "subIds": [*given.sub_ids]})


@_tool("convert", ConvertText)
async def convert_text(api: ToolApi, given: ConvertText, _: Context) -> Answer:
    """Return a message with its product links replaced by affiliate short links."""
    return await api.post("/api/convert-text", {"text": given.text, "subIds": [*given.sub_ids]})


@_tool("status", is_read_only=True)
async def account_status(api: ToolApi, _: Arguments, __: Context) -> Answer:
    """Return the state of the marketplace account and its cookie, and what to do."""
    return await api.get("/api/account")


@_tool("history", History, is_read_only=True)
async def history(api: ToolApi, given: History, _: Context) -> Answer:
    """Search the links that were converted, newest first."""
    query = {"q": given.q, "limit": str(given.limit), "from": given.since, "to": given.until}
    return await api.get("/api/history", query)


@_tool("crews", is_read_only=True)
async def list_crews(api: ToolApi, _: Arguments, __: Context) -> Answer:
    """List the crews, with their inputs and what is wrong with them."""
    return await api.get("/api/crews")


@_tool("crews", RunCrew)
async def run_crew(api: ToolApi, given: RunCrew, context: Context) -> Answer:
    """Start a crew. Returns its result, or after a minute its kickoff_id."""
    base = _crew_path(given.crew)
    kickoff = await api.post(f"{base}/kickoff", {"inputs": given.inputs})
    kickoff_id = str(kickoff["kickoff_id"])
    status: Answer = {"kickoff_id": kickoff_id, "state": "PENDING"}
    reported = None
    why = "the execution goes on"
    try:
        with trio.move_on_after(CREW_WAIT_S):
            while True:
                status = await api.get(f"{base}/status/{kickoff_id}")
                progress = status["progress"]
                now = (progress, status["current_task"])
                if now != reported and isinstance(progress, dict):
                    reported = now
                    await context.session.report_progress(
                        _number(progress["completed_tasks"]),
                        _number(progress["total_tasks"]) or None,
                        str(status["current_task"] or status["status"]),
                    )
                if status["state"] in ENDED:
                    return status
                with trio.move_on_after(POLL_S):
                    await api.stopping.wait()
                    break
    except ToolFailed as failure:
        # Without the id, a model would start the crew again.
        why = f"the execution was started, but its state is not known ({failure})"
    return {**status, "note": f"{why}; ask execution_status with this kickoff_id, later"}


@_tool("crews", OneExecution, is_read_only=True)
async def execution_status(api: ToolApi, given: OneExecution, _: Context) -> Answer:
    """Return the state, the tasks and the result of an execution of a crew."""
    return await api.get(f"{_crew_path(given.crew)}/status/{quote(given.kickoff_id, safe='')}")


@_tool("crews", OneExecution)
async def stop_execution(api: ToolApi, given: OneExecution, _: Context) -> Answer:
    """Stop an execution."""
    path = f"{_crew_path(given.crew)}/stop/{quote(given.kickoff_id, safe='')}"
    return await api.post(path, {})


async def _scopes_of(api: ToolApi) -> set[Scope]:
    """Return the scopes that the caller's key opens: a call that changes nothing tells of each."""
    calls: dict[Scope, Callable[[], Awaitable[Answer]]] = {
        "convert": partial(api.post, "/api/extract", {"text": ""}),
        "status": partial(api.get, "/api/account"),
        "history": partial(api.get, "/api/history", {"limit": "1"}),
        "crews": partial(api.get, "/api/crews"),
    }
    opened = set(calls)
    for scope, call in calls.items():
        try:
            await call()
        except ToolFailed as failure:
            if failure.status == HTTPStatus.FORBIDDEN:
                opened.remove(scope)
    return opened


def _find_tool(name: str) -> ToolSpec:
    tool = TOOLS.get(name)
    if tool is None:
        raise ToolFailed(f"there is no such tool; there are {', '.join(TOOLS)}")
    return tool


def _crew_path(name: str) -> str:
    return f"/crews/{quote(name, safe='')}"


def _number(value: JsonValue) -> float:
    return float(value) if isinstance(value, int | float) else 0.0


def make_server(api_of: Callable[[Context], ToolApi]) -> Server[Any]:
    """Return the MCP server.

    Args:
        api_of: returns the API as the caller of a request may use it.
    """
    # It would log each request.
    logging.getLogger("mcp").setLevel(logging.WARNING)

    async def list_tools(context: Context, _: PaginatedRequestParams | None) -> ListToolsResult:
        opened = await _scopes_of(api_of(context))
        tools = [tool.describe() for tool in TOOLS.values() if tool.scope in opened]
        return ListToolsResult(tools=tools)

    async def call_tool(context: Context, called: CallToolRequestParams) -> CallToolResult:
        try:
            tool = _find_tool(called.name)
            answer = await tool.call(api_of(context), called.arguments or {}, context)
        except ToolFailed as failure:
            content = TextContent(type="text", text=str(failure))
            return CallToolResult(content=[content], is_error=True)
        text = to_json(answer).decode()
        return CallToolResult(
            content=[TextContent(type="text", text=text)], structured_content=answer
        )

    return Server(
        "smartlinkd",
        version=__version__,
        instructions=INSTRUCTIONS,
        on_list_tools=list_tools,
        on_call_tool=call_tool,
    )
