"""What cannot be printed is escaped, or blank; what is long is cut; all else stays as it is."""

from __future__ import annotations

import pytest

from smartlinkd.printable import LONGEST_LINE, blanked, escaped, first_line


@pytest.mark.parametrize(
    ("text", "with_escapes", "with_blanks"),
    [
        ("", "", ""),
        ("Áo thun 💰", "Áo thun 💰", "Áo thun 💰"),
        ("two\nlines\tand\x1b[2J", "two\\nlines\\tand\\x1b[2J", "two lines and [2J"),
        ("half \ud83d a sign\u2028", "half \\ud83d a sign\\u2028", "half   a sign "),
    ],
    ids=["empty", "printable", "control characters", "what UTF-8 or a line has not"],
)
def test_what_cannot_be_printed(text: str, with_escapes: str, with_blanks: str) -> None:
    assert (escaped(text), blanked(text)) == (with_escapes, with_blanks)


def test_a_long_text_is_cut_to_its_first_line() -> None:
    assert first_line("  first\nsecond") == "first"
    assert first_line("x" * 10_000) == "x" * LONGEST_LINE + "…"
