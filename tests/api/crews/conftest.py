"""The crews' API over loopback: under `/crews`, at `/`, and on a crew's own address.

Most tests replace the executor by a `FakeExecutor`, which can be put into any state and made to
fail.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from functools import partial
from ipaddress import ip_network
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast
from uuid import uuid4

import httpx
import pytest
import trio
from pydantic import JsonValue, SecretBytes, SecretStr
from pydantic_core import to_json

from smartlinkd.admin.prometheus import Metrics
from smartlinkd.api.app import build_app
from smartlinkd.api.client_address import ClientAccess
from smartlinkd.api.crews.app import build_crew_app
from smartlinkd.api.services import CrewServices, Rules, Services
from smartlinkd.auth.actor import Auth
from smartlinkd.config.problems import Problem
from smartlinkd.conversion.service import ConversionTimings
from smartlinkd.crews.catalog.catalog import Catalog
from smartlinkd.crews.executor import NO_SUCH_EXECUTION, Executor
from smartlinkd.crews.model import (
    BrokenCrew,
    Crew,
    CrewUser,
    Feedback,
    Input,
    Kickoff,
)
from smartlinkd.crews.tokens import CrewTokens
from smartlinkd.crews.worker import WorkerSettings
from smartlinkd.errors import Invalid, NotFound
from smartlinkd.http_server import HttpLimits, ServedApp, bind, serve
from smartlinkd.store.model import (
    Execution,
    ExecutionEvent,
    ExecutionState,
    IdempotencyKey,
    ListPage,
    Status,
    Summary,
)
from tests.api.client import PATIENCE, Client
from tests.api.conftest import plain_transport
from tests.web.conftest import SITE

if TYPE_CHECKING:
    from tests.api.conftest import Conformity

MAX_BODY = 64 * 1024
BEGAN = datetime(2026, 3, 1, 12, 0, 0, tzinfo=UTC)

Json = dict[str, Any]


class FakeExecutor:
    """An executor in memory. `refusal`, if set, is raised by each call.

    `waiting` counts clients that wait or follow; `heard` is set once there was one, `left` once
    there is none.
    """

    def __init__(self, catalog: Catalog) -> None:
        self.catalog = catalog
        self.known: dict[str, Execution] = {}
        self.events: dict[str, list[ExecutionEvent]] = {}
        self.kickoffs: list[tuple[CrewUser, Kickoff, IdempotencyKey | None]] = []
        self.feedbacks: list[Feedback] = []
        self.keys: list[tuple[IdempotencyKey, str]] = []  # with their executions
        self.waits: list[float] = []
        self.refusal: Exception | None = None
        self.takes_to_stop = 0.0  # seconds
        self.stopping = trio.Event()
        self.waiting = 0
        self.news = trio.Event()
        self.heard = trio.Event()
        self.left = trio.Event()

    # For tests

    def add(self, crew: str = "alpha", owner: str = "", **different: Any) -> Execution:
        """Add an execution."""
        made = execution(crew=crew, owner=owner, sequence=len(self.known) + 1, **different)
        self.known[made.id] = made
        self.events[made.id] = []
        return made

    def change(self, kickoff_id: str, **different: Any) -> None:
        """Change an execution and wake waiting clients."""
        self.known[kickoff_id] = replace(self.known[kickoff_id], **different)
        self._notify()

    def add_event(self, kickoff_id: str, kind: str, data: JsonValue = None) -> None:
        """Add an event to an execution."""
        happened = self.events[kickoff_id]
        moment = BEGAN + timedelta(milliseconds=len(happened))
        content = b"" if data is None else to_json(data)
        happened.append(ExecutionEvent(len(happened) + 1, moment, kind, content, len(content)))
        self._notify()

    def _notify(self) -> None:
        self.news.set()
        self.news = trio.Event()

    # The executor's methods

    async def kickoff(self, caller: CrewUser, kickoff: Kickoff, key: IdempotencyKey | None) -> str:
        self.refuse()
        self.kickoffs.append((caller, kickoff, key))
        return self.add(caller.crew, caller.user, inputs=kickoff.inputs, meta=kickoff.meta).id

    async def created_by(self, _caller: CrewUser, key: IdempotencyKey | None) -> str | None:
        self.refuse()
        return next((known for each, known in self.keys if each == key), None)

    async def execution(self, _caller: CrewUser, kickoff_id: str) -> Execution:
        self.refuse()
        if kickoff_id not in self.known:
            raise NotFound(f"kickoff_id: {NO_SUCH_EXECUTION}")
        return self.known[kickoff_id]

    async def executions(
        self, caller: CrewUser, *, state: ExecutionState | None, limit: int, **_cursor: str | None
    ) -> ListPage:
        self.refuse()
        seen: list[Summary] = [
            each
            for each in reversed(self.known.values())
            if each.crew == caller.crew and state in (None, each.state)
        ]
        return ListPage(tuple(seen[:limit]), "older" if len(seen) > limit else None)

    async def wait(self, caller: CrewUser, kickoff_id: str, seconds: float) -> Execution:
        before = await self.execution(caller, kickoff_id)
        self.waits.append(seconds)
        with self._counted(), trio.move_on_after(seconds):
            while not before.state.ended and self.known[kickoff_id].state == before.state:
                await self.news.wait()
        return self.known[kickoff_id]

    async def stop(self, caller: CrewUser, kickoff_id: str) -> None:
        found = await self.execution(caller, kickoff_id)
        if found.state.ended:
            raise Invalid("kickoff_id: it has ended already; there is nothing to stop")
        self.stopping.set()
        await trio.sleep(self.takes_to_stop)
        self.change(kickoff_id, status=Status.STOPPED, error="stopped", finished_at=BEGAN)

    async def resume(self, caller: CrewUser, kickoff_id: str, feedback: Feedback) -> None:
        found = await self.execution(caller, kickoff_id)
        if (found.status, found.current_task) != (
            Status.WAITING_FOR_HUMAN_INPUT,
            feedback.task_id,
        ):
            raise Invalid("task_id: nobody is asked about this task; see current_task")
        self.feedbacks.append(feedback)
        self.change(kickoff_id, status=Status.RUNNING)

    @asynccontextmanager
    async def follow(
        self, caller: CrewUser, kickoff_id: str, *, after: int
    ) -> AsyncIterator[_Subscription]:
        await self.execution(caller, kickoff_id)
        with self._counted():
            yield _Subscription(self, kickoff_id, after)

    @contextmanager
    def _counted(self) -> Iterator[None]:
        self.waiting += 1
        self.heard.set()
        self.left = trio.Event()
        try:
            yield
        finally:
            self.waiting -= 1
            if not self.waiting:
                self.left.set()

    def refuse(self) -> None:
        if self.refusal is not None:
            raise self.refusal


class _Subscription:
    """The events of an execution of a `FakeExecutor`."""

    def __init__(self, of: FakeExecutor, kickoff_id: str, after: int) -> None:
        self._of = of
        self._id = kickoff_id
        self._after = after

    async def next(self) -> list[ExecutionEvent]:
        while True:
            self._of.refuse()
            told = self._of.events[self._id][self._after :]
            self._after += len(told)
            if told or self._of.known[self._id].state.ended:
                return told
            await self._of.news.wait()


def execution(**different: Any) -> Execution:
    """Return a pending execution with different fields."""
    status = different.get("status", Status.PENDING)
    begun = None if status is Status.PENDING else BEGAN + timedelta(seconds=1)
    ended = BEGAN + timedelta(seconds=3.5) if status.state.ended else None
    whole: dict[str, Any] = {
        "id": str(uuid4()),
        "crew": "alpha",
        "owner": "",
        "status": status,
        "error": None,
        "current_task": None,
        "completed_tasks": len(different.get("tasks", ())),
        "total_tasks": None,
        "created_at": BEGAN,
        "started_at": begun,
        "finished_at": ended,
        "sequence": 1,
        "inputs": {},
        "meta": None,
        "webhooks": (),
        "result": None,
        "result_json": None,
        "tasks": (),
        "last_step": None,
    }
    return Execution(**(whole | different))


class Address(Client):
    """A base address of the crews' API."""

    async def get(self, path: str, token: str = "", **headers: str) -> httpx.Response:
        return await self.ask("GET", path, token, **headers)

    async def post(
        self, path: str, token: str = "", body: object = None, **headers: str
    ) -> httpx.Response:
        return await self.ask("POST", path, token, body, **headers)

    async def ask(
        self, method: str, path: str, token: str = "", body: object = None, **headers: str
    ) -> httpx.Response:
        return await self.send(method, path, token, body, headers)


@dataclass
class ServedCrews:
    """The crews `alpha` (the default, with its own bind), `beta`, and the broken `gamma`.

    Each has an organization token; `alpha` also has tokens of the users `ann` and `bob`.
    """

    main: Address
    own: Address
    tokens: Mapping[str, str]
    crew_tokens: CrewTokens
    metrics: Metrics
    stop: trio.Event = field(default_factory=trio.Event)

    @property
    def token(self) -> str:
        """The organization token of `alpha`."""
        return self.tokens["alpha"]

    def at(self, where: str) -> Address:
        """Return a base address of `alpha`: `under` /crews/alpha, at `root`, or its `own`."""
        match where:
            case "under":
                return Address(f"{self.main.url}/crews/alpha", self.main.http)
            case "root":
                return self.main
            case _:
                return self.own


@pytest.fixture
def executor(crews: Catalog) -> FakeExecutor:
    return FakeExecutor(crews)


@pytest.fixture
def crews(tmp_path: Path) -> Catalog:
    worker = WorkerSettings(("/bin/true",), {}, memory=64 * 1024 * 1024)
    alpha = Crew(
        name="alpha",
        worker=worker,
        inputs=(Input("topic"), Input("style", required=False, default="plain"), Input("audience")),
        max_running=1,
        queue=4,
        deadline=60,
        human_deadline=60,
        on_restart="fail",
        users=("ann", "bob"),
        tools=(),
    )
    broken = BrokenCrew(
        "gamma", (Problem("crews.gamma.command", "is not there", "install it"),), users=("ann",)
    )
    return Catalog(
        crews={"alpha": alpha, "beta": replace(alpha, name="beta", inputs=(), users=())},
        broken=(broken,),
        default="alpha",
    )


NETWORKS = (ip_network("127.0.0.0/8"),)


@pytest.fixture
def limits() -> HttpLimits:
    return HttpLimits()


ServeCrews = Callable[[Executor], AbstractAsyncContextManager[ServedCrews]]


@pytest.fixture
def serve_crews(
    nursery: trio.Nursery,
    crews: Catalog,
    tmp_path: Path,
    conformity: Conformity,
    limits: HttpLimits,
) -> ServeCrews:
    """Return a context manager that serves the crews of an executor on two ports."""

    @asynccontextmanager
    async def serve_crews(executor: Executor) -> AsyncIterator[ServedCrews]:
        tokens = CrewTokens(tmp_path, SecretBytes(bytes(32)), crews.users())
        await nursery.start(tokens.run)
        known = CrewServices(
            executor=executor,
            tokens=tokens,
            webhook_networks=NETWORKS,
            own_addresses={},
        )
        metrics = Metrics(None, ConversionTimings(), executor, list)
        nobody: Any = None  # a service that no crew uses
        auth = Auth(tmp_path, password_hash=SecretStr(""), signing_secret=SecretStr("ab" * 32))
        await nursery.start(auth.run)
        services = Services(
            auth=auth,
            vault=nobody,
            conversion=nobody,
            history=nobody,
            browser=None,
            operator=nobody,
            metrics=metrics,
            crews=known,
            log_buffer=nobody,
            recorder=nobody,
            site=SITE,
            sync_key=SecretStr(""),
            rules=Rules(ClientAccess((), (), ()), frozenset(), MAX_BODY),
        )
        app = build_app(services)
        own = build_crew_app("alpha", services)
        stop = trio.Event()
        async with (
            serving(
                nursery, partial(serve, ServedApp(app), limits=limits, stop=stop), conformity
            ) as at_main,
            serving(
                nursery,
                partial(serve, ServedApp(own), limits=limits, stop=stop),
                conformity,
                own=True,
            ) as at_own,
        ):
            shown = {crew: await tokens.show(crew) for crew in crews.names()}
            shown |= {user: await tokens.show("alpha", user) for user in ("ann", "bob")}
            plain = {name: token.get_secret_value() for name, token in shown.items()}
            yield ServedCrews(at_main, at_own, plain, tokens, metrics, stop)

    return serve_crews


@pytest.fixture
async def served(serve_crews: ServeCrews, executor: FakeExecutor) -> AsyncIterator[ServedCrews]:
    """The crews with a `FakeExecutor`."""
    async with serve_crews(cast(Executor, executor)) as made:
        yield made


@asynccontextmanager
async def serving(
    nursery: trio.Nursery,
    serve_on: Callable[..., Awaitable[None]],
    conformity: Conformity,
    *,
    own: bool = False,
) -> AsyncIterator[Address]:
    sockets = bind("127.0.0.1", 0)
    await nursery.start(partial(serve_on, sockets=sockets, grace=PATIENCE))
    url = f"http://127.0.0.1:{sockets[0].getsockname()[1]}"

    async def check(answer: httpx.Response) -> None:
        path = answer.request.url.path
        if not path.startswith("/api/"):
            path = re.sub(r"/([^/]+)/status$", r"/status/\1", path)
            at_root = conformity.documents(f"/crews/alpha{path}")
            path = f"/crews/alpha{path}" if own or at_root else path
        if answer.headers["content-type"] != "text/event-stream":
            await conformity.check(answer, served_as=path)

    async with httpx.AsyncClient(
        transport=plain_transport(), trust_env=False, timeout=PATIENCE
    ) as http:
        if not own:
            await conformity.load(http, url)
        http.event_hooks = {"response": [check]}
        try:
            yield Address(url, http)
        finally:
            for listening in sockets:
                listening.close()
