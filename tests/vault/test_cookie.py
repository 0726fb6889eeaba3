"""Cookie strings are parsed strictly, and their values are never shown."""

from __future__ import annotations

import hashlib
import pprint
import sys
import traceback
from collections.abc import Iterator
from unicodedata import category

import pytest

from smartlinkd.errors import Invalid
from smartlinkd.vault.cookie import MAX_BYTES, MAX_PAIR_BYTES, MAX_PAIRS, parse_cookie

SECRET = "hunter2"


def of_size(size: int, filling: str = "v") -> str:
    """A good cookie string of so many bytes; `filling` is one character."""
    text = ""
    while size - len(text.encode()) > 2000:
        text += f"n{len(text)}=" + "v" * 900 + ";"
    rest = size - len(text.encode()) - len("last=")
    width = len(filling.encode())
    return text + "last=" + "v" * (rest % width) + filling * (rest // width)


def test_limits_are_the_documented_ones() -> None:
    assert (MAX_BYTES, MAX_PAIRS, MAX_PAIR_BYTES) == (65536, 150, 4096)


@pytest.mark.parametrize(
    ("text", "pairs"),
    [
        ("a=b", (("a", "b"),)),
        ("a=b; c=d", (("a", "b"), ("c", "d"))),
        ("c=d;a=b", (("c", "d"), ("a", "b"))),
        ("  a = b ;  c=d ;", (("a", "b"), ("c", "d"))),
        (";; a=b;;", (("a", "b"),)),
        ("a=b=c==", (("a", "b=c=="),)),
        ('a="b c"', (("a", '"b c"'),)),
        ("a=", (("a", ""),)),
        ("a=ü→😀", (("a", "ü→😀"),)),
        ("A=1; a=2", (("A", "1"), ("a", "2"))),
        ("__Host-a=b", (("__Host-a", "b"),)),
    ],
)
def test_cookie_has_its_pairs_in_order(text: str, pairs: tuple[tuple[str, str], ...]) -> None:
    assert parse_cookie(text).pairs == pairs


def test_first_of_a_repeated_name_counts() -> None:
    cookie = parse_cookie("a=1; b=2; a=3")
    assert cookie.pairs == (("a", "1"), ("b", "2"))
    assert cookie.get("a") == "1"


def test_header_is_one_line_of_pairs() -> None:
    assert parse_cookie(" b=2;a=1 ; c=").header() == "b=2; a=1; c="


def test_digest_is_that_of_the_whole_header() -> None:
    assert parse_cookie("b=2 ;a=1").digest == hashlib.sha256(b"b=2; a=1").hexdigest()


@pytest.mark.parametrize("other", ["a=1", "a=1; b=3", "b=2; a=1", "a=1; b=2; c="])
def test_digest_differs_for_another_cookie(other: str) -> None:
    assert parse_cookie(other).digest != parse_cookie("a=1; b=2").digest


def test_account_is_the_user_id() -> None:
    assert parse_cookie("a=1; SPC_U=12345").account == "12345"


@pytest.mark.parametrize("text", ["a=1", "a=1; SPC_U=", "a=1; SPC_U=-", "a=1; spc_u=12345"])
def test_account_without_a_user_id_is_the_digest(text: str) -> None:
    cookie = parse_cookie(text)
    assert cookie.account == cookie.digest


@pytest.mark.parametrize("text", ["", "   ", ";", " ; ;; "])
def test_text_without_a_pair_is_refused(text: str) -> None:
    with pytest.raises(Invalid, match=r"^cookie: holds no name=value pair"):
        parse_cookie(text)


@pytest.mark.parametrize(
    ("text", "place"),
    [
        (f"Cookie: a={SECRET}", 1),
        (f"a=1; na me={SECRET}", 2),
        (f"a=1; na\u00a0me={SECRET}", 2),
    ],
)
def test_part_that_is_no_pair_is_refused_by_its_place(text: str, place: int) -> None:
    with pytest.raises(Invalid, match=rf"^cookie: part {place} is not a name=value pair; "):
        parse_cookie(text)


@pytest.mark.parametrize(
    "text", ["a=1; flag", "flag; a=1", "a=1; flag;; Secure", "a=1; =b", " = b; a=1", "=;a=1"]
)
def test_part_without_a_name_is_left_out(text: str) -> None:
    assert parse_cookie(text).pairs == (("a", "1"),)


@pytest.mark.parametrize("text", [f"{SECRET}; Secure", f"={SECRET}", f" = {SECRET}", "="])
def test_parts_without_a_name_alone_are_refused(text: str) -> None:
    with pytest.raises(Invalid, match=r"^cookie: holds no name=value pair; "):
        parse_cookie(text)


@pytest.mark.parametrize("char", ["\0", "\t", "\n", "\r", "\x1f", "\x7f", "\x80", "\x85", "\x9f"])
@pytest.mark.parametrize("text", ["a=b{}c", "a{}=b", "{}a=b", "a=b{}", "a=b;{} c=d"])
def test_control_character_is_refused_anywhere(text: str, char: str) -> None:
    with pytest.raises(Invalid, match=r"^cookie: holds a control character"):
        parse_cookie(text.format(char))


def test_refused_control_characters_are_those_of_unicode() -> None:
    whole = [char for char in map(chr, range(sys.maxunicode + 1)) if category(char) != "Cs"]
    assert {char for char in whole if is_refused(f"a=b{char}c")} == {
        char for char in whole if category(char) == "Cc"
    }


def is_refused(text: str) -> bool:
    try:
        parse_cookie(text)
    except Invalid:
        return True
    return False


@pytest.mark.parametrize("half", [chr(0xD800), chr(0xDC80), chr(0xDFFF)])
def test_lone_surrogate_is_refused(half: str) -> None:
    with pytest.raises(Invalid, match=r"^cookie: holds half a character"):
        parse_cookie(f"a={half}")


@pytest.mark.parametrize("filling", ["v", "é", "😀"])
def test_cookie_beyond_its_bytes_is_refused(filling: str) -> None:
    assert len(of_size(MAX_BYTES, filling).encode()) == MAX_BYTES
    assert parse_cookie(of_size(MAX_BYTES, filling)).pairs[-1][0] == "last"
    with pytest.raises(Invalid, match=r"^cookie: 65537 bytes, more than the 65536"):
        parse_cookie(of_size(MAX_BYTES + 1, filling))


@pytest.mark.parametrize("filling", ["v", "é", "😀"])
def test_pair_beyond_its_bytes_is_refused(filling: str) -> None:
    rest = MAX_PAIR_BYTES - len("key=")
    assert parse_cookie("a=b; key=" + filling * (rest // len(filling.encode()))).get("key")
    with pytest.raises(Invalid, match=r"^cookie: pair 2 is over the 4096 bytes"):
        parse_cookie("a=b; key=" + filling * (rest // len(filling.encode())) + "v")


def test_size_of_a_pair_counts_its_name_but_no_blanks() -> None:
    name = "n" * (MAX_PAIR_BYTES - len("="))
    assert parse_cookie(f"  {name} =  ; a=b").pairs[0] == (name, "")
    with pytest.raises(Invalid):
        parse_cookie(f"{name}=v")


def test_pairs_beyond_their_number_are_refused() -> None:
    pairs = [f"n{number}=v" for number in range(MAX_PAIRS)]
    assert len(parse_cookie("; ".join(pairs)).pairs) == MAX_PAIRS
    with pytest.raises(Invalid, match=r"^cookie: 151 pairs, more than the 150"):
        parse_cookie("; ".join([*pairs, "one_more=v"]))


def refused_texts() -> Iterator[str]:
    """One for each rule, each with the secret in it."""
    yield f"{SECRET}"
    yield f"a={SECRET}\n"
    yield f"a={SECRET}\ud800"
    yield f"a={SECRET};" + of_size(MAX_BYTES)
    yield f"a={SECRET}" + "v" * MAX_PAIR_BYTES
    yield f"{SECRET}=v;" * (MAX_PAIRS + 1)


@pytest.mark.parametrize("number", range(6))
def test_refusal_shows_nothing_of_the_cookie(number: int) -> None:
    text = list(refused_texts())[number]
    with pytest.raises(Invalid) as refused:
        parse_cookie(text)
    shown = "".join(traceback.format_exception(refused.value)) + repr(refused.value)
    assert SECRET not in shown


def test_cookie_shows_nothing_of_its_values() -> None:
    cookie = parse_cookie(f"a=1; SPC_U={SECRET}")
    assert cookie.account == SECRET  # which is kept in it
    for shown in (repr(cookie), str(cookie), f"{cookie}", f"{[cookie]}", pprint.pformat(cookie)):
        assert SECRET not in shown
        assert "Cookie" in shown
