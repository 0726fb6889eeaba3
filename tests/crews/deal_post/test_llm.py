"""The writer with a model: asked as the API wants it, and never trusted."""

from __future__ import annotations

import json

import pytest

from smartlinkd.crews.deal_post.deals import read_inputs
from smartlinkd.crews.deal_post.llm import Model
from smartlinkd.crews.protocol import TokenUsage
from tests.crews.deal_post.conftest import LINKS, FakeModel, RunCrew

GOOD = "Hôm nay có https://s.shopee.vn/ears và https://s.shopee.vn/lips, mua liền nha!"
KEY = "sk-a-secret-of-the-owner"


async def test_post_of_the_model_is_the_result(run_crew: RunCrew, fake_model: FakeModel) -> None:
    fake_model.will_write(f" {GOOD}\n", prompt_tokens=200, completion_tokens=50, total_tokens=250)
    environment = fake_model.environment | {"OPENAI_MODEL": "small"}
    run = await run_crew({"links": LINKS[:2], "title": "Chào hè"}, environment=environment)
    assert run.result.output == GOOD
    assert run.json["writer"] == "small"
    assert run.result.token_usage == TokenUsage(
        total_tokens=250, prompt_tokens=200, completion_tokens=50
    )
    assert run.warnings == []
    request = fake_model.request
    assert (request.method, request.path) == ("POST", "/v1/chat/completions")
    assert request.headers["authorization"] == f"Bearer {KEY}"
    body = request.body
    assert body["model"] == "small"
    assert [message["role"] for message in body["messages"]] == ["system", "user"]
    assert "Vietnamese" in body["messages"][0]["content"]
    prompt = json.loads(body["messages"][1]["content"])
    assert prompt["title"] == "Chào hè"
    assert [deal["shortLink"] for deal in prompt["deals"]] == [
        "https://s.shopee.vn/ears",
        "https://s.shopee.vn/lips",
    ]
    assert "commission" not in prompt["deals"][0]
    [step] = run.steps("writer")
    assert step.prompt == body["messages"][1]["content"]


async def test_token_count_that_is_no_number_is_ignored(
    run_crew: RunCrew, fake_model: FakeModel
) -> None:
    fake_model.will_write(GOOD, total_tokens=True)
    run = await run_crew({"links": LINKS[:2]}, environment=fake_model.environment)
    assert (run.result.output, run.result.token_usage) == (GOOD, TokenUsage())


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("Mua https://s.shopee.vn/ears nha!", "it lacks the link https://s.shopee.vn/lips"),
        (GOOD + " Và https://evil.example/x", "it has a link that is none of the deals'"),
        ("", "its answer has no text at choices[0].message.content"),
        (["no", "text"], "its answer has no text at choices[0].message.content"),
        ("x" * 20_001, "its post has 20001 characters, 20000 are the most"),
    ],
    ids=["lacks a link", "a link of its own", "empty", "no text", "endless"],
)
async def test_unusable_post_of_the_model_is_replaced_by_the_template(
    run_crew: RunCrew, fake_model: FakeModel, text: object, why: str
) -> None:
    fake_model.will_write(text)
    run = await run_crew({"links": LINKS[:2]}, environment=fake_model.environment)
    assert run.json["writer"] == "template"
    assert run.result.output.startswith("🔥 2 deal đáng mua hôm nay")
    assert run.warnings == [f"no post by the model gpt-4o-mini, the template writes it: {why}"]


async def test_error_of_the_model_hides_the_key(run_crew: RunCrew, fake_model: FakeModel) -> None:
    fake_model.will_answer(401, {"error": f"wrong key {KEY}"})
    run = await run_crew({"links": LINKS[:2]}, environment=fake_model.environment)
    assert run.json["writer"] == "template"
    [warning] = run.warnings
    assert warning.endswith(': HTTP 401: {"error": "wrong key [OPENAI_API_KEY]"}')


@pytest.mark.parametrize(
    ("url", "key", "why"),
    [
        ("ftp://host/v1", KEY, "OPENAI_BASE_URL: must be an address"),
        ("http://", KEY, "OPENAI_BASE_URL: must be an address"),
        ("http://host:port", KEY, "ValueError: Port could not be cast"),
        ("http://127.0.0.1:1", KEY, "ConnectionRefusedError: "),
        ("http://host", "sk-\n", "OPENAI_API_KEY: has characters that no key has"),
    ],
)
def test_unusable_model_is_named_without_its_key(url: str, key: str, why: str) -> None:
    model = Model(url, key, "tiny")
    draft = model.write("{}", read_inputs({"links": "x"}))
    assert draft.text == ""
    assert draft.wrong.startswith(why)
    assert key not in draft.wrong
    assert key not in repr(model)
