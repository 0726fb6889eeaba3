"""Rules that match paths, with HEAD or without, and make addresses only when they are asked to."""

from __future__ import annotations

import pytest
from werkzeug.routing import Rule

from smartlinkd.serving.app import GuardedQuart


def app() -> GuardedQuart:
    made = GuardedQuart()

    @made.get("/things/<name>/parts/<int:number>")
    async def part(name: str, number: int) -> str:
        return f"{name}: {number}"

    return made


@pytest.mark.parametrize(
    ("values", "address"),
    [
        ({"name": "a b", "number": 3}, "/things/a%20b/parts/3"),
        ({"name": "a", "number": 3, "page": "x/y"}, "/things/a/parts/3?page=x/y"),
    ],
)
def test_a_rule_makes_the_same_addresses_as_ever(values: dict[str, object], address: str) -> None:
    assert app().url_map.bind("here").build("part", values) == address


async def test_nothing_is_compiled_for_addresses_that_nobody_asks_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def compiled(*_: object) -> None:
        raise AssertionError("it was compiled")

    monkeypatch.setattr(Rule, "_compile_builder", compiled)
    made = app()
    answer = await made.test_client().get("/things/a/parts/3")
    assert await answer.get_data(as_text=True) == "a: 3"
    with pytest.raises(AssertionError, match="it was compiled"):
        made.url_map.bind("here").build("part", {"name": "a", "number": 3})


async def test_a_rule_for_get_can_do_without_head() -> None:
    made = app()
    view = made.view_functions["part"]
    made.add_url_rule("/<name>/<int:number>", "one", view, methods=["GET"], head=False)
    client = made.test_client()
    assert (await client.get("/a/3")).status_code == 200
    answer = await client.head("/a/3")
    assert (answer.status_code, answer.headers["Allow"]) == (405, "GET")
    assert (await client.head("/things/a/parts/3")).status_code == 200
