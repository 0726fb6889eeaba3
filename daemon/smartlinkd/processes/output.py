"""The end of what processes write to a pipe, and their secrets redacted in what is quoted of it.

A program's last words say why it ended, but it may write without end, and another process may hold
the pipe for longer. So a task reads whenever there is something, and keeps only the end of it.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping
from typing import Final

import trio

KEPT: Final = 64 * 1024
"""Bytes that are kept, enough for any program's last words."""
CUT: Final = "…"
"""The first character of a text whose beginning was not kept."""

SHORTEST_SECRET: Final = 8
"""Characters. A shorter value is no secret, and would be found in ordinary words."""

_LARGEST_PIPE: Final = 1024 * 1024
"""Bytes that one read may return: all that a pipe can hold (pipe(7))."""

_ESCAPED: Final = re.compile(r"\\u[0-9a-f]{4}")


class OutputTail:
    """The last 64 KiB that came out of a pipe.

    Args:
        descriptor: the pipe's read end. The caller closes it, after `follow` has ended.
    """

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._kept = bytearray()
        self._is_cut = False
        os.set_blocking(descriptor, False)

    @property
    def text(self) -> str:
        """The text so far. It begins with `CUT` if there was more."""
        text = self._kept.decode(errors="replace")
        # The first character may have lost a part of itself.
        return CUT + text.lstrip("\ufffd") if self._is_cut else text

    def read(self) -> bool:
        """Read what the pipe holds now. Return False once all writers have closed it."""
        try:
            data = os.read(self._descriptor, _LARGEST_PIPE)
        except BlockingIOError:
            return True
        self._kept += data
        if len(self._kept) > KEPT:
            self._is_cut = True
            del self._kept[:-KEPT]
        return bool(data)

    async def follow(self) -> None:
        """Read whenever there is something, until all writers have closed the pipe."""
        while True:
            await trio.lowlevel.wait_readable(self._descriptor)
            if not self.read():
                return


class Redactor:
    """Replaces each secret by its name, as `[NAME]`; also the forms in which JSON writes it.

    See docs/decisions/043-redaction.md.

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
