"""Short links: from a code to the product it stands for, without the owner's cookie.

A short link is somebody else's text that makes us fetch something, so every address on the way must
be the market's own (see `links.follow`), the number of hops and the bytes of each are bounded, and
the journey ends at the first address that *is* a product link: the product page itself is never
fetched. Most hops are HTTP redirects; some are pages that go on by a meta refresh or by a script
that assigns a literal address. No script is ever run here.

A host that does not answer holds up its own short links and no others: so many hops go to a host at
a time, and the others wait for it before their own time begins to count.

Two kinds of failure are kept apart, because a client drops the first and tries the second again: a
link that leads to no product, and a link of which nothing is known because somebody did not answer.
"""

from __future__ import annotations

import logging
import re
from contextlib import suppress
from dataclasses import dataclass
from html.parser import HTMLParser
from urllib.parse import urljoin

import trio

from daemon.marketplace.links import NotALink, Page, Product, Short, follow
from daemon.marketplace.markets import Market, host_and_port
from daemon.marketplace.plain_http import NoAnswer, PlainHttp, Reply
from daemon.marketplace.session import sign_of_url

logger = logging.getLogger(__name__)

MAX_HOPS = 5  # real chains have one to three
MAX_BODY = 64 * 1024  # a page that goes on by itself says so at its top, and to look takes time
HOPS_AT_ONCE = 8  # to one host; whoever asks for fifteen links of it waits for two rounds
HOP_DEADLINE = 8.0  # seconds, from the look-up of the host's name to the last byte
DEADLINE = 40.0  # seconds for all hops and what they wait for; a request has a minute

_REDIRECTS = (301, 302, 303, 307, 308)


@dataclass(frozen=True, slots=True)
class Unresolved:
    """Nothing is known of the link, because of `why`; it may work later."""

    why: str


class Lanes:
    """Where hops wait for each other: a lane to each short host, and one to the shop, its
    sub-domains included. A hop goes nowhere else (see `links.follow`).
    """

    def __init__(self, market: Market) -> None:
        self._to_shop = trio.CapacityLimiter(HOPS_AT_ONCE)
        self._to_short_hosts = {
            host_and_port(url): trio.CapacityLimiter(HOPS_AT_ONCE) for url in market.short_urls
        }

    def to(self, url: str) -> trio.CapacityLimiter:
        """That of the host of `url`."""
        return self._to_short_hosts.get(host_and_port(url), self._to_shop)


async def resolve(
    http: PlainHttp,
    short: Short,
    market: Market,
    lanes: Lanes,
    *,
    hop_deadline: float = HOP_DEADLINE,
) -> Product | NotALink | Unresolved:
    """The product that a short link stands for.

    `lanes` are one for all who resolve short links of the `market`. Never raises for anything the
    network does. Takes at most `DEADLINE` seconds, and each hop `hop_deadline` of them, in which
    the wait for its lane does not count.
    """
    with trio.move_on_after(DEADLINE):
        return await _follow(http, short, market, lanes, hop_deadline)
    return Unresolved(f"no answer within {DEADLINE:g} seconds")


async def _follow(
    http: PlainHttp, short: Short, market: Market, lanes: Lanes, hop_deadline: float
) -> Product | NotALink | Unresolved:
    here, seen = short.url, {short.url}
    for _ in range(MAX_HOPS):
        try:
            async with lanes.to(here):
                reply = await http.call("GET", here, deadline=hop_deadline, max_body=MAX_BODY)
        except NoAnswer as silence:
            return Unresolved(str(silence))
        found = _next(reply, here, market)
        if not isinstance(found, Page):
            logger.debug("short link %s: %s", short.url, found)
            return found
        if found.url in seen:
            return NotALink("its redirects go round in a loop")
        here = found.url
        seen.add(here)
    return NotALink(f"it redirects more than {MAX_HOPS} times")


def _next(reply: Reply, here: str, market: Market) -> Product | Page | NotALink | Unresolved:
    """Where an answer sends us: pure."""
    if reply.status in _REDIRECTS:
        targets = [reply.headers["location"]] if "location" in reply.headers else []
    elif reply.status == 200:
        targets = targets_in_page(reply.text)
    elif reply.status in (404, 410):
        return NotALink("there is nothing behind it")
    else:
        return Unresolved(f"HTTP {reply.status}")
    places = [follow(_absolute(here, target), market) for target in targets]
    # A page may mention more than one address; a product among them is what it is about.
    product = next((place for place in places if isinstance(place, Product)), None)
    found = product or next(iter(places), NotALink("it leads nowhere"))
    if isinstance(found, Page) and sign_of_url(found.url):
        # A login or a human check, put before strangers: it says nothing of the link.
        return Unresolved("the shop wants a login or a person before it says more")
    return found


def _absolute(here: str, target: str) -> str:
    try:
        return urljoin(here, target)
    except ValueError:
        return target  # not a URL; the grammar of links will say so


# location = "…", location.href = '…', window.top.location.replace("…"), document.location.assign(…)
_SCRIPT = re.compile(
    r"""\blocation(?:\.href)?\s{0,9}(?:=(?!=)|\.(?:replace|assign)\s{0,9}\()\s{0,9}"""
    r"""(?:"([^"\n]{1,4096})"|'([^'\n]{1,4096})')"""
)
_ESCAPE = re.compile(r"\\(?:u([0-9A-Fa-f]{4})|x([0-9A-Fa-f]{2})|(.))")
# Possessive, since who gives back a space tries the next part with it: there are three parts, and a
# page may have 100 000 spaces.
_REFRESH = re.compile(r"\s*+[0-9.]*+\s*+[;,]?+\s*+url\s*+=\s*+[\"']?+([^\"']++)", re.IGNORECASE)
_MAX_TARGETS = 8


def targets_in_page(html: str) -> list[str]:
    """The addresses a page goes on to by itself, meta refresh first, as written in it.

    A page that the parser gives up on ends there.
    """
    reader = _PageReader()
    # `<![x[` of no kind that it knows; `&#…;` of more digits than Python makes a number of.
    with suppress(AssertionError, ValueError):
        reader.feed(html)
    scripts = (_literal(match) for text in reader.scripts for match in _SCRIPT.finditer(text))
    return (reader.refreshes + list(scripts))[:_MAX_TARGETS]


class _PageReader(HTMLParser):
    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.refreshes: list[str] = []
        self.scripts: list[str] = []
        self._in_script = False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        if tag == "script":
            self._in_script = True
        elif tag == "meta" and given.get("http-equiv", "").strip().lower() == "refresh":
            target = _REFRESH.match(given.get("content", ""))
            self.refreshes += [target[1].strip()] if target else []

    def handle_endtag(self, tag: str) -> None:
        if tag == "script":
            self._in_script = False

    def handle_data(self, data: str) -> None:
        if self._in_script:
            self.scripts.append(data)


def _literal(match: re.Match[str]) -> str:
    """The value of a JavaScript string literal of simple escapes."""

    def plain(escape: re.Match[str]) -> str:
        code = escape[1] or escape[2]
        return chr(int(code, 16)) if code else escape[3]

    units = _ESCAPE.sub(plain, match[1] or match[2]).encode("utf-16-le", "surrogatepass")
    return units.decode("utf-16-le", "surrogatepass")  # two halves are one character
