"""What is quoted of a program, without the secrets that it was given.

The problem: a program's last words say why it failed, and often what it was told to use: a key, an
address with a password in it. They go to the log and to whoever asks for the execution.

The choice: its secrets are known here, so they are looked for and replaced by their names. As they
are, and as JSON has them, since a program that speaks JSON writes no quotation mark and, mostly, no
letter beyond ASCII as it is. Of a text whose beginning was cut off, what may be the end of a secret
goes, too. Rejected: guessing at what looks like a key, which hides words and misses keys.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Final

from smartlinkd.processes.tail import CUT

SHORTEST_SECRET: Final = 8
"""Characters. A shorter one is none, and would be found in ordinary words."""

_ESCAPED = re.compile(r"\\u[0-9a-f]{4}")


class Hiding:
    """`secrets` are by the names that are shown in their places, as `[NAME]`."""

    def __init__(self, secrets: Mapping[str, str]) -> None:
        forms = {
            form: f"[{name}]"
            for name, value in secrets.items()
            if len(value) >= SHORTEST_SECRET
            for form in _forms(value)
        }
        # The longest first: one may be a part of another.
        self._forms = sorted(forms.items(), key=lambda pair: len(pair[0]), reverse=True)

    def hide(self, text: str) -> str:
        """The text with the names in the places of the secrets."""
        for form, name in self._forms:
            text = text.replace(form, name)
        return text

    def hide_in_tail(self, text: str) -> str:
        """The same of what `Tail.text` gives."""
        if text.startswith(CUT):
            rest = text.removeprefix(CUT)
            text = CUT + rest[max((_remainder(form, rest) for form, _ in self._forms), default=0) :]
        return self.hide(text)


def _forms(value: str) -> Iterator[str]:
    """How a program may write it: as it is, or as JSON, of which encoders differ (RFC 8259, 7)."""
    for as_json in (json.dumps(value), json.dumps(value, ensure_ascii=False)):
        form = as_json[1:-1]
        for each in (form, _ESCAPED.sub(lambda found: "\\u" + found[0][2:].upper(), form)):
            yield each
            yield each.replace("/", r"\/")
    yield value


def _remainder(form: str, text: str) -> int:
    """How many characters the text begins with that are the end of `form`, and not all of it."""
    if not text:
        return 0
    starts = (at for at in range(1, len(form)) if form[at] == text[0])
    return next((len(form) - at for at in starts if text.startswith(form[at:])), 0)
