"""docs/deal-post.md: its configuration is one, and its inputs are those that are read."""

from __future__ import annotations

import re
import sys
import tomllib
from dataclasses import fields
from pathlib import Path
from typing import Any

import smartlinkd
from smartlinkd.auth.passwords import hash_password
from smartlinkd.config import build
from smartlinkd.crews.catalog.catalog import read_catalog
from smartlinkd.crews.deal_post.deals import MAX_TITLE, PostRequest, read_inputs
from smartlinkd.crews.deal_post.llm import DEFAULT_MODEL, TIMEOUT_S, find_model

PAGE = (Path(smartlinkd.__file__).parents[2] / "docs/deal-post.md").read_text(encoding="utf-8")
CREW, ENVIRONMENT = re.findall(r"^```toml\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)


def crew(text: str) -> Any:
    [table] = tomllib.loads(text)["crews"]
    return table


def test_documented_configuration_is_a_crew_that_can_run(tmp_path: Path) -> None:
    table = crew(CREW + ENVIRONMENT)
    table["command"][0] = sys.executable
    catalog = read_catalog(
        build(
            {
                "state": {"directory": str(tmp_path)},
                "auth": {"password_hash": hash_password("a long enough password")},
                "crews": [table],
            }
        )
    )
    assert [str(problem) for broken in catalog.broken for problem in broken.problems] == []
    found = catalog.crew("deal-post")
    assert catalog.default == "deal-post"
    assert found.tools == ("convert_links",)
    assert found.missing({}) == ["links"]
    assert read_inputs(found.complete({"links": "a"})) == read_inputs({"links": "a"})


def test_documented_inputs_are_those_that_are_read() -> None:
    names = {"subIds" if field.name == "sub_ids" else field.name for field in fields(PostRequest)}
    assert {each["name"] for each in crew(CREW)["inputs"]} == names
    assert set(re.findall(r"^\| `(\w+)` \|", PAGE, re.MULTILINE)) == names


def test_documented_environment_is_that_of_a_model() -> None:
    model = find_model(crew("[[crews]]\n" + ENVIRONMENT)["environment"])
    assert model is not None
    assert (model.url, model.name) == ("https://api.openai.com/v1", DEFAULT_MODEL)


def test_documented_bounds_are_true() -> None:
    assert f"It has {TIMEOUT_S:g} s." in PAGE
    assert f"at most {MAX_TITLE} characters" in PAGE
