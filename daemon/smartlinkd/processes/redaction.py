"""Redact a program's secrets in what is quoted of it.

They are replaced by their names, as they are and as JSON writes them. See
docs/decisions/043-redaction.md.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Final

from smartlinkd.processes.output import CUT

SHORTEST_SECRET: Final = 8
"""Characters. A shorter value is no secret, and would be found in ordinary words."""

_ESCAPED: Final = re.compile(r"\\u[0-9a-f]{4}")


class Redactor:
    """Replaces each secret by its name, as `[NAME]`.

    Args:
        secrets: the secrets by their names.
    """

    def __init__(self, secrets: Mapping[str, str]) -> None:
        forms = {
            form: f"[{name}]"
            for name, value in secrets.items()
            if len(value) >= SHORTEST_SECRET
            for form in _forms(value)
        }
        # The longest first: one may be a part of another.
        self._forms = sorted(forms.items(), key=lambda pair: len(pair[0]), reverse=True)

    def redact(self, text: str) -> str:
        """Return the text without the secrets."""
        for form, name in self._forms:
            text = text.replace(form, name)
        return text

    def redact_tail(self, text: str) -> str:
        """Return the text of an `OutputTail` without the secrets.

        If its beginning was cut off, it may begin with the end of a secret, which is removed.
        """
        if text.startswith(CUT):
            rest = text.removeprefix(CUT)
            lengths = (_remainder_length(form, rest) for form, _ in self._forms)
            text = CUT + rest[max(lengths, default=0) :]
        return self.redact(text)


def _forms(value: str) -> Iterator[str]:
    """Yield the ways to write a value: as it is, and as JSON encoders do (RFC 8259 section 7)."""
    for as_json in (json.dumps(value), json.dumps(value, ensure_ascii=False)):
        form = as_json[1:-1]
        for each in (form, _ESCAPED.sub(lambda found: "\\u" + found[0][2:].upper(), form)):
            yield each
            yield each.replace("/", r"\/")
    yield value


def _remainder_length(form: str, text: str) -> int:
    """Return how many first characters of a text are the end of `form`, but not all of it."""
    if not text:
        return 0
    starts = (at for at in range(1, len(form)) if form[at] == text[0])
    return next((len(form) - at for at in starts if text.startswith(form[at:])), 0)
