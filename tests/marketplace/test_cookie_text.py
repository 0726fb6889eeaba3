"""A cookie is read in each form that people paste; an export gives only the market's."""

from __future__ import annotations

import json
import re
import traceback
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from smartlinkd.errors import Invalid
from smartlinkd.marketplace.cookie_text import has_session, header_value
from smartlinkd.marketplace.markets import market
from smartlinkd.vault.cookie import parse_cookie

VN = market("vn")
NOW = 1_800_000_000.0
LATER = NOW + 86_400
HEADER = 'SPC_F=f; SPC_EC=.a/b+c==; SPC_ST=".st"; SPC_U=4711; csrftoken=t'
SECRET = "hunter2"

Entry = dict[str, Any]


def read(text: str) -> str:
    return header_value(text, VN, NOW)


def refusal(text: str) -> str:
    """Return the text of the error, which shows no value."""
    with pytest.raises(Invalid, match=r"^cookie: ") as refused:
        read(text)
    assert SECRET not in "".join(traceback.format_exception(refused.value))
    return str(refused.value)


def entry(name: str, value: str, domain: str = ".shopee.vn", **more: object) -> Entry:
    return {"name": name, "value": value, "domain": domain, **more}


def export(*entries: Entry) -> str:
    return json.dumps(entries)


LOGIN = [entry("SPC_EC", "x"), entry("SPC_ST", "y", "shopee.vn")]

# A header's value


@pytest.mark.parametrize(
    "text",
    [
        HEADER,
        f"Cookie: {HEADER}",
        f"cookie:{HEADER}",
        f"COOKIE :  {HEADER}",
        f"Cookie:\n{HEADER}",
        f"cookie\r\n{HEADER}\r\n",
        f"  {HEADER}\r\n\t",
        f"\u00a0{HEADER}\u200b",
        f"\ufeffCookie: {HEADER}",
        f"\u2060\u200e{HEADER}\u3164\u2028\ufe0f",
        f'"{HEADER}"',
        f"'Cookie: {HEADER}'",
        f"Cookie: '{HEADER}'",
        f"\u201c{HEADER}\u201d",
        f"\u201e{HEADER}\u201c",
        f"\u2018{HEADER}\u2019",
        f"\u00ab\u00a0{HEADER}\u00a0\u00bb",
        f"\u2039{HEADER}\u203a",
        f"\u300c{HEADER}\u300d",
        f"`{HEADER}`",
        f"```\n{HEADER}\n```",
        f'"{HEADER}";',
        f"'{HEADER}',",
        f'"{HEADER}',
        json.dumps(HEADER),
        json.dumps(f"Cookie: {HEADER}\n") + ",",
    ],
)
def test_header_with_something_around_it_gives_its_value(text: str) -> None:
    assert read(text) == HEADER


@pytest.mark.parametrize(
    "text",
    [
        'SPC_EC=x; SPC_ST=".st"',
        "SPC_EC=x;SPC_U=1;",
        "  SPC_EC = x ;; flag; SPC_EC=y".strip(),
        "SPC_EC=x; \u00fcn\u00ef=c\u00f6d\u00e9",
        "SPC_EC=a=b==; __Host-x=1",
        "cookie=1; SPC_EC=x",
        "curl=1; SPC_EC=x",
        "SPC_EC=x\\",
    ],
)
def test_plain_header_is_returned_to_the_letter(text: str) -> None:
    assert read(text) == text


VALUES = st.from_regex(r"[!#-+\--:<-\[\]-~][!#-:<-\[\]-~]{0,40}", fullmatch=True)
NAMES = st.from_regex(r"[A-Za-z0-9_-]{1,20}", fullmatch=True)
BLANKS = st.text(alphabet=" \t\r\n\u00a0\u200b\ufeff\u3000\u2060", max_size=4)


@settings(max_examples=300)
@given(
    pairs=st.lists(st.tuples(NAMES, VALUES), max_size=6),
    ends=st.tuples(BLANKS, BLANKS),
    quotes=st.sampled_from(['""', "''", "``", "\u201c\u201d", "\u00ab\u00bb", "\u2018\u2019"]),
)
def test_every_cookie_is_read_back_from_every_form(
    pairs: list[tuple[str, str]], ends: tuple[str, str], quotes: str
) -> None:
    every = {"SPC_EC": "x", **dict(pairs)}
    every["SPC_EC"] = every["SPC_EC"].strip("-") or "x"
    header = "; ".join(f"{name}={value}" for name, value in every.items())
    txt = [f".shopee.vn\tTRUE\t/\tTRUE\t0\t{name}\t{value}" for name, value in every.items()]
    decorated = quotes[0] + ends[0] + header + ends[1] + quotes[1]
    forms = [
        decorated,
        f"Cookie: {decorated}",
        bash_curl(header),
        cmd_curl(header),
        export(*(entry(name, value) for name, value in every.items())),
        "\n".join(txt),
    ]
    assert [read(form) for form in forms] == [header] * len(forms)


@settings(max_examples=500)
@given(st.text(max_size=200) | st.text(alphabet="\"'\\$^-bH curl\n[]{}:,;=\t#", max_size=60))
def test_random_text_is_read_or_refused_as_invalid(text: str) -> None:
    for each in (text, f"curl {text}", f"[{text}", f"# Netscape HTTP Cookie File\n{text}"):
        try:
            value = read(each)
        except Invalid:
            continue
        assert has_session(parse_cookie(value))


# curl


def bash_curl(cookie: str) -> str:
    """As Chrome's "Copy as cURL (bash)" writes it (SDK's escapeStringPosix)."""
    quoted = f"'{cookie}'"
    if re.search(r"[\x00-\x1f\x7f-\x9f!']", cookie):
        escaped = cookie.replace("\\", "\\\\").replace("'", "\\'")
        escaped = re.sub(r"[\x00-\x1f\x7f-\x9f!]", lambda c: f"\\u{ord(c[0]):04x}", escaped)
        quoted = f"$'{escaped}'"
    return (
        "curl 'https://affiliate.shopee.vn/api/v3/gql?q=batchCustomLink' \\\n"
        "  -H 'accept: application/json, text/plain, */*' \\\n"
        f"  -b {quoted} \\\n"
        "  -H 'user-agent: Mozilla/5.0 (X11; Linux x86_64)' \\\n"
        '  --data-raw $\'{"a":"it\\u0027s; -b no=cookie"}\' \\\n'
        "  --compressed"
    )


def cmd_curl(cookie: str) -> str:
    """As Chrome's "Copy as cURL (cmd)" writes it (SDK's escapeStringWin)."""

    def quoted(text: str) -> str:
        text = text.replace("\\", "\\\\").replace('"', '\\"')
        text = re.sub(r"[^a-zA-Z0-9\s_\-:=+~'/.',?;()*`]", r"^\g<0>", text)
        return '^"' + re.sub(r"%(?=[a-zA-Z0-9_])", "%^", text) + '^"'

    data = quoted('{"a": "b"}')
    return (
        f"curl {quoted('https://affiliate.shopee.vn/api/v3/gql?q=a&b=%20')} ^\r\n"
        f"  -H {quoted('accept: */*')} ^\r\n"
        f"  -b {quoted(cookie)} ^\r\n"
        f"  --data-raw {data} ^\r\n  --compressed"
    )


@pytest.mark.parametrize(
    "text",
    [
        bash_curl(HEADER),
        cmd_curl(HEADER),
        "curl 'https://shopee.vn/' --compressed -H 'User-Agent: x' -H 'Cookie: " + HEADER + "'",
        f"curl 'https://shopee.vn/' \\\r\n  -X 'GET' \\\r\n -H 'cookie: {HEADER}'\r\n",
        f"curl --cookie '{HEADER}' https://shopee.vn/?a=1&b=2",
        f"curl --header 'COOKIE:{HEADER}' https://shopee.vn/",
        f"curl -b'{HEADER}' https://shopee.vn/",
        f"curl.exe 'https://shopee.vn/' -H'Cookie: {HEADER}'",
        "curl https://shopee.vn/ -b " + json.dumps(HEADER),
        f"$ curl https://shopee.vn/ -b $'{HEADER}'",
        f"  -H 'cookie: {HEADER}' \\\n",
        f"-b '{HEADER}'",
        f"`curl -b '{HEADER}' https://shopee.vn/`",
        f"curl -b '{HEADER}' https://shopee.vn/ ;\ncurl -b '{HEADER}' https://shopee.vn/x",
        f"curl -b '' -b '{HEADER}' https://shopee.vn/",
        "curl https://shopee.vn/ -b '" + HEADER.replace("; ", "' -b '") + "'",
    ],
)
def test_curl_command_gives_its_cookie(text: str) -> None:
    assert read(text) == HEADER


@pytest.mark.parametrize(
    ("quoted", "value"),
    [
        (r"$'SPC_EC=a\u0021b\'c\\d'", r"a!b'c\d"),
        (r"$'SPC_EC=\x41\102\u43\U00000044'", "ABCD"),
        (r"$'SPC_EC=\u00e9'", "\u00e9"),
        (r"$'SPC_EC=a\zb'", r"a\zb"),
        (r"'SPC_EC=a'\''b'", "a'b"),
        (r'"SPC_EC=a\"b\$c\\d\e"', r'a"b$c\d\e'),
        (r"SPC_EC=a\;b", "a"),
        (r'$"SPC_EC=a"', "a"),
        ("'SPC_EC=a^\"b'", 'a^"b'),
    ],
)
def test_bash_quoting_is_undone(quoted: str, value: str) -> None:
    cookie = parse_cookie(read(f"curl https://shopee.vn/ -b {quoted}"))
    assert cookie.get("SPC_EC") == value


@pytest.mark.parametrize(
    ("argument", "value"),
    [
        (r"^\^" + r'"a^\^"', '"a"'),
        ("a^%^20b", "a%20b"),
        (r"a^\^\b", r"a\b"),
        ("a^^b^&c^|d^!e", "a^b&c|d!e"),
    ],
)
def test_cmd_quoting_is_undone(argument: str, value: str) -> None:
    cookie = parse_cookie(read(f'curl ^"https://shopee.vn/^" ^\r\n -b ^"SPC_EC={argument}^"'))
    assert cookie.get("SPC_EC") == value


def test_cmd_quoting_of_older_browsers_is_undone() -> None:
    text = 'curl "https://shopee.vn/" ^\r\n  -H "cookie: SPC_EC=""a"%"20""; SPC_U=1" ^\r\n  -k'
    assert read(text) == 'SPC_EC="a%20"; SPC_U=1'


# What is refused, as a curl command or in every form

HTML = "cookie: this is HTML (a web page), not a cookie; send "


@pytest.mark.parametrize(
    ("text", "error"),
    [
        (f"curl https://shopee.vn/?{SECRET}", "this curl command sends no cookie; send "),
        (f"curl https://shopee.vn/ -H 'accept: {SECRET}'", "this curl command sends no cookie; "),
        ("curl https://shopee.vn/ -b", "this curl command sends no cookie; "),
        (f"curl -b {SECRET}.txt https://shopee.vn/", "reads its cookies from a file (-b FILE)"),
        (f"curl -b '{SECRET}' https://shopee.vn/", "reads its cookies from a file (-b FILE)"),
        ('curl ^"https://shopee.vn/^" -b ^"cookies.txt^"', "reads its cookies from a file"),
        (f"curl https://shopee.vn/ -b 'SPC_EC={SECRET}", "is cut off, a quote in it does not end"),
        (f'curl ^"https://x^" -b ^"SPC_EC={SECRET}', "is cut off, a quote in it does not end"),
        (
            f"curl https://shopee.vn/ -b 'SPC_EC={SECRET}' ;\ncurl https://x.test/ -b 'a=b'",
            "several curl commands with different cookies; send one of them, a request to "
            "affiliate.shopee.vn",
        ),
        (f"curl https://shopee.vn/ -b $'SPC_EC={SECRET}\\nx'", "holds a control character"),
        (f"curl https://shopee.vn/ -b $'SPC_EC={SECRET}\\ud83d'", "the character U+FFFD"),
        (f"<!DOCTYPE html><html><body>SPC_EC={SECRET};</body></html>", HTML),
        (f"\ufeff\n<html lang='vi'>\n{SECRET}", HTML),
        (f"'<script>a=b; SPC_EC={SECRET}</script>'", HTML),
        (f"<?xml version='1.0'?>{SECRET}", HTML),
        *(
            (text, "cookie: holds no name=value pair")
            for text in ("", " \u200b\n", '""', "Cookie:", "SPC_EC", "''''''")
        ),
    ],
)
def test_text_without_a_usable_cookie_is_refused(text: str, error: str) -> None:
    assert error in refusal(text)


# JSON


def test_json_of_each_kind_of_extension_is_read() -> None:
    edit_this_cookie = {
        "hostOnly": False,
        "httpOnly": True,
        "path": "/",
        "sameSite": "no_restriction",
        "secure": True,
        "session": False,
        "storeId": "0",
        "expirationDate": LATER + 0.123,
        "id": 1,
    }
    cookie_editor = {"sameSite": None, "session": True, "storeId": None, "hostOnly": True}
    playwright = {"path": "/", "expires": -1, "httpOnly": True, "secure": True, "sameSite": "Lax"}
    forms = [
        [each | edit_this_cookie for each in LOGIN],
        [each | cookie_editor for each in LOGIN],
        {"cookies": [each | playwright for each in LOGIN], "origins": []},
        {"url": "https://affiliate.shopee.vn", "cookies": LOGIN},
        [each | {"expiry": int(LATER)} for each in LOGIN],
        [entry("SPC_EC", "x", ".SHOPEE.VN"), entry("SPC_ST", "y", "https://shopee.vn/")],
        [{key.title(): value for key, value in each.items()} for each in LOGIN],
    ]
    texts = [json.dumps(form) for form in forms]
    texts += [json.dumps(LOGIN, indent=4), f"\ufeff{texts[0]}\r\n", f"'{texts[0]}'"]
    texts += [json.dumps(texts[0])]
    assert [read(text) for text in texts] == ["SPC_EC=x; SPC_ST=y"] * len(texts)


@pytest.mark.parametrize(
    "domain",
    [
        *("bank.example", "vn", ".com.vn", "shopee.co.th", "http://[", "sh\u00f6pee.vn"),
        *("evil-shopee.vn", ".evil-shopee.vn", "xshopee.vn", "shopee.vn.evil.com"),
        *("shopee.vn:evil.com", "https://evil.com/shopee.vn", "https://shopee.vn@evil.com/"),
    ],
)
def test_cookie_of_another_domain_is_not_taken(domain: str) -> None:
    foreign = [entry("SPC_EC", SECRET, domain), entry("session", SECRET, domain)]
    assert read(export(*foreign, *LOGIN)) == "SPC_EC=x; SPC_ST=y"
    assert "the export holds no unexpired cookie of" in refusal(export(*foreign))


@pytest.mark.parametrize("key", ["host", "Host_Key", "url", "Domain"])
def test_domain_under_another_key_counts(key: str) -> None:
    foreign = {"name": "SPC_ST", "value": SECRET, key: "https://bank.example/"}
    assert read(export(entry("SPC_EC", "x"), foreign)) == "SPC_EC=x"


def test_cookie_without_domain_is_taken_where_no_domain_is_foreign() -> None:
    bare = {"name": "SPC_EC", "value": "x", "domain": None}
    assert read(export({"name": "SPC_EC", "value": "x"})) == "SPC_EC=x"
    assert read(export(bare, entry("SPC_ST", "y"))) == "SPC_EC=x; SPC_ST=y"
    bank = entry("session", "s", "bank.example")
    assert read(export(bare, entry("SPC_ST", "y"), bank)) == "SPC_ST=y"


def test_csrftoken_of_the_shop_comes_before_one_of_a_host_below_it() -> None:
    tokens = [entry("csrftoken", "below", "banhang.shopee.vn"), entry("csrftoken", "shop")]
    for order in (tokens, tokens[::-1]):
        assert parse_cookie(read(export(*LOGIN, *order))).get("csrftoken") == "shop"


@pytest.mark.parametrize(
    "expired",
    [
        *({"expires": NOW}, {"expires": (NOW - 1) * 1000}, {"expires": str(NOW - 1)}),
        *({"expirationDate": NOW - 0.5}, {"expiry": int(NOW) - 1}),
        {"expires": "2026-12-31T23:59:59Z"},
        {"expires": "2026-12-31T23:59:59.000"},
        {"expirationDate": NOW - 1, "session": False},
    ],
)
def test_expired_cookie_is_not_taken(expired: Entry) -> None:
    old = entry("SPC_EC", "old", "affiliate.shopee.vn", **expired)
    assert read(export(old, entry("SPC_EC", "new"))) == "SPC_EC=new"
    told = refusal(export(entry("SPC_EC", SECRET, **expired)))
    assert "no unexpired cookie of affiliate.shopee.vn or shopee.vn; it has cookies of" in told


NEVER: list[object] = [-1, 0, "Session", "", [], 10**400]


@pytest.mark.parametrize(
    "lasting",
    [
        {},
        {"expirationDate": NOW + 0.5},
        {"expirationDate": None},
        {"expirationDate": NOW - 1, "session": True},
        *({"expires": never} for never in NEVER),
        *({"expires": "2027-06-01T00:00:00+07:00"}, {"expires": (NOW + 1) * 1000}),
    ],
)
def test_unexpired_cookie_is_taken(lasting: Entry) -> None:
    assert read(export(entry("SPC_EC", "x", **lasting))) == "SPC_EC=x"


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("{}", "this JSON is no cookie export"),
        ("[]", "this JSON is no cookie export"),
        ('{"cookies": {}}', "this JSON is no cookie export"),
        (f'{{"SPC_EC": "{SECRET}", "SPC_ST": "y"}}', "this JSON is no cookie export"),
        (f'[{{"name": "SPC_EC", "value": 1}}, "{SECRET}"]', "this JSON is no cookie export"),
        (f'[{{"name": "SPC_EC", "value": "{SECRET}"', "begins like JSON and is none"),
        ("[" * 100_000, "begins like JSON and is none"),
        ("[1e", "begins like JSON and is none"),
    ],
)
def test_json_that_is_no_export_is_refused(text: str, error: str) -> None:
    told = refusal(text)
    assert error in told
    assert "; send the value of the Cookie header that the browser sends to affiliate." in told


def test_refused_export_names_the_domains_in_it_and_nothing_else() -> None:
    found = [entry(f"n{n}", SECRET, f".d{n:02}.example") for n in range(12)]
    told = refusal(export(*found, entry("x", SECRET, f"not a domain: {SECRET}")))
    assert "(an unreadable domain), d00.example, d01.example" in told
    assert "d08.example and 3 more; log in to affiliate.shopee.vn and export" in told
    assert "it has no cookie with a domain" in refusal(
        export({"name": "SPC_EC", "value": SECRET, "expires": 1})
    )


# cookies.txt

TXT = "\n".join(
    [
        "# Netscape HTTP Cookie File",
        "# https://curl.se/docs/http-cookies.html",
        "",
        f"#HttpOnly_.shopee.vn\tTRUE\t/\tTRUE\t{LATER:.0f}\tSPC_EC\tx",
        "#HttpOnly_shopee.vn\tFALSE\t/\tTRUE\t0\tSPC_ST\ta b",
        ".shopee.vn\tTRUE\t/\tFALSE\t1\tSPC_U\told",
        f".bank.example\tTRUE\t/\tTRUE\t{LATER:.0f}\tsession\t{SECRET}",
        f"affiliate.shopee.vn\tFALSE\t/\tTRUE\t{LATER}\tcsrftoken\tt",
        f".shopee.vn\tTRUE\t/\tTRUE\t{LATER:.0f}\tempty\t",
    ]
)
OF_TXT = "SPC_EC=x; SPC_ST=a b; csrftoken=t; empty="


@pytest.mark.parametrize(
    "text",
    [
        TXT,
        TXT.replace("\n", "\r\n") + "\r\n",
        TXT.replace("\t", "    "),
        TXT.partition("\n\n")[2],
        TXT.replace("TRUE", "true"),
        TXT.replace("#HttpOnly_", ""),
        f"\ufeff{TXT}\n\n# the end\n",
    ],
)
def test_cookies_txt_gives_the_markets_unexpired_cookies(text: str) -> None:
    assert read(text) == OF_TXT


def test_cookies_txt_with_a_broken_line_is_refused_by_its_number() -> None:
    told = refusal(f"{TXT}\n.shopee.vn\tTRUE\t/\tTRUE\t{SECRET}")
    assert told.startswith("cookie: line 10 of this cookies.txt does not have its seven fields; ")


# A session, and characters of headers


@pytest.mark.parametrize("value", ["", "-", '""', '"-"', " - "])
def test_cookie_without_a_session_is_refused(value: str) -> None:
    told = "cookie: neither SPC_EC nor SPC_ST has a value in it, "
    assert refusal(f"SPC_U=1; SPC_EC={value}; SPC_ST={value}; x=y").startswith(told)
    assert refusal(f"SPC_U=1; SPC_EC={value}; SPC_EC={SECRET}").startswith(told)
    assert refusal(f"curl https://shopee.vn/ -b 'SPC_EC={value}; a={SECRET}'").startswith(told)
    assert refusal(export(entry("SPC_EC", value), entry("a", SECRET))).startswith(told)


@pytest.mark.parametrize("char", ["\u2026", "\u200b", "\ufffd", "\u0100", "\U0001f600"])
def test_character_that_no_header_carries_is_refused_by_its_number(char: str) -> None:
    told = f"cookie: pair 2 has the character U+{ord(char):04X}, which no HTTP header can carry; "
    assert refusal(f"SPC_EC=x; a={SECRET}{char}b").startswith(told)
    assert refusal(f"SPC_EC=x; a{char}b={SECRET}").startswith(told)
    assert refusal(export(entry("SPC_EC", "x"), entry("a", f"{SECRET}{char}"))).startswith(told)
    assert "pair 1 has the character U+FFFD" in refusal(r'[{"name": "SPC_EC", "value": "\ud83d"}]')


def test_every_character_of_latin_1_but_controls_is_taken() -> None:
    text = "SPC_EC=" + "".join(chr(code) for code in range(0xA1, 0x100))
    assert read(text) == text
