"""Each operation in `/openapi.json` answers 200 to a good call and refuses wrong calls.

Each answer of every test here is checked for documented statuses (`conftest.Conformity`).
tests/security and tests/contract test more refusals.
"""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from smartlinkd.admin import control_socket
from smartlinkd.api import schemas
from smartlinkd.api.crews import schemas as crew_schemas
from smartlinkd.conversion.schemas import SuccessEntry
from smartlinkd.history.actor import FILE
from smartlinkd.history.database import HistoryDatabase
from smartlinkd.history.model import HistoryLimits, Record, milliseconds
from smartlinkd.wire import Body

if TYPE_CHECKING:
    from pathlib import Path

    from tests.api.conftest import AuthenticatorApp, Conformity, Daemon, Start

COOKIE = "SPC_U=4711; SPC_EC=.ec-of-4711"
RIGHT = {"password": "correct horse battery staple"}
FOREIGN = {"links": ["https://example.org/"]}
KEY = {"name": "a program", "scopes": ["cookie:write"]}
MODELS = {**vars(crew_schemas), **vars(schemas)}


def keep_link(state: Path) -> None:
    """Add an entry to a daemon's history."""
    database = HistoryDatabase(state / FILE, HistoryLimits())
    made = SuccessEntry(
        short_link="https://s.shopee.vn/1",
        long_link="https://shopee.vn/product/1/2?a=b",
        product=None,
    )
    database.add(
        Record(milliseconds(datetime.now(UTC)), "owner", (), "https://shopee.vn/product/1/2", made)
    )
    database.close()


async def test_every_operation_answers_200(
    start: Start, authenticator: AuthenticatorApp, conformity: Conformity
) -> None:
    crew = {"name": "echo", "runner": "command", "command": ["/bin/echo"]}
    daemon = await start(crews=[crew])
    token = await daemon.login()
    missing = {
        f"{method} {path}"
        for method, path, _ in conformity.operations()
        if not path.startswith("/crews/")
    }

    async def call(
        operation: str, body: object = None, *, token: str = "", query: str = "", an_id: str = ""
    ) -> None:
        method, path = operation.replace("{id}", an_id).split()
        answer = await daemon.ask(method, path + query, body, token=token)
        assert answer.status_code == 200, f"{operation}: {answer.text}"
        missing.discard(operation)

    await call("POST /api/auth/login", RIGHT)
    secret = await authenticator.enable(daemon, token)
    begun = (await daemon.post("/api/auth/login", RIGHT)).json()
    body = {"tempToken": begun["tempToken"], "code": authenticator.code(secret)}
    await call("POST /api/auth/verify-mfa", body)
    await call(
        "POST /api/auth/2fa/disable", {"code": authenticator.code(secret, ahead=30)}, token=token
    )
    await call("GET /api/auth/2fa/setup", token=token)
    secret = (await daemon.get("/api/auth/2fa/setup", token=token)).json()["secret"]
    await call(
        "POST /api/auth/2fa/enable",
        {"secret": secret, "code": authenticator.code(secret)},
        token=token,
    )
    await call("POST /api/sync-cookie", {"cookie": COOKIE})
    await call("POST /api/sync-cookie-local", {"cookie": COOKIE})
    await call("POST /api/convert", FOREIGN, token=token)
    await call("POST /api/extract", {"text": "none"}, token=token)
    await call("POST /api/convert-text", {"text": "none"}, token=token)
    await call("GET /api/series", query="?name=restarts", token=token)
    await call("POST /api/crews/token", {"crew": "echo"}, token=token)
    await call("POST /api/crews/token/rotate", {"crew": "echo"}, token=token)
    await control_socket.call(daemon.state, "2fa off")
    made = (await daemon.post("/api/keys", KEY, token=token)).json()
    await call("POST /api/keys", KEY, token=token)
    await call("DELETE /api/keys/{id}", token=token, an_id=made["id"])
    await call("DELETE /api/keys/self", token=await daemon.make_key(token, "status"))
    keep_link(daemon.state)
    entries = (await daemon.get("/api/history", token=token)).json()["entries"]
    await call("DELETE /api/history/{id}", token=token, an_id=entries[0]["id"])
    await call("POST /api/auth/logout", token=await daemon.login())
    revoke = "POST /api/auth/revoke"
    for operation in sorted(missing - {revoke}):
        await call(operation, token=token)
    await call(revoke, token=token)


async def test_wrong_calls_are_refused_as_documented(start: Start) -> None:
    crew = {"name": "echo", "runner": "command", "command": ["/bin/echo"]}
    daemon = await start(crews=[crew])
    session = await daemon.login()
    key = await daemon.make_key(session, "convert")
    many = " ".join(f"https://shopee.vn/product/1/{number}" for number in range(1, 17))
    for text, status in ((many, 400), ("https://shopee.vn/product/1/2", 502)):
        answer = await daemon.post("/api/convert-text", {"text": text}, token=session)
        assert answer.status_code == status
    answer = await daemon.get("/readyz?account=1", Host="not-local.example")
    assert answer.status_code == 403
    for method, path, token, status in [
        ("GET", "/api/keys", key, 403),
        ("GET", "/api/history", key, 403),
        ("GET", "/api/history", "slk_unknown", 403),
        ("DELETE", "/api/keys/self", session, 403),
        ("GET", "/crews/echo/inputs", key, 403),
        ("GET", "/crews/echo/inputs", "slk_unknown", 401),
        ("GET", "/api/history?from=yesterday", session, 400),
        ("GET", "/api/history?cursor=x", session, 400),
        ("DELETE", "/api/history?form=2026-01-01", session, 400),
        ("DELETE", "/api/history?q=%20", session, 400),
        ("DELETE", "/api/history?subId=", session, 400),
        ("DELETE", "/api/history/1", session, 404),
        ("DELETE", "/api/history/x", session, 404),
        ("POST", "/api/convert", session, 400),
    ]:
        answer = await daemon.ask(method, path, token=token)
        assert answer.status_code == status, (method, path)


# The document's content


async def document_of(daemon: Daemon) -> Any:
    return (await daemon.get("/openapi.json")).json()


async def test_every_body_has_an_example_that_its_model_takes(daemon: Daemon) -> None:
    document = await document_of(daemon)
    bodies = [
        operation["requestBody"]["content"]["application/json"]
        for methods in document["paths"].values()
        for operation in methods.values()
        if "requestBody" in operation
    ]
    for body in bodies:
        name = body["schema"]["$ref"].rpartition("/")[2]
        model = MODELS[name]
        assert issubclass(model, Body)
        (example,) = document["components"]["schemas"][name]["examples"]
        read = model.model_validate_json(json.dumps(example), by_alias=True)
        assert read.model_fields_set, model
    assert len(bodies) > 8


async def test_text_over_its_documented_length_is_400(daemon: Daemon) -> None:
    described = (await document_of(daemon))["components"]["schemas"]
    password = described["LoginRequest"]["properties"]["password"]
    name, _ = described["SyncCookieRequest"]["properties"]["accountName"]["anyOf"]
    for path, body, field, text in [
        ("/api/auth/login", {"password": "🐴" * 1025}, "password", password),
        ("/api/sync-cookie", {"cookie": COOKIE, "accountName": "x" * 201}, "accountName", name),
    ]:
        assert text["maxLength"] == len(body[field]) - 1
        answer = await daemon.post(path, body)
        assert answer.status_code == 400
        assert answer.json()["error"].startswith(f"{field}: ")


async def test_operations_have_names_of_their_own_and_described_tags(daemon: Daemon) -> None:
    document = await document_of(daemon)
    operations = [each for methods in document["paths"].values() for each in methods.values()]
    names = {operation["operationId"] for operation in operations}
    assert len(names) == len(operations)
    used = {tag for operation in operations for tag in operation["tags"]}
    assert used <= {tag["name"] for tag in document["tags"]}
    assert document["servers"] == [{"url": "/", "description": "this daemon"}]
