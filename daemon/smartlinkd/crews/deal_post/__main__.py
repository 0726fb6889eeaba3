"""`python -m smartlinkd.crews.deal_post`: one execution, its three agents one after the other.

Their messages are for the owner, in English; the post is for readers, in their language. Failed
links are in the log and in `output_json`, and not in the post.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Final

from smartlinkd.crews.crewai_adapter.connection import (
    DaemonConnection,
    ToolFailed,
    open_connection,
)
from smartlinkd.crews.crewai_adapter.texts import cut
from smartlinkd.crews.deal_post.deals import (
    Deal,
    FailedLink,
    NoPost,
    PostRequest,
    rank,
    read_inputs,
    sort_out,
)
from smartlinkd.crews.deal_post.llm import Model, ModelDraft, find_model, prompt_for
from smartlinkd.crews.deal_post.post import fault, fill

TOOL: Final = "convert_links"
MAX_ERROR: Final = 16 * 1024
"""Bytes of the `error` in `failed`."""


def run(daemon: DaemonConnection, environment: Mapping[str, str]) -> None:
    """Run one execution, from `started` to `result` or `failed`."""
    daemon.start(total_tasks=3)
    inputs, _ = daemon.inputs()
    try:
        request = read_inputs(inputs)
        found, failures = _convert(daemon, request)
    except NoPost as reason:
        daemon.fail(cut(str(reason), MAX_ERROR))
        return
    deals = _rank(daemon, found)
    post, writer, usage = _write(daemon, deals, request, find_model(environment))
    output_json = {
        "post": post,
        "language": request.language,
        "writer": writer,
        "deals": [deal.as_json() for deal in deals],
        "failed": [failure.as_json() for failure in failures],
    }
    daemon.result(post, output_json, usage)


def _convert(daemon: DaemonConnection, request: PostRequest) -> tuple[list[Deal], list[FailedLink]]:
    """Be the scout: have the links converted. Raises `NoPost` if none is converted."""
    count = len(request.links)
    daemon.send(
        "task_started",
        task_id="convert",
        name="Convert the links",
        agent="scout",
        description=f"Turn {count} link(s) into affiliate links with product data.",
        expected_output="An affiliate link for each link that works, a reason for each other one.",
    )
    arguments = {"links": list(request.links), "subIds": list(request.sub_ids)}
    try:
        deals, failures = sort_out(daemon.call(TOOL, arguments)["mapping"])
    except ToolFailed as reason:
        raise NoPost(f"the links could not be converted: {reason}") from None
    summary = f"{len(deals)} deal(s) from {count} link(s), {len(failures)} failed"
    daemon.send(
        "step",
        task_id="convert",
        agent="scout",
        thought="The daemon makes the links, all in one call.",
        tool=TOOL,
        tool_input=arguments,
        result=summary,
    )
    for failure in failures:
        daemon.log("warning", f"left out: {failure}")
    if not deals:
        raise NoPost("no link was converted: " + "; ".join(map(str, failures)))
    lines = [f"{deal.short_link}  {deal.title}" for deal in deals]
    daemon.send("task_completed", task_id="convert", output="\n".join([summary, *lines]))
    return deals, failures


def _rank(daemon: DaemonConnection, found: Sequence[Deal]) -> list[Deal]:
    """Be the analyst: put the deals in order, and say why."""
    daemon.send(
        "task_started",
        task_id="rank",
        name="Rank the deals",
        agent="analyst",
        description="Put the deal that earns most first; of equals, the one that has sold more.",
        expected_output="The deals in order, each with what it earns.",
    )
    deals, lines = rank(found), []
    for number, deal in enumerate(deals, start=1):
        sales = deal.product.get("sales")
        sold = "" if sales is None else f", and has sold {sales:,} times"
        thought = f"{deal.title} earns {deal.earns}{sold}."
        place = f"{number}. {deal.title}"
        daemon.send("step", task_id="rank", agent="analyst", thought=thought, result=place)
        lines.append(f"{place}: {deal.earns}")
    daemon.send("task_completed", task_id="rank", output="\n".join(lines))
    return deals


def _write(
    daemon: DaemonConnection, deals: Sequence[Deal], request: PostRequest, model: Model | None
) -> tuple[str, str, Mapping[str, int]]:
    """Be the writer: return the model's post if it is good, else the template's.

    Returns:
        The post, its writer, and the tokens that it has cost.
    """
    daemon.send(
        "task_started",
        task_id="write",
        name="Write the post",
        agent="writer",
        description=f"Write a post about {len(deals)} deal(s), the best first.",
        expected_output="A post in plain text that has the affiliate link of each deal.",
    )
    post, writer, draft = "", "template", ModelDraft("")
    if model is not None:
        prompt = prompt_for(deals, request)
        draft = model.write(prompt, request)
        if draft.text:
            step = {"prompt": prompt, "result": draft.text}
            thought = f"The model {model.name} is asked for the post."
            daemon.send("step", task_id="write", agent="writer", thought=thought, **step)
        if wrong := draft.wrong or fault(draft.text, deals):
            text = f"no post by the model {model.name}, the template writes it: {wrong}"
            daemon.log("warning", text)
        else:
            post, writer = draft.text, model.name
    if not post:
        post = fill(deals, request)
        thought = "The template takes what is known of each deal, and leaves out the rest."
        daemon.send("step", task_id="write", agent="writer", thought=thought, result=post)
    daemon.send("task_completed", task_id="write", output=post)
    return post, writer, draft.usage


if __name__ == "__main__":
    run(open_connection(), os.environ)
