"""What smartlinkd does for the crews that it runs: the module `smartlinkd_crew` of a project.

It is imported when CrewAI is there. A process has one run, so whose this is stands in the module.
"""

from __future__ import annotations

import json
import sys
from typing import Any

from crewai.tools import BaseTool
from pydantic import BaseModel, Field

from .connection import DaemonConnection, ToolFailed
from .words import Unusable

__all__ = ["ConvertLinks", "ToolFailed", "call", "tools"]

CONVERT_LINKS = "convert_links"

# One of each that this crew may use.
tools: list[BaseTool] = []

_daemon: DaemonConnection
_allowed: tuple[str, ...] = ()


def call(tool: str, **arguments: Any) -> Any:
    """Have smartlinkd do `tool` with these arguments, and return its result, plain JSON.

    Raises ToolFailed.
    """
    return _daemon.call(tool, arguments)


class ConvertLinksArguments(BaseModel):
    links: list[str] = Field(description="1 to 15 links to products, or short links")
    subIds: list[str] | None = Field(  # noqa: N815 - as the API has it
        None, description="up to 5 tracking ids, letters and digits"
    )


class ConvertLinks(BaseTool):
    """Making one raises Unusable where the crew may not use it."""

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
        given = {name: value for name, value in arguments.items() if value is not None}
        return json.dumps(call(CONVERT_LINKS, **given), ensure_ascii=False)


_KINDS = {CONVERT_LINKS: ConvertLinks}


def offer(daemon: DaemonConnection, allowed: tuple[str, ...]) -> None:
    """Have a project import this, and use the tools in `allowed` of `daemon`."""
    global _daemon, _allowed
    _daemon, _allowed = daemon, allowed
    tools.extend(kind() for name, kind in _KINDS.items() if name in allowed)
    sys.modules["smartlinkd_crew"] = sys.modules[__name__]
