"""How entries are searched: the text that is indexed, and the SQL of a filter. Pure.

FTS5's trigram tokenizer finds any part of a text that has three characters. Its option
`remove_diacritics` needs SQLite 3.45, and Debian 12 has 3.40. So the index holds a folded copy.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from smartlinkd.history.model import Filters
from smartlinkd.untrusted import REPLACEMENT

TRIGRAM: Final = 3
_AROUND_SUB_ID: Final = "\x1f"
"""A sign that `fold` lets through in no text. So a whole sub-id can be searched as a phrase."""
_HALF: Final = re.compile("[\ud800-\udfff]")
_MARKS: Final = re.compile("[\u0300-\u036f]")  # Unicode's block of combining diacritical marks
_CONTROLS: Final = re.compile("[\x00-\x1f\x7f-\x9f]")
_GLOB_SIGN: Final = re.compile(r"[*?[]")


def storable(text: str) -> str:
    """Return `text` with U+FFFD for each half character, which UTF-8 does not have."""
    return _HALF.sub(REPLACEMENT, text)


def fold(text: str) -> str:
    """Return `text` without case and diacritics; each run of spaces and controls is one space."""
    plain = text.casefold()
    if not plain.isascii():
        plain = _MARKS.sub("", unicodedata.normalize("NFKD", storable(plain))).replace("đ", "d")
    return " ".join(_CONTROLS.sub(" ", plain).split())


def searchable(texts: Sequence[str], sub_ids: Sequence[str]) -> str:
    """Return what is indexed of an entry."""
    folded = [_AROUND_SUB_ID + fold(sub_id) for sub_id in sub_ids]
    return "\n".join([*map(fold, texts), "".join([*folded, _AROUND_SUB_ID])])


@dataclass(frozen=True)
class Condition:
    """A filter in SQL. `source` joins `entries`; `key` is the entry's id in what is searched."""

    source: str
    key: str
    clauses: tuple[str, ...]
    values: tuple[str | int, ...]

    @property
    def where(self) -> str:
        """The clauses as one expression. There must be a clause."""
        return " AND ".join(self.clauses)


def condition(filters: Filters) -> Condition:
    """Return the SQL of what these filters say of texts and sub-ids. Their times are not in it."""
    words = dict.fromkeys(fold(filters.query).split())
    phrases = [word for word in words if len(word) >= TRIGRAM]
    if filters.sub_id:
        phrases.append(f"{_AROUND_SUB_ID}{fold(filters.sub_id)}{_AROUND_SUB_ID}")
    globs = [_glob(word) for word in words if len(word) < TRIGRAM]
    if phrases:
        source, key = "search CROSS JOIN entries ON entries.id = search.rowid", "search.rowid"
        clauses = ["search MATCH ?", *["search.text GLOB ?"] * len(globs)]
        return Condition(source, key, tuple(clauses), (" ".join(_quoted(phrases)), *globs))
    if globs:
        source = "texts CROSS JOIN entries ON entries.id = texts.id"
        return Condition(source, "texts.id", ("texts.text GLOB ?",) * len(globs), tuple(globs))
    return Condition("entries", "entries.id", (), ())


def _glob(word: str) -> str:
    """Return the pattern of a text that has this word in it."""
    return "*" + _GLOB_SIGN.sub(r"[\g<0>]", word) + "*"


def _quoted(phrases: Sequence[str]) -> Iterator[str]:
    """Yield each phrase as a string of FTS5's query syntax. Several of them must all match."""
    for phrase in phrases:
        doubled = phrase.replace('"', '""')
        yield f'"{doubled}"'
