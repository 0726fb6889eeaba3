"""As much of GraphQL as the marketplace's calls need: read a document, pick what it selects.

The problem: a stand-in that looks for substrings in the query takes queries that the real portal
refuses, and answers fields that were never asked for. The choice: a parser for the small part of
the language that such calls use (one operation, variables, arguments of every kind of value, nested
selections, aliases), so that an unselected field is not in the answer and a misspelt one is an
error, as in the real thing. Fragments, directives and block strings are refused as syntax errors.
Rejected: graphql-core, a dependency of the daemon for the sandbox's sake.

Grammar: https://spec.graphql.org/October2021/.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

MAX_DEPTH: Final = 10
"""How deep selections and values may nest: the calls need four."""

MAX_TOKENS: Final = 2_000
"""How long a document may be: the calls need less than a hundred."""


class Malformed(Exception):  # noqa: N818 - says what the document is
    """The document is not GraphQL, or asks for what there is not. The text is for the caller."""


@dataclass(frozen=True)
class Variable:
    """`$name`, where a value stands."""

    name: str


@dataclass(frozen=True)
class Field:
    """A selected field; `key` is its alias, else its name."""

    key: str
    name: str
    arguments: dict[str, Any] = field(default_factory=dict)
    selected: tuple[Field, ...] = ()


@dataclass(frozen=True)
class Document:
    """One operation. `variables` maps each declared name to its type, as written."""

    kind: str
    name: str | None
    variables: dict[str, str]
    selected: tuple[Field, ...]


_TOKEN = re.compile(
    r"""(?:[\s,\ufeff]++|\#[^\n\r]*+)*+
    (?:(?P<name>[_A-Za-z][_0-9A-Za-z]*)
      |(?P<number>-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?(?![0-9A-Za-z_.]))
      |(?P<string>"(?!"")(?:[^"\\\n\r]|\\.)*"|""(?!"))
      |(?P<sign>[!$():=@\[\]{}|&]|\.\.\.)
      |(?P<end>\Z))""",
    re.VERBOSE,
)
_WORDS: Final[dict[str, bool | None]] = {"true": True, "false": False, "null": None}


def parse(text: str) -> Document:
    """The one operation in `text`. Raises `Malformed`."""
    return _Parser(text).document()


def argument(field_: Field, name: str, variables: Mapping[str, Any]) -> Any:
    """The value of an argument with the variables put in; None where it was not given."""
    return _filled(field_.arguments.get(name), variables)


def pick(selected: tuple[Field, ...], value: Any) -> Any:
    """`value` with only what was selected of it. Raises `Malformed` for an unknown field."""
    if isinstance(value, list):
        return [pick(selected, member) for member in value]
    if not isinstance(value, dict):
        if selected and value is not None:
            raise Malformed(f"Cannot select {selected[0].name} of a scalar.")
        return value
    if not selected:
        raise Malformed("An object needs a selection of its fields.")
    for wanted in selected:
        if wanted.name not in value:
            raise Malformed(f'Cannot query field "{wanted.name}".')
    return {wanted.key: pick(wanted.selected, value[wanted.name]) for wanted in selected}


def _filled(value: Any, variables: Mapping[str, Any]) -> Any:
    if isinstance(value, Variable):
        return variables.get(value.name)
    if isinstance(value, list):
        return [_filled(member, variables) for member in value]
    if isinstance(value, dict):
        return {key: _filled(member, variables) for key, member in value.items()}
    return value


class _Parser:
    """Recursive descent over a list of (kind, text) tokens."""

    def __init__(self, text: str) -> None:
        self._tokens = _tokens(text)
        self._at = 0

    def document(self) -> Document:
        kind, name = "query", None
        variables: dict[str, str] = {}
        if self._kind() == "name":
            kind = self._take("name")
            if kind not in ("query", "mutation"):
                raise self._unexpected(kind)
            if self._kind() == "name":
                name = self._take("name")
            if self._skip("("):
                variables = self._variables()
        selected = self._selection(0)
        self._take("end")
        return Document(kind, name, variables, selected)

    def _variables(self) -> dict[str, str]:
        declared: dict[str, str] = {}
        while not self._skip(")"):
            self._take("sign", "$")
            name = self._take("name")
            self._take("sign", ":")
            declared[name] = self._type(0)
            if self._skip("="):
                self._value(0)
        return declared

    def _type(self, depth: int) -> str:
        self._limit(depth)
        if self._skip("["):
            inner = self._type(depth + 1)
            self._take("sign", "]")
            written = f"[{inner}]"
        else:
            written = self._take("name")
        return written + ("!" if self._skip("!") else "")

    def _selection(self, depth: int) -> tuple[Field, ...]:
        self._limit(depth)
        self._take("sign", "{")
        fields = []
        while not self._skip("}"):
            fields.append(self._field(depth))
        if not fields:
            raise Malformed("Syntax Error: a selection is empty.")
        return tuple(fields)

    def _field(self, depth: int) -> Field:
        key = name = self._take("name")
        if self._skip(":"):
            name = self._take("name")
        arguments: dict[str, Any] = {}
        if self._skip("("):
            while not self._skip(")"):
                argument_name = self._take("name")
                self._take("sign", ":")
                arguments[argument_name] = self._value(0)
        nested = self._selection(depth + 1) if self._peek() == "{" else ()
        return Field(key, name, arguments, nested)

    def _value(self, depth: int) -> Any:
        self._limit(depth)
        kind = self._kind()
        if kind in {"string", "number"}:
            text = self._take(kind)
            try:
                return json.loads(text)
            except ValueError:
                raise Malformed(f"Syntax Error: {text} is no value.") from None
        if kind == "name":
            word = self._take("name")
            return _WORDS.get(word, word)
        if self._skip("$"):
            return Variable(self._take("name"))
        if self._skip("["):
            members = []
            while not self._skip("]"):
                members.append(self._value(depth + 1))
            return members
        if self._skip("{"):
            entries = {}
            while not self._skip("}"):
                entry = self._take("name")
                self._take("sign", ":")
                entries[entry] = self._value(depth + 1)
            return entries
        raise self._unexpected(self._peek())

    def _kind(self) -> str:
        return self._tokens[self._at][0]

    def _peek(self) -> str:
        return self._tokens[self._at][1]

    def _skip(self, sign: str) -> bool:
        if self._tokens[self._at] != ("sign", sign):
            return False
        self._at += 1
        return True

    def _take(self, kind: str, text: str | None = None) -> str:
        found_kind, found = self._tokens[self._at]
        if found_kind != kind or (text is not None and found != text):
            raise self._unexpected(found)
        self._at += 1
        return found

    @staticmethod
    def _unexpected(text: str) -> Malformed:
        return Malformed(f"Syntax Error: Unexpected {text or '<EOF>'}.")

    @staticmethod
    def _limit(depth: int) -> None:
        if depth > MAX_DEPTH:
            raise Malformed("Syntax Error: nested too deep.")


def _tokens(text: str) -> list[tuple[str, str]]:
    tokens: list[tuple[str, str]] = []
    at = 0
    while not tokens or tokens[-1][0] != "end":
        found = _TOKEN.match(text, at)
        if found is None or found.lastgroup is None:
            raise Malformed(f"Syntax Error: Cannot parse the character at {at}.")
        if len(tokens) >= MAX_TOKENS:
            raise Malformed("Syntax Error: the document is too long.")
        tokens.append((found.lastgroup, found[found.lastgroup]))
        at = found.end()
    return tokens
