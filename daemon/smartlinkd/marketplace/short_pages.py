"""Read where a page that answers a short link leads. Pure.

A page is somebody else's text. No script is run, and the work is linear in the page's length. A
page that the parser cannot read ends there.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from html.parser import HTMLParser
from itertools import islice

_MAX_TARGETS = 8


@dataclass(frozen=True, slots=True)
class ShortPage:
    """The addresses in a page, as they are written in it: at most eight of each kind."""

    goes_to: tuple[str, ...]  # without a click: meta refresh first, then the scripts
    is_about: tuple[str, ...]  # canonical link first, then og:url
    asks_for_password: bool


def read_short_page(html: str) -> ShortPage:
    """Return the addresses in a page."""
    reader = _PageReader()
    # AssertionError: `<![x[` of an unknown kind. ValueError: `&#…;` with too many digits for int().
    with suppress(AssertionError, ValueError):
        reader.feed(html)
    return ShortPage(
        goes_to=_first([*reader.refreshes, *_script_targets("".join(reader.scripts))]),
        is_about=_first([*reader.canonicals, *reader.og_urls]),
        asks_for_password=reader.asks_for_password,
    )


# HTML, "shared declarative refresh steps": a time, a separator and the address, with or without
# `url=`. Possessive, so that a page of nothing but spaces is read once and not once a space.
_REFRESH = re.compile(
    r"""\s*+(?:[0-9.]++\s*+(?:[;,]|(?<=\s))\s*+(?:url\s*+=\s*+)?+|[;,]?+\s*+url\s*+=\s*+)"""
    r"""(?:"([^"]*+)|'([^']*+)|([^"'].*+))""",
    re.IGNORECASE | re.DOTALL,
)


def refresh_target(value: str) -> str | None:
    """Return the address in the value of a Refresh header or of a meta refresh.

    None if there is no address in it: the page loads itself again.
    """
    found = _REFRESH.match(value)
    target = (found[1] or found[2] or found[3] or "").strip() if found else ""
    return target or None


def _first(targets: Iterable[str]) -> tuple[str, ...]:
    return tuple(islice(targets, _MAX_TARGETS))


class _PageReader(HTMLParser):
    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.refreshes: list[str] = []
        self.scripts: list[str] = []
        self.canonicals: list[str] = []
        self.og_urls: list[str] = []
        self.asks_for_password = False
        self._in_script = False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        # Of an attribute that is there twice, the first one counts (HTML, "attribute name state").
        given = {name: value or "" for name, value in reversed(attrs)}
        if tag == "script":
            self._in_script = True
            self.scripts.append("\n")
        elif tag == "meta":
            self._read_meta(given)
        elif tag == "link" and "canonical" in given.get("rel", "").lower().split():
            _add(given.get("href"), self.canonicals)
        elif tag == "input" and _plain(given.get("type")) == "password":
            self.asks_for_password = True

    def _read_meta(self, given: dict[str, str]) -> None:
        content = given.get("content", "")
        if _plain(given.get("http-equiv")) == "refresh":
            _add(refresh_target(content), self.refreshes)
        if "og:url" in (_plain(given.get("property")), _plain(given.get("name"))):
            _add(content, self.og_urls)

    def handle_endtag(self, tag: str) -> None:
        if tag == "script":
            self._in_script = False

    def handle_data(self, data: str) -> None:
        if self._in_script:
            self.scripts.append(data)


def _plain(value: str | None) -> str:
    return (value or "").strip().lower()


def _add(target: str | None, to: list[str]) -> None:
    if target and target.strip():
        to.append(target.strip())


# A string literal that is the whole value: nothing is added to it and nothing is taken of it.
_LITERAL = (
    r"""(?:"([^"\n]{1,4096})"|'([^'\n]{1,4096})'|`([^`$]{1,4096})`)(?!\s{0,9}(?:\+|\.\w|\[))"""
)
_NAME = r"[A-Za-z_$][\w$]{0,63}+(?![\w$])"
_OF_WINDOW = r"(?:(?:window|self|globalThis)\.)?"
_STATEMENT = re.compile(
    # location = "…", location.href = u, window.top.location.replace("…"), location.assign(u)
    r"\blocation(?:\.href)?\s{0,9}(?:=(?![=>])|\.(?:replace|assign)\s{0,9}\()\s{0,9}"
    rf"(?:{_LITERAL}|{_OF_WINDOW}(?P<used>{_NAME})(?=\s{{0,9}}(?:[;,)}}\n]|//|/\*|\Z)))"
    # u = "…", var u = "…", window.u = "…"; of any other value, and of u += "…", no literal
    rf"|(?<![\w$.]){_OF_WINDOW}(?!location\b)(?P<name>{_NAME})\s{{0,9}}"
    rf"(?P<by>[-+*/%&|^?]{{0,3}}+)=(?![=>])\s{{0,9}}(?:{_LITERAL})?",
)
_ESCAPE = re.compile(r"\\(?:u([0-9A-Fa-f]{4})|x([0-9A-Fa-f]{2})|(.))")


def _script_targets(scripts: str) -> Iterator[str]:
    """Yield what the scripts assign to `location`, as far as they are string literals.

    A variable has the literal that was assigned to it last before its use in the text, or last of
    all where it is used first, as in a function.
    """
    values: dict[str, str | None] = {}
    uses: list[tuple[str | None, str]] = []  # (the literal, if it is known; else the variable)
    for statement in _STATEMENT.finditer(scripts):
        direct, assigned = _literal(*statement.group(1, 2, 3)), _literal(*statement.group(7, 8, 9))
        if name := statement["name"]:
            values[name] = None if statement["by"] else assigned
        elif name := statement["used"]:
            uses.append((values.get(name), "" if name in values else name))
        else:
            uses.append((direct, ""))
    for target, name in uses:
        found = target or values.get(name)
        if found:
            yield found


def _literal(*quoted: str | None) -> str | None:
    """Return the value of a JavaScript string literal of simple escapes; None if there is none."""
    text = next(filter(None, quoted), None)
    if text is None:
        return None

    def plain(escape: re.Match[str]) -> str:
        code = escape[1] or escape[2]
        return chr(int(code, 16)) if code else escape[3]

    units = _ESCAPE.sub(plain, text).encode("utf-16-le", "surrogatepass")
    return units.decode("utf-16-le", "surrogatepass")  # two halves are one character
