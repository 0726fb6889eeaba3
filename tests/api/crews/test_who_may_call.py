"""Who may call a crew, and what a user token may see.

| promised | test |
|---|---|
| seed 5.1, every request carries the header | `test_without_a_token_it_is_401[…]` |
| seed 5.2, an organization's and a user's token | `test_both_kinds_of_token_are_good[…]` |
| seed 5.3, an invalid token gives 401; contract, with `WWW-Authenticate` | `test_this_is_401[…]` |
| another crew's token; an unknown crew looks like a wrong token | `test_this_is_401[…]` |
| contract, user tokens: read /inputs, kick off | `test_a_user_may_kick_off_and_read` |
| contract, see, follow, stop and resume their own | `test_a_user_may_do_all_with_an_own[…]` |
| contract, to it another's execution is 404 | `test_anothers_is_404_to_a_user[…]` |
| the same 404 as for none | `test_anothers_is_404_to_a_user[…]` |
| contract, /executions lists its own | `test_a_user_lists_own_executions` |
| contract, the organization may do everything | `test_the_organization_sees_all` |
| another crew's execution is 404 | `test_another_crews_execution_is_404` |
| contract, a rotated token | `test_a_rotated_token_is_401_and_the_others_stay` |
| … also whose request had begun before | `test_a_token_that_is_rotated_while_its_body_comes[…]` |
| the caller comes before the body | `test_without_a_token_nothing_is_said_of_the_body` |
| a part that is down | `test_tokens_that_cannot_be_checked_are_503` |
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any
from uuid import UUID, uuid4

import pytest

from smartlinkd.store.model import Status

if TYPE_CHECKING:
    from tests.api.crews.conftest import House, StandIn

ID = "3f1e2d0c-6a5b-4c8d-9e7f-0a1b2c3d4e5f"
RESUME = {"task_id": "1", "human_feedback": "good", "is_approve": True}

CALLS: dict[str, tuple[str, str, Any]] = {
    "healthy": ("GET", "/", None),
    "inputs": ("GET", "/inputs", None),
    "kickoff": ("POST", "/kickoff", {"inputs": {}}),
    "status": ("GET", "/status/{id}", None),
    "status, otherwise": ("GET", "/{id}/status", None),
    "executions": ("GET", "/executions", None),
    "stop": ("POST", "/stop/{id}", None),
    "events": ("GET", "/events/{id}", None),
    "resume": ("POST", "/resume", RESUME | {"execution_id": "{id}"}),
}
OF_ONE = [name for name, call in CALLS.items() if "{id}" in str(call)]


def call(name: str, kickoff_id: str = ID) -> tuple[str, str, Any]:
    """One of `CALLS` for an execution."""
    method, path, body = CALLS[name]
    if body is not None and "execution_id" in body:
        body = body | {"execution_id": kickoff_id}
    return method, path.replace("{id}", kickoff_id), body


@pytest.mark.parametrize("where", ["under", "root", "own"])
@pytest.mark.parametrize("name", CALLS)
async def test_without_a_token_it_is_401(house: House, where: str, name: str) -> None:
    method, path, body = call(name)
    if (where, name) == ("root", "healthy"):  # the owner's page, as tests/contract says
        return
    answer = await house.at(where).ask(method, path, "", body)
    assert answer.status_code == 401
    assert answer.headers["WWW-Authenticate"] == "Bearer"
    assert answer.json()["error"] == "Unauthorized"
    assert "Authorization: Bearer" in answer.json()["message"]


@pytest.mark.parametrize("where", ["under", "root", "own"])
@pytest.mark.parametrize("who", ["alpha", "ann", "bob"])
async def test_both_kinds_of_token_are_good(house: House, where: str, who: str) -> None:
    assert (await house.at(where).get("/inputs", house.tokens[who])).status_code == 200


@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize("fault", ["wrong", "another crew's", "none such", "other scheme"])
async def test_this_is_401(house: House, name: str, fault: str) -> None:
    method, path, body = call(name)
    at, token = house.at("under"), house.token
    headers: dict[str, str] = {}
    match fault:
        case "wrong":
            token = token[:-1] + ("A" if token[-1] != "A" else "B")
        case "another crew's":
            token = house.tokens["beta"]
        case "none such":
            path = f"/crews/nobody{path}"
            at = house.main
        case "other scheme":
            token, headers = "", {"Authorization": f"Basic {token}"}
    answer = await at.ask(method, path, token, body, **headers)
    assert answer.status_code == 401
    assert answer.headers["WWW-Authenticate"] == "Bearer"
    assert token not in answer.text or not token


async def test_an_unknown_crew_looks_like_a_wrong_token(house: House) -> None:
    wrong = [
        (await house.main.get(f"/crews/{crew}/inputs", "slc_wrong")) for crew in ("alpha", "nobody")
    ]
    assert wrong[0].text == wrong[1].text
    of_each = {"date": "", "x-request-id": ""}
    assert {**wrong[0].headers, **of_each} == {**wrong[1].headers, **of_each}


async def test_the_scheme_is_spelt_in_several_ways(house: House) -> None:
    answer = await house.own.get("/inputs", Authorization=f"bearer {house.token}")
    assert answer.status_code == 200


# Users


async def test_a_user_may_kick_off_and_read(house: House, executor: StandIn) -> None:
    at, ann = house.own, house.tokens["ann"]
    assert (await at.get("/", ann)).text == "Healthy"
    answer = await at.post("/kickoff", ann, {"inputs": {}})
    UUID(answer.json()["kickoff_id"])
    assert executor.kickoffs[0][0].user == "ann"


@pytest.mark.parametrize("name", OF_ONE)
@pytest.mark.parametrize("who", ["ann", "alpha"])
async def test_a_user_may_do_all_with_an_own(
    house: House, executor: StandIn, name: str, who: str
) -> None:
    status = Status.WAITING_FOR_HUMAN_INPUT if name == "resume" else Status.PENDING
    known = executor.add(owner="ann", status=status, current_task="1")
    if name == "events":
        executor.change(known.id, status=Status.COMPLETED)
    method, path, body = call(name, known.id)
    answer = await house.own.ask(method, path, house.tokens[who], body)
    assert answer.status_code == 200


@pytest.mark.parametrize("name", OF_ONE)
@pytest.mark.parametrize("owner", ["ann", ""])
async def test_anothers_is_404_to_a_user(
    house: House, executor: StandIn, name: str, owner: str
) -> None:
    known = executor.add(owner=owner, status=Status.WAITING_FOR_HUMAN_INPUT, current_task="1")
    answers = []
    for kickoff_id in (known.id, str(uuid4()), "none"):
        method, path, body = call(name, kickoff_id)
        answers.append(await house.own.ask(method, path, house.tokens["bob"], body))
    assert {answer.status_code for answer in answers} == {404}
    assert len({answer.text for answer in answers}) == 1
    assert executor.known[known.id] is known


async def test_a_user_lists_own_executions(house: House, executor: StandIn) -> None:
    executor.add(owner="ann")
    own = executor.add(owner="bob")
    executor.add(owner="")
    answer = await house.own.get("/executions", house.tokens["bob"])
    assert [each["kickoff_id"] for each in answer.json()["executions"]] == [own.id]


async def test_the_organization_sees_all(house: House, executor: StandIn) -> None:
    known = [executor.add(owner=owner).id for owner in ("ann", "bob", "")]
    answer = await house.own.get("/executions", house.token)
    assert [each["kickoff_id"] for each in answer.json()["executions"]] == known[::-1]
    for kickoff_id in known:
        assert (await house.own.get(f"/status/{kickoff_id}", house.token)).status_code == 200


async def test_another_crews_execution_is_404(house: House, executor: StandIn) -> None:
    known = executor.add("beta")
    assert (await house.own.get(f"/status/{known.id}", house.token)).status_code == 404
    at_beta = f"/crews/beta/status/{known.id}"
    assert (await house.main.get(at_beta, house.tokens["beta"])).status_code == 200


async def test_a_rotated_token_is_401_and_the_others_stay(house: House) -> None:
    new = (await house.crew_tokens.rotate("alpha", "ann")).get_secret_value()
    tokens = {who: house.tokens[who] for who in ("alpha", "ann", "bob")}
    answers = {
        who: (await house.own.get("/inputs", token)).status_code
        for who, token in {**tokens, "new": new}.items()
    }
    assert answers == {"alpha": 200, "ann": 401, "bob": 200, "new": 200}


@pytest.mark.parametrize("name", ["kickoff", "resume"])
async def test_a_token_that_is_rotated_while_its_body_comes(
    house: House, executor: StandIn, name: str
) -> None:
    known = executor.add(status=Status.WAITING_FOR_HUMAN_INPUT, current_task="1")
    _, path, body = call(name, known.id)
    rotate = partial(house.crew_tokens.rotate, "alpha")
    answer = await house.at("under").post_late(path, house.token, body, rotate)
    assert answer.startswith(b"HTTP/1.1 401 ")
    assert executor.known == {known.id: known}


async def test_without_a_token_nothing_is_said_of_the_body(house: House) -> None:
    for body in (b"{", b'{"inputs": 1}', b" " * 100_000):
        assert (await house.own.post("/kickoff", "", body)).status_code == 401


async def test_tokens_that_cannot_be_checked_are_503(house: House) -> None:
    house.crew_tokens.mailbox.close("a test says so")
    answer = await house.own.get("/inputs", house.token)
    assert answer.status_code == 503
    assert int(answer.headers["Retry-After"]) >= 1
