"""Where a page says that it leads."""

from __future__ import annotations

from time import process_time

import pytest

from smartlinkd.marketplace.short_pages import read_short_page, refresh_target
from smartlinkd.marketplace.shortlinks import MAX_BODY

URL = "https://shopee.vn/universal-link/product/88201679/23456789012?a=1&b=2"


@pytest.mark.parametrize(
    "value",
    [
        f"0; url={URL}",
        f"0;url={URL}",
        f"0;URL='{URL}'",
        f'3 , url = "{URL}"',
        f'0; url="{URL}',
        f"0.5;url={URL}",
        f".5;url={URL} ",
        f" 0 url={URL}",
        f"5, {URL}",
        f"5; '{URL}'",
        f"5 {URL}",
        f"url={URL}",
    ],
)
def test_refresh_target_of_each_form_is_the_address(value: str) -> None:
    assert refresh_target(value) == URL


@pytest.mark.parametrize(
    "value", ["", "5", "5;", "5; ", "5; url=", "5; url=''", "url=", "x", f"5x; url={URL}", URL]
)
def test_refresh_target_without_an_address_is_none(value: str) -> None:
    assert refresh_target(value) is None


ESCAPED = URL.replace("&", "&amp;")


@pytest.mark.parametrize(
    "html",
    [
        f'<meta http-equiv="refresh" content="0;url={ESCAPED}">',
        f"<META HTTP-EQUIV=Refresh CONTENT='0; URL={ESCAPED}'>",
        f'<meta content="3 , url = &quot;{ESCAPED}&quot;" http-equiv="refresh"/>',
        f'<meta http-equiv=refresh content="0;url={ESCAPED}"' + " x" * 50 + "><p",
        f'<noscript><meta http-equiv="refresh" content="0;url={ESCAPED}"></noscript>',
        f'<script>window.location.href = "{URL}";</script>',
        f"<script>location='{URL}'</script>",
        f"<script>location = `{URL}`</script>",
        f'<script>top.location.replace( "{URL}" )</script>',
        f'<script type="text/javascript">document.location.assign("{URL}")</script>',
        f'<script>location.href="{URL}"</script>'.replace("/u", "\\/u"),
        f'<script>location="{URL}"</script>'.replace("//", "\\u002f\\x2f"),
        f"<script>setTimeout(\"location.href='{URL}'\", 10)</script>",
        "<!doctype html><body>" + "<p>" * 5000 + f'<script>location="{URL}"</script>',
    ],
)
def test_page_that_goes_to_an_address_says_it(html: str) -> None:
    assert read_short_page(html).goes_to == (URL,)


@pytest.mark.parametrize(
    "script",
    [
        'var u = "{}"; location.href = u;',
        "let u='{}';location=u",
        "const u = `{}`\nwindow.location.replace(u)",
        'var a = 1, u = "{}"; location.assign(u)',
        'window.u = "{}"; location.href = window.u;',
        'window.u = "{}"; location = u',
        'var u; u = "{}"; self.location.href=u // go',
        'var u = ""; u = "{}"; location = u',
        'var u = "/other"; u = "{}"; location = u',
        'var u = "{}"; location = u; u = "/other"',
        'function go() {{ location.replace(u) }} var u = "{}"; go()',
        'var $next_1 = "{}"; if (u == "/x") top.location = $next_1',
        'var u = "{}"</script><p><script>location = u',
        'var u = "/x", url = "{}"; setTimeout(function(){{location.href=url}}, 1)',
    ],
)
def test_script_that_goes_to_a_variable_goes_to_its_literal(script: str) -> None:
    html = f"<script>{script.format(URL)}</script>"
    assert read_short_page(html).goes_to == (URL,)


@pytest.mark.parametrize(
    "script",
    [
        'if (location == "{}") go()',
        'if (location.href === "{}") go()',
        'mylocation = "{}"',
        "location = target",
        "location = target()",
        'var u = "{}"',
        "var u = find(); location = u",
        'var u = "{}"; u = find(u); location = u',
        'var u = "{}"; u += "7"; location = u',
        'var u = "{}" + id; location = u',
        'var u = "{}".replace("7", "8"); location = u',
        'var u = "{}"; location = u + "7"',
        'var u = "{}"; location = u.trim()',
        'var u = "{}"; location = u ? "/a" : "/b"',
        'other.u = "{}"; location = u',
        'if (u == "{}") location = u',
        'if (u >= "{}") location = u',
        'location = "{}" + id',
        "location = `{}${{id}}`",
        "go(location)",
    ],
)
def test_script_that_is_not_understood_goes_nowhere(script: str) -> None:
    html = f"<script>{script.format(URL)}</script>"
    assert read_short_page(html).goes_to == ()


@pytest.mark.parametrize(
    "html",
    [
        f'<a href="{ESCAPED}">go</a>',
        f'<p>location="{URL}"</p>',
        f'<script>go()</script><p>location = "{URL}"</p>',
        f'<!-- <meta http-equiv="refresh" content="0;url={ESCAPED}"> -->',
        f'<meta name="refresh" content="0;url={ESCAPED}">',
        '<meta http-equiv="refresh" content="5">',
        f'<link rel="alternate" href="{ESCAPED}">',
        f'<link rel="not-canonical" href="{ESCAPED}">',
        '<link rel="canonical">',
        f'<meta property="og:image" content="{ESCAPED}">',
        '<meta property="og:url">',
    ],
)
def test_page_without_an_address_of_its_own_says_nothing(html: str) -> None:
    page = read_short_page(html)
    assert (page.goes_to, page.is_about) == ((), ())


@pytest.mark.parametrize(
    "html",
    [
        f'<link rel="canonical" href="{ESCAPED}">',
        f"<LINK HREF=' {ESCAPED} ' REL=Canonical />",
        f'<link rel="nofollow\nCANONICAL" data-x href={ESCAPED}>',
        f'<meta property="og:url" content="{ESCAPED}">',
        f'<meta content="{ESCAPED}" property="og:url"/>',
        f'<meta name="OG:URL" content="{ESCAPED}">',
        f'<meta name="x" property=" og:url " content="{ESCAPED}">',
        f'<meta property="og:url" content="{ESCAPED}" content="/second">',
    ],
)
def test_page_that_is_about_an_address_says_it(html: str) -> None:
    page = read_short_page(html)
    assert (page.goes_to, page.is_about) == ((), (URL,))


@pytest.mark.parametrize(
    ("html", "asks"),
    [
        ("<input type=password>", True),
        ('<form><label><INPUT name=x TYPE=" Password "></label></form>', True),
        ("<input type=text name=password>", False),
        ("<!-- <input type=password> -->", False),
        ("<script>f('<input type=password>')</script>", False),
    ],
)
def test_page_with_a_password_field_asks_for_it(html: str, asks: bool) -> None:
    assert read_short_page(html).asks_for_password is asks


# A parser of Python 3.11 raises at each of these, later ones at some.
@pytest.mark.parametrize("bad", ["<![foo[x]]>", "<![ 1", f"&#{'9' * 5000};"])
def test_page_that_the_parser_gives_up_on_counts_as_far_as_it_was_read(bad: str) -> None:
    assert read_short_page(f"<script>location='{URL}'</script>{bad}").goes_to == (URL,)


def test_page_with_many_addresses_gives_the_first_eight() -> None:
    scripts = "".join(f"<script>location='/{n}'</script>" for n in range(1000))
    links = "".join(f"<link rel=canonical href=/{n}>" for n in range(1000))
    page = read_short_page(scripts + links)
    assert page.goes_to == page.is_about == tuple(f"/{n}" for n in range(8))


@pytest.mark.parametrize(
    "html",
    [
        "<script>" + "location=" * 30_000,
        "<script>" + 'location="' * 26_000,
        "<script>" + "location='`\"" * 26_000,
        "<script>location" + " " * 250_000 + "=",
        "<script>location=" + "u" * 250_000,
        "<script>" + "location=u " * 26_000,
        "<script>" + "location=u;u=" * 26_000,
        "<script>" + "a=" * 60_000,
        "<script>" + "window." * 60_000,
        "<script>" + "a " * 60_000,
        "<script>" + "u" * 250_000 + "=",
        "<script>" + "u='" * 60_000,
        "<script>" + "</" * 60_000,
        "<script>u=`" + "\n" * 250_000,
        "<meta " * 40_000,
        "<link rel=canonical " + "a=b " * 40_000 + ">",
        "<link rel='" + "canonical " * 40_000 + "'>",
        "<" * MAX_BODY,
        "<script>" * 32_000,
        "<script></script>" * 32_000,
        '<meta http-equiv=refresh content="' + "0" * 250_000 + '">',
        '<meta http-equiv=refresh content="0;' + " " * 250_000 + 'url">',
        '<meta http-equiv=refresh content="' + " " * 250_000 + '">',
        '<meta http-equiv=refresh content="0' + " " * 250_000 + '">',
        '<meta http-equiv=refresh content="url' + " " * 250_000 + '">',
        '<meta http-equiv=refresh content="url=' + " " * 250_000 + '">',
    ],
)
def test_hostile_page_is_read_in_a_short_time(html: str) -> None:
    start = process_time()
    read_short_page(html[:MAX_BODY])
    refresh_target(html.partition('content="')[2][:MAX_BODY])
    assert process_time() - start < 2
