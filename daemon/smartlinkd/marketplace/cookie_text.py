"""Read a cookie as people paste it, and return the value of a `Cookie` header.

People paste the header with its name, in quotes, a `curl` command that a browser has copied, the
JSON of a cookie extension, or a cookies.txt. The last two may hold every cookie of a browser, so
only those of the market's hosts are returned. No error repeats a value; the names of domains are
repeated, since they say what was exported.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final, NoReturn
from unicodedata import category

from smartlinkd.errors import Invalid
from smartlinkd.marketplace.markets import SESSION_COOKIES, Market, cookie_hosts
from smartlinkd.marketplace.urls import host_and_port, is_at_or_below
from smartlinkd.untrusted import load_json
from smartlinkd.vault.cookie import Cookie, parse_cookie

_MAX_WRAPPINGS: Final = 8
"""Quotes and names around a cookie, one inside another. More of them stay in the text."""
_MAX_DOMAINS: Final = 10
"""Domains that an error names."""

# Straight ones, curly ones, guillemets, corner brackets, and the same in full width.
_QUOTES: Final = (
    "\"'`\u00b4\u201c\u201d\u201e\u201f\u2018\u2019\u201a\u201b\u00ab\u00bb\u2039\u203a"
    "\u300c\u300d\u300e\u300f\u301d\u301e\u301f\uff02\uff07"
)
_QUOTED: Final = re.compile(rf"([{_QUOTES}])(.*)[{_QUOTES}][\s;,]*", re.DOTALL)
# The name alone in a line is what a browser's developer tools copy.
_HEADER_NAME: Final = re.compile(r"cookie(?:\s*:|[^\S\r\n]*[\r\n])", re.IGNORECASE)
_HTML: Final = re.compile(r"<[a-zA-Z!?/]")
# Also the lines of a curl command that hold its cookies, without the rest of it.
_CURL: Final = re.compile(r"(?:[$>]\s+)?curl(?:\.exe)?\s|(?:-b|-H|--cookie|--header)\s")
# Invisible characters that are neither white space nor in Unicode's category Cf.
_BLANK: Final = frozenset("\u034f\u115f\u1160\u17b4\u17b5\u2800\u3164\uffa0") | {
    chr(code)
    for code in range(0xFE00, 0xFE10)  # variation selectors
}
# HTTP has header values in ISO 8859-1 (RFC 9110, section 5.5). The portal's own script puts the
# csrftoken in a header, and a browser sends nothing when that has any other character.
_NO_HEADER_CARRIES: Final = re.compile(r"[^\x00-\xff]")


def header_value(text: str, market: Market, now: float) -> str:
    """Return the cookie in a pasted text, as the value of one `Cookie` header.

    A header's value comes back as it was sent, without what was around it. `now` is a POSIX
    timestamp. Exported cookies that have expired by then are left out.

    Raises:
        Invalid: There is no usable cookie in the text. The error says what the text is instead,
            and what to send.
    """
    value = _value_in(text, market, now)
    cookie = parse_cookie(value)
    _check_characters(cookie)
    if not has_session(cookie):
        raise Invalid(
            f"cookie: neither {' nor '.join(SESSION_COOKIES)} has a value in it, so nobody is "
            f"logged in with it; log in to {_portal(market)} and copy the cookie again"
        )
    return value


def has_session(cookie: Cookie) -> bool:
    """True if one of the market's session cookies has a value."""
    values = ((cookie.get(name) or "").strip('"') for name in SESSION_COOKIES)
    return any(value not in ("", "-") for value in values)


def _value_in(text: str, market: Market, now: float) -> str:
    """Return the header's value in any of the forms. What is none of them comes back as it is."""
    for _ in range(_MAX_WRAPPINGS):
        text = _without_blank_ends(text)
        if _HTML.match(text):
            _refuse("this is HTML (a web page), not a cookie", market)
        if text.startswith(("[", "{")):
            return _of_market(_json_export(text, market), market, now)
        if _CURL.match(text):
            return _curl_cookie(text, market)
        if _is_cookies_txt(text):
            return _of_market(_cookies_txt(text), market, now)
        unwrapped = _unwrapped(text)
        if unwrapped == text:
            break
        text = unwrapped
    return text


def _unwrapped(text: str) -> str:
    """Return the text without one pair of quotes, one quote in front, or one header name."""
    if quoted := _QUOTED.fullmatch(text):
        if quoted[1] == '"' and "\\" in text:
            try:
                decoded = load_json(text.rstrip(";, "))
            except ValueError:
                return quoted[2]
            assert isinstance(decoded, str)  # noqa: S101 - JSON in quotes is a string
            return decoded
        return quoted[2]
    if text[:1] and text[0] in _QUOTES:
        return text[1:]
    name = _HEADER_NAME.match(text)
    return text[name.end() :] if name else text


def _without_blank_ends(text: str) -> str:
    """Return the text without the white space and the invisible characters at its ends."""
    start, end = 0, len(text)
    while start < end and _is_blank(text[start]):
        start += 1
    while start < end and _is_blank(text[end - 1]):
        end -= 1
    return text[start:end]


def _is_blank(char: str) -> bool:
    return char.isspace() or category(char) == "Cf" or char in _BLANK


def _check_characters(cookie: Cookie) -> None:
    for place, (name, value) in enumerate(cookie.pairs, 1):
        if bad := _NO_HEADER_CARRIES.search(f"{name}={value}"):
            raise Invalid(
                f"cookie: pair {place} has the character U+{ord(bad[0]):04X}, which no HTTP header "
                "can carry; copy the whole cookie again, from the browser itself"
            )


def _refuse(what: str, market: Market) -> NoReturn:
    raise Invalid(
        f"cookie: {what}; send the value of the Cookie header that the browser sends to "
        f"{_portal(market)}, or the export of a cookie extension"
    )


def _portal(market: Market) -> str:
    return host_and_port(market.portal_url)[0]


# Exports


@dataclass(frozen=True)
class _Exported:
    """One cookie of an export. `expires` is a POSIX timestamp, None for a session cookie."""

    name: str
    value: str = field(repr=False)
    domain: str | None
    expires: float | None


def _of_market(cookies: Iterable[_Exported], market: Market, now: float) -> str:
    """Return the header of the cookies that belong to the market's hosts and have not expired.

    Of two with the same name the portal's counts, then the shop's. A cookie without a domain counts
    only where the export has no foreign domain: nobody can tell whose cookie it is there.
    """
    hosts = cookie_hosts(market)
    cookies = list(cookies)
    domains = {each.domain for each in cookies if each.domain is not None}
    ranks: dict[str | None, int | None] = {each: _rank(each, hosts) for each in domains}
    if None not in ranks.values():
        ranks[None] = 0
    best: dict[str, tuple[int, str]] = {}
    for each in cookies:
        rank = ranks.get(each.domain)
        if rank is None or (each.expires is not None and each.expires <= now):
            continue
        if each.name not in best or rank < best[each.name][0]:
            best[each.name] = (rank, each.value)
    if not best:
        raise Invalid(
            f"cookie: the export holds no unexpired cookie of {' or '.join(hosts)}; "
            f"{_found(sorted(domains))}; log in to {_portal(market)} and export the cookies there"
        )
    return "; ".join(f"{name}={value}" for name, (_, value) in best.items())


def _rank(domain: str, hosts: tuple[str, ...]) -> int | None:
    """Return the place of a cookie among those of the same name, None if it is of no such host."""
    if domain in hosts:
        return hosts.index(domain)
    return len(hosts) if any(is_at_or_below(domain, host) for host in hosts) else None


def _found(domains: list[str]) -> str:
    if not domains:
        return "it has no cookie with a domain"
    more = f" and {len(domains) - _MAX_DOMAINS} more" if len(domains) > _MAX_DOMAINS else ""
    return f"it has cookies of {', '.join(domains[:_MAX_DOMAINS])}{more}"


# What an error names is a domain and nothing else, whatever the export says.
_DOMAIN: Final = re.compile(r"[a-z0-9_.:-]{1,253}")


def _domain(text: object) -> str | None:
    """Return a cookie's domain without dots around it, None if the export names none."""
    if not isinstance(text, str) or not text.strip():
        return None
    host = text.strip().lower()
    if "://" in host:
        host, _ = host_and_port(host)
    host = host.strip("[].")
    return host if _DOMAIN.fullmatch(host) else "(an unreadable domain)"


def _json_export(text: str, market: Market) -> Iterator[_Exported]:
    try:
        export = load_json(text)
    except (ValueError, RecursionError):
        _refuse("this begins like JSON and is none, so it may be cut off", market)
    if isinstance(export, dict):
        export = export.get("cookies")
    entries = export if isinstance(export, list) else []
    cookies = [each for entry in entries if (each := _of_json(entry))]
    if not cookies:
        _refuse(
            'this JSON is no cookie export, since nothing in it has a "name" and a "value"', market
        )
    return iter(cookies)


def _of_json(entry: object) -> _Exported | None:
    """Return the cookie of one entry, None if it is none.

    The keys are those of Chrome's and Firefox's extensions, Playwright, Puppeteer and Selenium.
    """
    if not isinstance(entry, dict):
        return None
    fields = {key.lower(): value for key, value in entry.items()}
    name, value = fields.get("name"), fields.get("value")
    if not isinstance(name, str) or not isinstance(value, str):
        return None
    domains = map(_domain, map(fields.get, ("domain", "host", "host_key", "url")))
    return _Exported(name, value, next(filter(None, domains), None), _json_expiry(fields))


def _json_expiry(fields: Mapping[str, Any]) -> float | None:
    if fields.get("session") is True:
        return None
    given = map(fields.get, ("expirationdate", "expires", "expiry"))
    return _timestamp(next((each for each in given if each is not None), None))


def _timestamp(expires: object) -> float | None:
    """Return an expiry as a POSIX timestamp, None for "at the end of the session"."""
    try:
        seconds = float(expires) if isinstance(expires, int | float | str) else 0.0
    except OverflowError:
        return None  # an integer that no float can hold, ages from now
    except ValueError:
        seconds = _iso_timestamp(str(expires))
    if seconds > 1e11:  # the year 5138; cookieStore.getAll() has milliseconds
        seconds /= 1000
    return seconds if seconds > 0 else None


def _iso_timestamp(text: str) -> float:
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return 0.0  # such as the word "Session"
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()


# The fields of a cookies.txt: domain, with sub-domains, path, secure, expiry, name, value. Tabs may
# have become spaces on the way. curl writes `#HttpOnly_` in front.
_TXT_LINE: Final = re.compile(
    r"(?:#HttpOnly_)?([^\s#]\S*)[ \t]+(?:TRUE|FALSE)[ \t]+/\S*[ \t]+(?:TRUE|FALSE)[ \t]+"
    r"(-?[0-9]+(?:\.[0-9]+)?)[ \t]+([^\s=]+)(?:[ \t]+(.*))?",
    re.IGNORECASE,
)
_TXT_HEAD: Final = re.compile(r"# (?:Netscape )?HTTP Cookie File", re.IGNORECASE)
_LINE_END: Final = re.compile(r"\r\n|\r|\n")


def _is_cookies_txt(text: str) -> bool:
    if _TXT_HEAD.match(text):
        return True
    return any(_TXT_LINE.fullmatch(line.strip()) for line in _LINE_END.split(text))


def _cookies_txt(text: str) -> Iterator[_Exported]:
    for place, line in enumerate(map(str.strip, _LINE_END.split(text)), 1):
        if found := _TXT_LINE.fullmatch(line):
            host, expires, name, value = found.groups()
            yield _Exported(name, value or "", _domain(host), _timestamp(expires))
        elif line and not line.startswith("#"):
            raise Invalid(
                f"cookie: line {place} of this cookies.txt does not have its seven fields; "
                "export the file again and send it whole"
            )


# curl commands

_CMD: Final = re.compile(r"\^[ \t]*\r?\n|(?<!\S)\^\"")
_CARET: Final = re.compile(r"\^(\r?\n|.)", re.DOTALL)
_CMD_WORD: Final = re.compile(
    r"(?P<between>\s+)|\"(?P<quoted>(?:[^\"\\]|\\.|\"\")*)\"|(?P<bare>[^\s\"]+)", re.DOTALL
)
_BASH_WORD: Final = re.compile(
    r"(?P<between>(?:[\s;&|]|\\\r?\n)+)|\$'(?P<ansi>(?:[^'\\]|\\.)*)'|'(?P<single>[^']*)'"
    r"|\$?\"(?P<double>(?:[^\"\\]|\\.)*)\"|\\(?P<escaped>.?)|(?P<bare>[^\s;&|\\'\"$]+|\$)",
    re.DOTALL,
)
_ANSI_ESCAPE: Final = re.compile(
    r"\\(?:u([0-9a-fA-F]{1,4})|U([0-9a-fA-F]{1,8})|x([0-9a-fA-F]{1,2})|([0-7]{1,3})|(.))",
    re.DOTALL,
)
_ANSI_CHARACTERS: Final = dict(zip("abeEfnrtv", "\a\b\x1b\x1b\f\n\r\t\v", strict=True))


def _curl_cookie(text: str, market: Market) -> str:
    """Return the cookie that a curl command sends, as bash or cmd reads the command."""
    words = _cmd_words(text) if _CMD.search(text) else _bash_words(text)
    commands: list[dict[str, None]] = [{}]
    for word in words:
        if word in ("curl", "curl.exe"):
            commands.append({})
        elif value := _cookie_option(word, words):
            commands[-1][value] = None
    found = {"; ".join(values) for values in commands if values}
    if not found:
        _refuse("this curl command sends no cookie", market)
    if len(found) > 1:
        raise Invalid(
            "cookie: these are several curl commands with different cookies; send one of them, "
            f"a request to {_portal(market)}"
        )
    return found.pop()


def _cookie_option(word: str, words: Iterator[str]) -> str:
    """Return the cookie that an option of curl's gives, "" if it gives none.

    The option's argument is taken from `words`.
    """
    option = word if word.startswith("--") else word[:2]
    if option not in ("-b", "--cookie", "-H", "--header"):
        return ""
    value = word[2:] if word[2:] and option in ("-b", "-H") else next(words, "")
    if option in ("-H", "--header"):
        name, _, value = value.partition(":")
        return value.strip() if name.strip().lower() == "cookie" else ""
    if value and "=" not in value:
        raise Invalid(
            "cookie: this curl command reads its cookies from a file (-b FILE), which is not here; "
            "send what is in the file"
        )
    return value.strip()


def _bash_words(text: str) -> Iterator[str]:
    return _words(
        text,
        _BASH_WORD,
        {
            "ansi": _ansi,
            "double": lambda quoted: re.sub(r"\\(?:\r?\n|([\\\"$`]))", r"\1", quoted),
        },
    )


def _cmd_words(text: str) -> Iterator[str]:
    """Yield the words of a command that a browser wrote for cmd.

    The browser escaped backslashes and quotes for curl first, then everything for cmd.
    """
    plain = _CARET.sub(lambda found: "" if "\n" in found[1] else found[1], text)
    return _words(
        plain,
        _CMD_WORD,
        {"quoted": lambda quoted: re.sub(r"\\([\\\"])|\"(\")", r"\1\2", quoted)},
    )


def _words(
    text: str, pattern: re.Pattern[str], read: Mapping[str, Callable[[str], str]]
) -> Iterator[str]:
    """Yield the words of a command line. `read` undoes the escapes in a kind of quotes."""
    pieces: list[str] = []
    place = 0
    while place < len(text):
        piece = pattern.match(text, place)
        if piece is None:
            raise Invalid(
                "cookie: this curl command is cut off, a quote in it does not end; "
                "copy the whole command again"
            )
        place = piece.end()
        kind = piece.lastgroup or ""
        if kind != "between":
            pieces.append(read.get(kind, str)(piece[kind]))
        elif pieces:
            yield "".join(pieces)
            pieces = []
    if pieces:
        yield "".join(pieces)


def _ansi(quoted: str) -> str:
    r"""Return the text of bash's `$'…'`. Two `\u` may be the halves of one character."""
    text = _ANSI_ESCAPE.sub(_ansi_character, quoted)
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _ansi_character(found: re.Match[str]) -> str:
    short, long, byte, octal, char = found.groups()
    if char is not None:
        return _ANSI_CHARACTERS.get(char, char if char in "\\'\"?" else f"\\{char}")
    code = int(octal, 8) if octal else int(short or long or byte, 16)
    return chr(code) if code <= 0x10FFFF else "\ufffd"
