"""Cookie strings are parsed strictly, and their values are never shown."""

from __future__ import annotations

import hashlib
import pprint
import sys
import traceback
from unicodedata import category

import pytest

from smartlinkd.errors import Invalid
from smartlinkd.vault.cookie import MAX_BYTES, MAX_PAIR_BYTES, MAX_PAIRS, parse_cookie

SECRET = "hunter2"
HALVES = [chr(0xD800), chr(0xDC80), chr(0xDFFF)]


def refusal(text: str) -> str:
    """Return the text of the error, which shows nothing of the cookie."""
    with pytest.raises(Invalid, match=r"^cookie: ") as refused:
        parse_cookie(text)
    shown = "".join(traceback.format_exception(refused.value)) + repr(refused.value)
    assert SECRET not in shown
    return str(refused.value)


def of_size(size: int, filling: str = "v") -> str:
    """A good cookie string of so many bytes; `filling` is one character."""
    text = f"a={SECRET};"
    while size - len(text.encode()) > 2000:
        text += f"n{len(text)}=" + "v" * 900 + ";"
    rest = size - len(text.encode()) - len("last=")
    width = len(filling.encode())
    return text + "last=" + "v" * (rest % width) + filling * (rest // width)


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


def test_header_is_one_line_of_pairs_and_digest_is_of_it() -> None:
    cookie = parse_cookie(" b=2;a=1 ; c=")
    assert cookie.header() == "b=2; a=1; c="
    assert cookie.digest == hashlib.sha256(b"b=2; a=1; c=").hexdigest()


def test_account_is_the_user_id() -> None:
    assert parse_cookie("a=1; SPC_U=12345").account == "12345"


@pytest.mark.parametrize("text", ["a=1", "a=1; SPC_U=", "a=1; SPC_U=-", "a=1; spc_u=12345"])
def test_account_without_a_user_id_is_the_digest(text: str) -> None:
    cookie = parse_cookie(text)
    assert cookie.account == cookie.digest


@pytest.mark.parametrize(
    "text", ["a=1; flag", "flag; a=1", "a=1; flag;; Secure", "a=1; =b", " = b; a=1", "=;a=1"]
)
def test_part_without_a_name_is_left_out(text: str) -> None:
    assert parse_cookie(text).pairs == (("a", "1"),)


@pytest.mark.parametrize(
    ("text", "error"),
    [
        *((text, "holds no name=value pair; ") for text in ("", "   ", ";", " ; ;; ", "=")),
        *((text, "holds no name=value pair; ") for text in (f"{SECRET}; Secure", f" = {SECRET}")),
        (f"Cookie: a={SECRET}", "part 1 is not a name=value pair; "),
        (f"a=1; na me={SECRET}", "part 2 is not a name=value pair; "),
        (f"a=1; na\u00a0me={SECRET}", "part 2 is not a name=value pair; "),
        *((f"a={SECRET}{half}", "holds half a character") for half in HALVES),
    ],
)
def test_text_that_is_no_list_of_pairs_is_refused(text: str, error: str) -> None:
    assert refusal(text).startswith(f"cookie: {error}")


@pytest.mark.parametrize("text", ["a=b{}c", "a{}=b", "{}a=b", "a=b{}", "a=b;{} c=d"])
def test_control_character_is_refused_anywhere(text: str) -> None:
    controls = [char for char in map(chr, range(sys.maxunicode + 1)) if category(char) == "Cc"]
    assert len(controls) == 65
    for char in controls:
        told = refusal(f"secret={SECRET}; {text.format(char)}")
        assert told.startswith("cookie: holds a control character")


@pytest.mark.parametrize("filling", ["v", "é", "😀"])
def test_cookie_beyond_its_bytes_is_refused(filling: str) -> None:
    assert len(of_size(MAX_BYTES, filling).encode()) == MAX_BYTES
    assert parse_cookie(of_size(MAX_BYTES, filling)).pairs[-1][0] == "last"
    told = refusal(of_size(MAX_BYTES + 1, filling))
    assert told.startswith("cookie: 65537 bytes, more than the 65536")


@pytest.mark.parametrize("filling", ["v", "é", "😀"])
def test_pair_beyond_its_bytes_is_refused(filling: str) -> None:
    rest = MAX_PAIR_BYTES - len("key=")
    longest = f"a={SECRET}; key=" + filling * (rest // len(filling.encode()))
    assert parse_cookie(longest).get("key")
    assert refusal(longest + "v").startswith("cookie: pair 2 is over the 4096 bytes")


def test_size_of_a_pair_counts_its_name_but_no_blanks() -> None:
    name = SECRET + "n" * (MAX_PAIR_BYTES - len(SECRET) - len("="))
    assert parse_cookie(f"  {name} =  ; a=b").pairs[0] == (name, "")
    assert refusal(f"{name}=v").startswith("cookie: pair 1 is over the 4096 bytes")


def test_pairs_beyond_their_number_are_refused() -> None:
    pairs = [f"{SECRET}{number}=v" for number in range(MAX_PAIRS)]
    assert len(parse_cookie("; ".join(pairs)).pairs) == MAX_PAIRS
    told = refusal("; ".join([*pairs, "one_more=v"]))
    assert told.startswith("cookie: 151 pairs, more than the 150")


def test_cookie_shows_nothing_of_its_values() -> None:
    cookie = parse_cookie(f"a=1; SPC_U={SECRET}")
    assert cookie.account == SECRET  # which is kept in it
    for shown in (repr(cookie), str(cookie), f"{cookie}", f"{[cookie]}", pprint.pformat(cookie)):
        assert SECRET not in shown
        assert "Cookie" in shown
