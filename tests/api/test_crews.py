"""The owner's list of crews over HTTP. tests/contract and tests/crews test their tokens."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tests.api.conftest import Start

SLEEP: dict[str, Any] = {"runner": "command", "command": ["/bin/sleep", "600"]}
CREWS = [
    SLEEP | {"name": "sick", "command": ["/nowhere/program"], "users": ["ann"]},
    SLEEP | {"name": "No name"},
    SLEEP
    | {
        "name": "post",
        "default": True,
        "bind": "127.0.0.1:0",
        "inputs": [
            {"name": "topic", "description": "what about"},
            {"name": "tone", "default": {"n": 1}},
        ],
        "users": ["ann", "bob"],
        "max_running": 1,
    },
    SLEEP | {"name": "idle"},
]


async def test_crews_are_listed_with_inputs_users_and_load_and_broken_ones_last(
    start: Start,
) -> None:
    daemon = await start(crews=CREWS)
    session = await daemon.login()
    shown = await daemon.post("/api/crews/token", {"crew": "post", "user": "ann"}, token=session)
    for _ in range(2):
        kicked_off = await daemon.post(
            "/crews/post/kickoff", {"inputs": {"topic": 1}}, token=shown.json()["token"]
        )
        assert kicked_off.status_code == 200, kicked_off.text
    crews = (await daemon.get("/api/crews", token=session)).json()["crews"]
    assert [each["name"] for each in crews] == ["post", "idle", "sick", None]
    post, _, sick, nameless = crews
    own = post["baseUrls"].pop()
    assert own.startswith("http://127.0.0.1:")
    assert post == {
        "name": "post",
        "default": True,
        "baseUrls": ["/crews/post", "/"],
        "inputs": [
            {"name": "topic", "required": True, "default": None, "description": "what about"},
            {"name": "tone", "required": False, "default": {"n": 1}, "description": ""},
        ],
        "users": ["ann", "bob"],
        "problems": [],
        "running": 1,
        "queued": 1,
    }
    assert (sick["baseUrls"], sick["users"]) == (["/crews/sick"], ["ann"])
    assert sick["problems"][0].startswith('crew "sick": command: ')
    assert nameless["baseUrls"] == []
    assert nameless["problems"][0].startswith("crews[1].name: ")
