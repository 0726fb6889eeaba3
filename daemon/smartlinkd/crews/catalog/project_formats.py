"""The text formats of CrewAI projects: YAML, and JSON with comments. Pure rules.

A project's files are somebody else's: reading them must not run code or take endless memory, and
must give what CrewAI's own reading gives. YAML is read by PyYAML, as by CrewAI, without types (a
placeholder can only stand in text). JSON's comments and final commas are those of CrewAI's reader.
"""

from __future__ import annotations

import json
import re
from collections.abc import Hashable
from typing import Final

import yaml

MAX_NODES: Final = 50_000
"""Of a YAML text with its aliases written out; 100 agents have some 1000. To count aliases instead
would not do: thirty are enough for a bomb, and a project may have more."""


class NotReadable(Exception):  # noqa: N818 - its text is the rest of a sentence
    """The text is not in the format. The message says where, and repeats no value."""


def parse_yaml(text: str) -> object:
    """Return tables and lists, and text for everything else. Raises `NotReadable`."""
    try:
        return yaml.load(text, _Loader)  # noqa: S506 - it makes plain data only, see below
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        where = f" in line {mark.line + 1}" if mark else ""
        raise NotReadable(f"is not YAML{where}: {error.problem or error.context}") from None
    except yaml.YAMLError as error:
        raise NotReadable(f"is not YAML: {str(error).splitlines()[0]}") from None
    except (ValueError, LookupError, TypeError, AttributeError, ArithmeticError):
        # PyYAML's constructors fail in their own ways, one for each tag.
        why = "a value does not fit the tag that it has, or an escape in it is no character"
        raise NotReadable(f"is not YAML: {why}") from None
    except RecursionError:
        raise NotReadable("is nested too deeply") from None


def parse_jsonc(text: str) -> object:
    """Return the value of JSON with comments and final commas. Raises `NotReadable`."""
    try:
        return json.loads(_COMMA.sub(_kept, _COMMENT.sub(_kept, text)))
    except json.JSONDecodeError as error:
        raise NotReadable(f"is not JSON in line {error.lineno}: {error.msg}") from None
    except (RecursionError, ValueError) as error:
        why = "nested too deeply" if isinstance(error, RecursionError) else "no number we can read"
        raise NotReadable(f"is {why}") from None


# A string is matched whole, so that what looks like a comment in it is none. One without an end
# runs to the end of the text, and so does a comment: each beginning would be tried anew otherwise.
_STRING = r'(?P<kept>"(?:[^"\\]|\\.)*(?:"|\\?\Z))'
_COMMENT = re.compile(_STRING + r"|//[^\r\n]*|/\*.*?(?:\*/|(?P<open>\Z))", re.DOTALL)
_COMMA = re.compile(_STRING + r"|,(?=\s*[}\]])", re.DOTALL)


def _kept(found: re.Match[str]) -> str:
    """Return a string, or a comment without an end (which is no JSON), as it is.

    Of all else the line breaks stay, so that lines keep their numbers.
    """
    is_open = found.re is _COMMENT and found["open"] is not None
    return found[0] if found["kept"] or is_open else "\n" * found[0].count("\n")


class _Loader(yaml.SafeLoader):
    """A loader of plain data. Unquoted values are text, too, but for the key `<<`, which merges."""

    yaml_implicit_resolvers = {  # noqa: RUF012 - PyYAML's own attribute
        "<": [("tag:yaml.org,2002:merge", re.compile(r"^<<$"))]
    }

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self._nodes = 0
        self._sizes: dict[int, int] = {}  # of finished nodes, by their id

    def process_directives(self) -> object:
        """Refuse `%TAG`, else do as PyYAML: its text may be long, and is repeated at each node."""
        # Its stubs have no types for this one.
        found: object = super().process_directives()  # type: ignore[no-untyped-call]
        if self.tag_handles != self.DEFAULT_TAGS:
            raise yaml.YAMLError("it has %TAG directives")
        return found

    def construct_object(self, node: yaml.Node, deep: bool = False) -> object:
        """Return what PyYAML makes, but the text of a scalar, also of one that has a tag."""
        if isinstance(node, yaml.ScalarNode):
            return node.value
        return super().construct_object(node, deep)

    def compose_node(self, parent: yaml.Node | None, index: Hashable) -> yaml.Node | None:
        """Return PyYAML's node and count it. An alias counts as much as its anchor's node."""
        before = self._nodes
        is_alias = self.check_event(yaml.AliasEvent)
        # Its stubs know no index but a number.
        node: yaml.Node | None = super().compose_node(parent, index)  # type: ignore[arg-type]
        if is_alias:
            # A node without a size is not finished, and holds this alias itself.
            self._nodes += self._sizes.get(id(node), MAX_NODES)
        else:
            self._nodes += 1
            self._sizes[id(node)] = self._nodes - before
        if self._nodes > MAX_NODES:
            raise yaml.YAMLError(f"more than {MAX_NODES} values, its aliases written out")
        return node
