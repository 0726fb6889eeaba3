"""Fixtures: the whole daemon on its own port, a client, and a check of each answer.

A test starts the real supervision tree and uses HTTP over loopback. Each JSON answer is checked
against `/openapi.json` before the test gets it.
"""

from __future__ import annotations

import re
import subprocess
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cache, partial
from pathlib import Path
from typing import Any

import httpx
import jsonschema_rs
import pytest
import trio

from smartlinkd.app import tree
from smartlinkd.auth import passwords
from smartlinkd.auth.actor import Auth
from smartlinkd.auth.passwords import hash_password
from smartlinkd.config import Settings, build
from smartlinkd.net.client import HttpClient
from smartlinkd.sandbox.open_api import APP_ID, SECRET
from smartlinkd.supervision.policy import Backoff
from smartlinkd.supervision.supervisor import Supervisor
from tests.api.client import PATIENCE, Client

PASSWORD = "correct horse battery staple"
HASH = hash_password(PASSWORD)

NOBODY = "http://127.0.0.1:1/graphql"
"""The address of an Open API that never answers: nothing listens at port 1."""

Json = dict[str, Any]
Tables = Mapping[str, object]


@dataclass
class WallClock:
    """The daemon's wall clock, `ahead` seconds off."""

    ahead: float = 0.0
    began: float = field(default_factory=time.time)

    def now(self) -> float:
        """Return Unix seconds. They do not advance, so a test can use a code at any time."""
        return self.began + self.ahead


@dataclass
class AuthenticatorApp:
    """An authenticator app, imitated with oathtool."""

    wall_clock: WallClock

    def code(self, secret: str, *, ahead: float = 0) -> str:
        """Return the code for a secret in base32, now or `ahead` seconds later."""
        moment = datetime.fromtimestamp(self.wall_clock.now() + ahead, UTC)
        answer = subprocess.run(
            ["oathtool", "--totp", "--base32", f"--now={moment:%Y-%m-%d %H:%M:%S} UTC", "-"],
            input=secret,
            capture_output=True,
            text=True,
            check=True,
        )
        return answer.stdout.strip()

    async def enable(self, daemon: Daemon, token: str) -> str:
        """Enable the second factor, advance to the next code, and return the secret."""
        secret = str((await daemon.get("/api/auth/2fa/setup", token=token)).json()["secret"])
        body = {"secret": secret, "code": self.code(secret)}
        answer = await daemon.post("/api/auth/2fa/enable", body, token=token)
        assert answer.status_code == 200, answer.text
        self.wall_clock.ahead += 30
        return secret


@dataclass
class Daemon(Client):
    """A running daemon. Each request uses a new connection."""

    state: Path
    scope: trio.CancelScope
    ended: trio.Event

    async def get(self, path: str, *, token: str = "", **headers: str) -> httpx.Response:
        return await self.ask("GET", path, token=token, **headers)

    async def post(
        self, path: str, body: object, *, token: str = "", **headers: str
    ) -> httpx.Response:
        return await self.ask("POST", path, body, token=token, **headers)

    async def ask(
        self, method: str, path: str, body: object = None, *, token: str = "", **headers: str
    ) -> httpx.Response:
        return await self.send(method, path, token, body, headers)

    async def login(self) -> str:
        """Return a session token; the second factor must be off."""
        answer = await self.post("/api/auth/login", {"password": PASSWORD})
        assert answer.status_code == 200, answer.text
        return str(answer.json()["token"])

    async def make_key(self, token: str, *scopes: str) -> str:
        """Return an API key with these scopes; the second factor must be off."""
        answer = await self.post("/api/keys", {"name": "a program", "scopes": scopes}, token=token)
        assert answer.status_code == 200, answer.text
        return str(answer.json()["key"])

    async def convert(self, token: str, *links: str, **more: str) -> httpx.Response:
        return await self.post("/api/convert", {"links": links, **more}, token=token)

    async def stop(self) -> None:
        """Stop the daemon and wait for its end."""
        self.scope.cancel()
        await self.ended.wait()
        await self.http.aclose()


class Conformity:
    """Checks answers against the daemon's own OpenAPI document."""

    def __init__(self) -> None:
        self._document: Json = {}

    async def load(self, http: httpx.AsyncClient, url: str = "") -> None:
        """Read the document once: it does not depend on the configuration."""
        if not self._document:
            self._document = (await http.get(f"{url}/openapi.json")).json()

    async def check(self, answer: httpx.Response, *, served_as: str = "") -> None:
        """Check status, headers and body against the document. An event hook of httpx.

        `served_as` is the documented path if it differs from the requested one.
        """
        await answer.aread()
        method = answer.request.method.lower()
        if method == "head" and answer.status_code != 405:
            method = "get"
        path = served_as or answer.request.url.path
        no_json = path.startswith(("/openapi.json", "/docs", "/app/"))
        if no_json and answer.status_code == 200:
            return
        if answer.status_code == 204:  # the extension's preflight
            assert answer.request.method == "OPTIONS"
            return
        where = f"{method} {path} → {answer.status_code}"
        assert answer.headers["cache-control"] == "no-store", where
        documented = self._responses(method, path, answer.status_code, where)
        for name, header in documented["headers"].items():
            schema = self._header(header)["schema"]
            assert name in answer.headers, f"{where}: no {name}"
            if schema["type"] == "integer":
                assert int(answer.headers[name]) >= schema["minimum"]
            else:
                assert schema["minLength"] <= len(answer.headers[name]) <= schema["maxLength"]
        ((media, content),) = documented["content"].items()
        assert answer.headers["content-type"].partition(";")[0] == media, where
        if answer.request.method == "HEAD":
            assert answer.content == b""
        elif media == "application/json":
            assert self._faults(answer.json(), content["schema"]) == [], where

    def documents(self, path: str) -> bool:
        """Return True if anything is documented at a path."""
        return any(self._operation(method, path) for method in ("get", "post", "delete"))

    def operations(self) -> list[tuple[str, str, Json]]:
        """Return method, path and description of each operation."""
        return [
            (method.upper(), path, operation)
            for path, methods in self._document["paths"].items()
            for method, operation in methods.items()
        ]

    def _responses(self, method: str, path: str, status: int, where: str) -> Json:
        operation = self._operation(method, path)
        if operation is None:
            assert status in (403, 404, 405, 500, 503), where
            name = "CrewFailure" if path.startswith("/crews/") else "Failure"
            failure = {"$ref": f"#/components/schemas/{name}"}
            headers = self._document["components"]["headers"]
            return {"headers": headers, "content": {"application/json": {"schema": failure}}}
        assert str(status) in operation["responses"], f"{where} is not documented"
        documented: Json = operation["responses"][str(status)]
        return documented

    def _header(self, described: Json) -> Json:
        """Return a header's description. A `$ref` names one that all answers share."""
        name = described.get("$ref", "").removeprefix("#/components/headers/")
        found: Json = self._document["components"]["headers"][name] if name else described
        return found

    def _operation(self, method: str, path: str) -> Json | None:
        for template, methods in self._document["paths"].items():
            pattern = re.sub(r"\{\w+\}", "[^/]+", template)
            if template == "/crews/{crew}":
                pattern += "/?"  # a base address is served with a slash, too
            if method in methods and re.fullmatch(pattern, path):
                found: Json = methods[method]
                return found
        return None

    def _faults(self, value: object, schema: Json) -> list[str]:
        """Return the faults of a value. A field that is not documented is one."""
        whole = _closed({**schema, "components": self._document["components"]})
        found = jsonschema_rs.validator_for(whole).iter_errors(value)
        return [f"{each.instance_path}: {each.message}" for each in found]


def _closed(schema: Any) -> Any:
    """Return a schema whose objects have no field that is not documented."""
    if isinstance(schema, list):
        return [_closed(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    closed = {"additionalProperties": False} if "properties" in schema else {}
    return closed | {name: _closed(each) for name, each in schema.items()}


Start = Callable[..., Awaitable[Daemon]]


@pytest.fixture(autouse=True, scope="module")
def quick_start() -> Iterator[None]:
    """Hash each password once in the module, and read no certificates."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(passwords, "matches", cache(passwords.matches))
        # All requests of the daemon go to loopback, without TLS.
        patch.setattr(tree, "HttpClient", lambda: HttpClient(plain_transport()))
        yield


def plain_transport() -> httpx.AsyncHTTPTransport:
    return httpx.AsyncHTTPTransport(verify=False, limits=httpx.Limits(max_keepalive_connections=0))


@pytest.fixture
def wall_clock(monkeypatch: pytest.MonkeyPatch) -> WallClock:
    """The wall clock for tokens and codes, which the test sets."""
    made = WallClock()
    monkeypatch.setattr(tree, "Auth", partial(Auth, wall_clock=made.now))
    return made


def crash(*fault: str) -> Callable[..., Awaitable[Any]]:
    """Return a method of a handle whose call ends the actor with a `ZeroDivisionError`."""

    async def fail(_state: object, *_: object, **__: object) -> None:
        raise ZeroDivisionError(*fault)

    async def call(handle: Any, *args: object, **more: object) -> Any:
        return await handle.mailbox.ask(fail, *args, **more)

    return call


@pytest.fixture
def slow_restarts(monkeypatch: pytest.MonkeyPatch) -> None:
    """A failed actor is not restarted during the test."""
    monkeypatch.setattr(tree, "Supervisor", partial(Supervisor, backoff=Backoff(300.0, 300.0)))


@pytest.fixture(scope="session")
def conformity() -> Conformity:
    return Conformity()


@pytest.fixture
def settings_of(tmp_path: Path) -> Callable[..., Settings]:
    """Return a function that makes settings for links by an Open API; sections replace keys."""

    def settings(crews: Sequence[Tables] = (), **sections: Tables) -> Settings:
        tables: dict[str, dict[str, object]] = {
            "server": {"bind": "127.0.0.1:0"},
            "state": {"directory": str(tmp_path / "state")},
            "auth": {"password_hash": HASH},
            "links": {"source": "open_api"},
            "products": {"source": "none"},
            "open_api": {"app_id": APP_ID, "secret": SECRET, "url": NOBODY},
        }
        for name, given in sections.items():
            tables.setdefault(name, {}).update(given)
        return build({**tables, "crews": [dict(crew) for crew in crews]})

    return settings


@pytest.fixture
async def start(
    nursery: trio.Nursery,
    settings_of: Callable[..., Settings],
    conformity: Conformity,
    wall_clock: WallClock,
) -> Start:
    """Return a function that starts a daemon: `start(server={"max_body": 4096})`. All daemons of a
    test use the same state directory."""

    async def start(**given: Any) -> Daemon:
        settings = settings_of(**given)
        scope, ended = trio.CancelScope(), trio.Event()

        async def run(task_status: trio.TaskStatus[Sequence[str]]) -> None:
            with scope:
                await tree.serve(settings, task_status=task_status)
            ended.set()

        urls = await nursery.start(run)
        http = httpx.AsyncClient(
            base_url=urls[0],
            transport=plain_transport(),
            trust_env=False,
            timeout=PATIENCE,
            event_hooks={"response": [conformity.check]},
        )
        await conformity.load(http)
        return Daemon(urls[0], http, settings.state.directory, scope, ended)

    return start


@pytest.fixture
async def daemon(start: Start) -> Daemon:
    """A daemon with default settings and without a browser. Its client counts as local."""
    return await start()


@pytest.fixture
async def token(daemon: Daemon) -> str:
    """A session token of `daemon`."""
    return await daemon.login()


@pytest.fixture
def authenticator(wall_clock: WallClock) -> AuthenticatorApp:
    """The owner's authenticator app."""
    return AuthenticatorApp(wall_clock)
