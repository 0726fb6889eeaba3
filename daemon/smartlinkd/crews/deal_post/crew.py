"""The three agents, one after the other, and what they tell of their work.

What they say on the way is for the owner and in English; the post alone is for readers, in their
language. Links that failed are told in the scout's output, in the log and in `output_json`, and
not in the post, which is copied as it stands.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Final

from smartlinkd.crews.deal_post.connection import DaemonConnection, ToolFailed
from smartlinkd.crews.deal_post.deals import Deal, Failure, rank, sort_out
from smartlinkd.crews.deal_post.llm import (
    Draft,
    Model,
    ModelFailed,
    Usage,
    configured,
    prompt_for,
)
from smartlinkd.crews.deal_post.post import fault, fill
from smartlinkd.crews.deal_post.wishes import Wishes, WrongInput, read_wishes

TOOL: Final = "convert_links"


class NothingConverted(Exception):  # noqa: N818 - says what happened
    """There is nothing to write about; the text says why, for each link or for all."""


@dataclass(frozen=True)
class _Post:
    """A post, by whom ("template", or the model's name), and what it has cost."""

    text: str
    writer: str
    usage: Usage


@dataclass(frozen=True)
class _Job:
    """An agent and its one task."""

    task: str
    agent: str


_CONVERT = _Job("convert", "scout")
_RANK = _Job("rank", "analyst")
_WRITE = _Job("write", "writer")


def run(daemon: DaemonConnection, environment: Mapping[str, str]) -> None:
    """One execution, from `started` to `result` or `failed`."""
    daemon.say("started", total_tasks=3)
    inputs = daemon.hear()["inputs"]
    try:
        wishes = read_wishes(inputs)
        found, failures = _scout(daemon, wishes)
    except (WrongInput, NothingConverted) as reason:
        daemon.fail(str(reason))
        return
    deals = _analyst(daemon, found)
    post = _writer(daemon, deals, wishes, environment)
    daemon.say(
        "result",
        output=post.text,
        output_json={
            "post": post.text,
            "language": wishes.language,
            "writer": post.writer,
            "deals": [deal.as_json() for deal in deals],
            "failed": [failure.as_json() for failure in failures],
        },
        token_usage=asdict(post.usage),
    )


def _scout(daemon: DaemonConnection, wishes: Wishes) -> tuple[list[Deal], list[Failure]]:
    """Have the links converted. Raises `NothingConverted`."""
    daemon.say(
        "task_started",
        task_id=_CONVERT.task,
        name="Convert the links",
        agent=_CONVERT.agent,
        description=f"Turn {len(wishes.links)} link(s) into affiliate links with product data.",
        expected_output="An affiliate link for each link that works, a reason for each other one.",
    )
    arguments = {"links": list(wishes.links), "subIds": list(wishes.sub_ids)}
    try:
        answer = daemon.call(TOOL, arguments)
    except ToolFailed as failed:
        raise NothingConverted(f"the links could not be converted: {failed}") from None
    deals, failures = sort_out(answer["mapping"])
    found = f"{len(deals)} deal(s) from {len(wishes.links)} link(s), {len(failures)} failed"
    daemon.say(
        "step",
        task_id=_CONVERT.task,
        agent=_CONVERT.agent,
        thought="The desk makes the links, all in one call.",
        tool=TOOL,
        tool_input=arguments,
        result=found,
    )
    for failure in failures:
        daemon.say("log", level="warning", text=f"left out: {failure}")
    if not deals:
        raise NothingConverted("no link was converted: " + "; ".join(map(str, failures)))
    told = [f"{deal.short_link}  {deal.title}" for deal in deals]
    daemon.say(
        "task_completed",
        task_id=_CONVERT.task,
        output="\n".join([found, *told, *(f"failed: {failure}" for failure in failures)]),
        output_json={
            "deals": [deal.as_json() for deal in deals],
            "failed": [failure.as_json() for failure in failures],
        },
    )
    return deals, failures


def _analyst(daemon: DaemonConnection, found: Sequence[Deal]) -> list[Deal]:
    """Put the deals in order, and say why they are in it."""
    daemon.say(
        "task_started",
        task_id=_RANK.task,
        name="Rank the deals",
        agent=_RANK.agent,
        description="Put the deal that earns most first; of equals, the one that has sold more.",
        expected_output="The deals in order, each with what it earns.",
    )
    deals = rank(found)
    places = [f"{place}. {deal.title}" for place, deal in enumerate(deals, start=1)]
    for place, deal in zip(places, deals, strict=True):
        daemon.say(
            "step",
            task_id=_RANK.task,
            agent=_RANK.agent,
            thought=f"{deal.title} earns {deal.earns}" + _sold(deal),
            result=place,
        )
    daemon.say(
        "task_completed",
        task_id=_RANK.task,
        output="\n".join(f"{p}: {d.earns}" for p, d in zip(places, deals, strict=True)),
        output_json=[deal.short_link for deal in deals],
    )
    return deals


def _sold(deal: Deal) -> str:
    sales = deal.product.get("sales")
    return "." if sales is None else f", and has sold {sales:,} times."


def _writer(
    daemon: DaemonConnection, deals: Sequence[Deal], wishes: Wishes, environment: Mapping[str, str]
) -> _Post:
    """Write the post: by the model where there is one and it does it well, else by the template."""
    daemon.say(
        "task_started",
        task_id=_WRITE.task,
        name="Write the post",
        agent=_WRITE.agent,
        description=f"Write a post about {len(deals)} deal(s), the best first.",
        expected_output="A post in plain text that has the affiliate link of each deal.",
    )
    model = configured(environment)
    post = _ask(daemon, model, deals, wishes) if model else None
    if post is None or not post.text:
        usage = post.usage if post else Usage()
        post = _Post(fill(deals, wishes), "template", usage)
        daemon.say(
            "step",
            task_id=_WRITE.task,
            agent=_WRITE.agent,
            thought="The template takes what is known of each deal, and leaves out the rest.",
            result=post.text,
        )
    daemon.say("task_completed", task_id=_WRITE.task, output=post.text)
    return post


def _ask(daemon: DaemonConnection, model: Model, deals: Sequence[Deal], wishes: Wishes) -> _Post:
    """The model's post. Its text is empty when it is of no use, and the log says why: a post by
    the template is worth more than none.
    """
    prompt = prompt_for(deals, wishes)
    try:
        draft = model.write(prompt, wishes)
    except ModelFailed as failed:
        draft, wrong = Draft("", failed.usage), str(failed)
    else:
        wrong = fault(draft.text, deals) or ""
        daemon.say(
            "step",
            task_id=_WRITE.task,
            agent=_WRITE.agent,
            thought=f"The model {model.name} is asked for the post.",
            prompt=prompt,
            result=draft.text,
        )
    if wrong:
        text = f"no post by the model {model.name}, the template writes it: {wrong}"
        daemon.say("log", level="warning", text=text)
    return _Post("" if wrong else draft.text, model.name, draft.usage)
