"""The module `smartlinkd_crew` of a project: the tools that smartlinkd has for its crews.

It is imported when CrewAI is there. A process has one run, so the run's state is the module's.
"""

from __future__ import annotations

import json
import sys
from typing import Any

from crewai.tools import BaseTool
from pydantic import BaseModel, Field

from .connection import DaemonConnection, ToolFailed
from .texts import Unusable

__all__ = ["ConvertLinks", "ToolFailed", "call", "tools"]

CONVERT_LINKS = "convert_links"

tools: list[BaseTool] = []
"""One of each tool that this crew may use."""

_daemon: DaemonConnection
_allowed: tuple[str, ...] = ()


def call(tool: str, **arguments: Any) -> Any:
    """Have smartlinkd run a tool. Return its result, plain JSON. Raises `ToolFailed`."""
    return _daemon.call(tool, arguments)


class ConvertLinksArguments(BaseModel):
    links: list[str] = Field(description="1 to 15 links to products, or short links")
    subIds: list[str] | None = Field(  # noqa: N815 - as the API has it
        None, description="up to 5 tracking ids, letters and digits"
    )


class ConvertLinks(BaseTool):
    """The tool for agents. To make one raises `Unusable` if the crew may not use it."""

    name: str = CONVERT_LINKS
    description: str = (
        "Turns links to products of the marketplace into affiliate links. The answer is JSON: for "
        "each link its shortLink and longLink and the product's data (name, price, commission and "
        "more), or a failCode."
    )
    args_schema: type[BaseModel] = ConvertLinksArguments

    def model_post_init(self, context: Any) -> None:
        if CONVERT_LINKS not in _allowed:
            raise Unusable(
                f"this crew may not use {CONVERT_LINKS}; if it should, add it to `tools` of the "
                "crew in smartlinkd's configuration"
            )
        super().model_post_init(context)

    def _run(self, **arguments: Any) -> str:
        return json.dumps(call(CONVERT_LINKS, **arguments), ensure_ascii=False)


def install(daemon: DaemonConnection, allowed: tuple[str, ...]) -> None:
    """Let the project import this module and use the daemon's `allowed` tools."""
    global _daemon, _allowed
    _daemon, _allowed = daemon, allowed
    if CONVERT_LINKS in allowed:
        tools.append(ConvertLinks())
    sys.modules["smartlinkd_crew"] = sys.modules[__name__]
