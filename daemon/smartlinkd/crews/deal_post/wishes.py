"""What a kickoff asks for: the inputs, read and checked.

Whoever fills a form has text where a program has a list, so both are taken.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeGuard

Language = Literal["vi", "en"]

MAX_TITLE = 200
"""Characters: a headline, and no post of its own."""


class WrongInput(Exception):  # noqa: N818 - names what is wrong
    """An input is not what it has to be; the text names it and says what it has to be."""


@dataclass(frozen=True)
class Wishes:
    """The inputs. `title` is empty when the writer is to find one; `currency` is what the prices
    are in (ISO 4217), since product data does not say.
    """

    links: tuple[str, ...]
    sub_ids: tuple[str, ...]
    language: Language
    title: str
    currency: str


def read_wishes(inputs: Mapping[str, Any]) -> Wishes:
    """The inputs as wishes; one that is null is left out. Raises `WrongInput`.

    How many links there may be, what a link is, and how a sub-id looks, is for the tool to say.
    """
    return Wishes(
        links=_links(inputs.get("links")),
        sub_ids=_sub_ids(inputs.get("subIds")),
        language=_language(inputs.get("language")),
        title=_title(inputs.get("title")),
        currency=_currency(inputs.get("currency")),
    )


def _links(given: object) -> tuple[str, ...]:
    if isinstance(given, str):
        given = [link for line in given.splitlines() for link in _links_in(line)] or given.split()
    elif _is_texts(given):
        given = [link for text in given for link in _links_in(text) or [text]]
    if not _is_texts(given) or not given:
        raise WrongInput(
            "links: give product or short links, as a list of texts or as one text with a link "
            "on each line"
        )
    return tuple(given)


# What may begin a link: a scheme, or a host name and a path. Which host counts is the tool's part.
_MAYBE_LINK = re.compile(
    r"https?(?::|%3A|%253A)|(?:[\w-]+\.)+[\w-]+(?::[0-9]+)?(?:[/\\]|%2F)", re.IGNORECASE
)
_BETWEEN_LINKS = re.compile(r"\s+|[,;|]+(?=https?:)", re.IGNORECASE)


def _links_in(text: str) -> list[str]:
    """Return the parts of a text that may be links; [] when there is none.

    A text with one link stays whole, since the tool knows where in it the link begins and ends.
    """
    words = [word for word in _BETWEEN_LINKS.split(text) if _MAYBE_LINK.search(word)]
    return words if len(words) > 1 else [text.strip()] * len(words)


def _sub_ids(given: object) -> tuple[str, ...]:
    if isinstance(given, str):
        given = [part.strip() for part in given.split(",")] if given.strip() else []
    if given is None:
        return ()
    if not _is_texts(given):
        raise WrongInput(
            "subIds: give a list of texts, or one text with commas between the sub-ids"
        )
    return tuple(given)


def _is_texts(given: object) -> TypeGuard[list[str]]:
    return isinstance(given, list) and all(isinstance(each, str) for each in given)


def _language(given: object) -> Language:
    match given:
        case None | "" | "vi":
            return "vi"
        case "en":
            return "en"
    raise WrongInput('language: must be "vi" (Vietnamese) or "en" (English)')


def _title(given: object) -> str:
    if given is None:
        return ""
    if not isinstance(given, str) or len(given) > MAX_TITLE:
        raise WrongInput(f"title: must be a text of at most {MAX_TITLE} characters")
    return " ".join(given.split())


def _currency(given: object) -> str:
    if given in (None, ""):
        return "VND"
    if not isinstance(given, str) or not re.fullmatch("[A-Z]{3}", given):
        raise WrongInput("currency: must be three capital letters, such as VND")
    return given
