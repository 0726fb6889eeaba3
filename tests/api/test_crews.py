"""Crews for the owner over HTTP: the list, and their tokens."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest
import trio
from pydantic import SecretBytes

from smartlinkd.api.auth_guards import Guards
from smartlinkd.api.errors import handle_errors
from smartlinkd.api.operations import Access, Api, bearer
from smartlinkd.api.routes import crews
from smartlinkd.api.schemas import Failure
from smartlinkd.api.services import CrewServices
from smartlinkd.config.problems import Problem
from smartlinkd.crews.catalog.catalog import Catalog
from smartlinkd.crews.executor import Executor
from smartlinkd.crews.model import BrokenCrew, Crew, CrewLoad, Input
from smartlinkd.crews.tokens import CrewTokens
from smartlinkd.crews.worker import WorkerSettings
from smartlinkd.errors import NotAllowed
from smartlinkd.http_server import GuardedQuart
from smartlinkd.store.actor import Store
from smartlinkd.store.model import Retention

if TYPE_CHECKING:
    from quart.typing import TestClientProtocol

Json = dict[str, Any]
OWNER = {"Authorization": "Bearer session"}
SECRET = "a-password-for-a-model"


def crew(name: str, *, inputs: tuple[Input, ...] = (), users: tuple[str, ...] = ()) -> Crew:
    worker = WorkerSettings(command=("/bin/true",), environment={"KEY": SECRET}, memory=1 << 30)
    return Crew(
        name=name,
        worker=worker,
        inputs=inputs,
        max_running=1,
        queue=1,
        deadline=1.0,
        human_deadline=1.0,
        on_restart="fail",
        users=users,
        tools=(),
    )


INPUTS = (Input("topic", description="what about"), Input("tone", required=False, default={"n": 1}))
BROKEN = BrokenCrew(
    "sick", (Problem("crews[2].python", "is not there", "make it"),), users=("ann",)
)
NAMELESS = BrokenCrew(None, (Problem("crews[3].name", "is no name", "write one"),))
CATALOG = Catalog(
    crews={
        "post": crew("post", inputs=INPUTS, users=("ann", "bob")),
        "idle": crew("idle"),
    },
    broken=(BROKEN, NAMELESS),
    default="post",
)
USERS = {"post": ("ann", "bob"), "idle": (), "sick": ("ann",)}


class BusyExecutor(Executor):
    """An executor with two busy crews, one of which is broken by now."""

    def load(self) -> dict[str, CrewLoad]:
        return {
            "post": CrewLoad(running=2, waiting=3),
            "sick": CrewLoad(running=1, waiting=4),
        }


def executor(folder: Path) -> Executor:
    key, retention = SecretBytes(bytes(32)), Retention(timedelta(days=1), 1)
    journal = Store(folder / "journal", key=key, retention=retention)
    return BusyExecutor(CATALOG, journal, tools={}, runs=folder / "runs", queued=lambda: None)


async def session() -> None:
    if bearer() != "session":
        raise NotAllowed("log in")


@pytest.fixture
async def tokens(nursery: trio.Nursery, tmp_path: Path) -> CrewTokens:
    made = CrewTokens(tmp_path, SecretBytes(b"m" * 32), USERS)
    await nursery.start(made.run)
    return made


@pytest.fixture
async def client(tokens: CrewTokens, tmp_path: Path) -> TestClientProtocol:
    app = GuardedQuart()
    access = Access(session, bearer="required")
    guards = cast(Guards, SimpleNamespace(session=access, scoped=lambda _: access))
    services = CrewServices(
        catalog=CATALOG,
        executor=executor(tmp_path),
        tokens=tokens,
        webhook_networks=(),
        own_addresses={"post": "http://127.0.0.1:8801"},
    )
    crews.add(Api(app, failure=Failure), guards, services)
    handle_errors(app)
    return app.test_client()


async def listed(client: TestClientProtocol) -> dict[str | None, Json]:
    answer = await (await client.get("/api/crews", headers=OWNER)).get_json()
    assert answer["ok"] is True
    return {each["name"]: each for each in answer["crews"]}


async def token(client: TestClientProtocol, path: str, **body: str | None) -> str:
    response = await client.post(path, json=body, headers=OWNER)
    answer = await response.get_json()
    assert (response.status_code, answer["ok"]) == (200, True), answer
    return str(answer["token"])


async def shown(client: TestClientProtocol, **body: str | None) -> str:
    return await token(client, "/api/crews/token", **body)


async def rotated(client: TestClientProtocol, **body: str | None) -> str:
    return await token(client, "/api/crews/token/rotate", **body)


async def test_crew_is_listed_with_inputs_users_and_load(client: TestClientProtocol) -> None:
    assert (await listed(client))["post"] == {
        "name": "post",
        "default": True,
        "baseUrls": ["/crews/post", "/", "http://127.0.0.1:8801"],
        "inputs": [
            {"name": "topic", "required": True, "default": None, "description": "what about"},
            {"name": "tone", "required": False, "default": {"n": 1}, "description": ""},
        ],
        "users": ["ann", "bob"],
        "problems": [],
        "running": 2,
        "queued": 3,
    }


async def test_idle_and_broken_crews_are_listed_after_the_running(
    client: TestClientProtocol,
) -> None:
    crews = await listed(client)
    assert list(crews) == ["post", "idle", "sick", None]
    sick, nameless = crews["sick"], crews[None]
    assert sick["problems"] == ["crews[2].python: is not there; make it"]
    assert (sick["baseUrls"], sick["users"]) == (["/crews/sick"], ["ann"])
    assert (sick["running"], sick["queued"]) == (1, 4)
    assert nameless["problems"] == ["crews[3].name: is no name; write one"]
    assert nameless["baseUrls"] == []


async def test_shown_token_is_good_for_its_user(
    client: TestClientProtocol, tokens: CrewTokens
) -> None:
    organization = await tokens.caller("post", await shown(client, crew="post"))
    ann = await tokens.caller("post", await shown(client, crew="post", user="ann"))
    assert (organization.user, ann.user) == ("", "ann")


async def test_broken_crew_has_its_tokens(client: TestClientProtocol, tokens: CrewTokens) -> None:
    assert (await tokens.caller("sick", await shown(client, crew="sick", user="ann"))).user == "ann"


async def test_rotation_replaces_one_token_alone(client: TestClientProtocol) -> None:
    ann, bob = await shown(client, crew="post", user="ann"), await shown(client, crew="post")
    new = await rotated(client, crew="post", user="ann")
    assert new != ann
    assert await shown(client, crew="post", user="ann") == new
    assert await shown(client, crew="post") == bob


@pytest.mark.parametrize("path", ["/api/crews/token", "/api/crews/token/rotate"])
@pytest.mark.parametrize(
    ("body", "named"), [({"crew": "none"}, "post"), ({"crew": "post", "user": "eve"}, "bob")]
)
async def test_unknown_crew_or_user_is_404_that_names_the_known(
    client: TestClientProtocol, path: str, body: Json, named: str
) -> None:
    response = await client.post(path, json=body, headers=OWNER)
    answer = await response.get_json()
    assert (response.status_code, answer["ok"]) == (404, False)
    assert named in answer["error"]
