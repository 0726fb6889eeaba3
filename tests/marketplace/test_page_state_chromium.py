"""FORM_SCRIPT in a real Chromium, on forms as the portal might build them."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

import pytest

from smartlinkd.browser.page import Page
from smartlinkd.marketplace import page_state

pytestmark = pytest.mark.chromium

LINKS = ["https://shop.example/product/1/2", "https://shop.example/product/3/4"]

# What a button does in all of these pages: it notes what the form holds.
NOTE = """<script>
window.noted = [];
const note = (event) => {
  event.preventDefault();
  noted.push([...document.querySelectorAll("[data-mine]")].map((it) => it.value));
};
</script>"""
FIELDS = {
    "by id": '<input data-mine id="customLink_sub_id{n}">',
    "by an id in other letters": '<input data-mine id="Custom_Link_Sub_ID{n}">',
    "by placeholder": '<input data-mine placeholder="Sub_id {n}">',
    "by label": '<label for="f{n}">Sub_id{n}: (?)</label><input data-mine id="f{n}">',
    "by label around": "<label>sub id {n}<input data-mine></label>",
    "by aria-label": '<input data-mine aria-label="Sub-ID{n}">',
}
AREA = '<div id="customLink_original_url"><textarea data-mine></textarea></div>'
BUTTON = '<button type="submit" onclick="note(event)"><span>Get</span></button>'


def subs(kind: str = "by id", numbers: str = "12345") -> str:
    return "".join(FIELDS[kind].replace("{n}", n) for n in numbers)


async def show(page: Page, html: str) -> None:
    await page.goto("data:text/html;charset=utf-8," + quote(f"<!doctype html>{NOTE}{html}"))


async def submit(page: Page, *sub_ids: str, links: list[str] = LINKS, wait: float = 1000) -> Any:
    return await page.evaluate(page_state.FORM_SCRIPT, "submit", list(links), list(sub_ids), wait)


async def noted(page: Page) -> Any:
    return await page.evaluate("() => noted")


OVERLAY = (
    '<div role="dialog"><textarea>old results</textarea><input id="getLinkModal_sub_id1">'
    '<button type="submit" class="ant-btn-primary" onclick="alert()">No</button>'
    '<button class="ant-modal-close" onclick="this.parentElement.remove()">x</button></div>'
)
WIPE = """<script>
document.querySelector("[role=dialog] .ant-modal-close").addEventListener("click", () =>
  setTimeout(() => document.querySelectorAll("[data-mine]").forEach((it) => { it.value = ""; }), 60)
);
</script>"""
LATE_BUTTON = """<script>
document.querySelector("textarea").addEventListener("input", () =>
  setTimeout(() => { document.querySelector("button[type=submit]").disabled = false; }, 150));
</script>"""

DULL_BUTTON = BUTTON.replace("<button", "<button disabled")
DRAWN_ANEW = """<script>
const form = document.querySelector("form");
form.addEventListener("input", () => setTimeout(() => { form.outerHTML = form.outerHTML; }),
  { once: true });
</script>"""
ANOTHER_BUTTON = """<script>
document.querySelector("textarea").addEventListener("input", () => setTimeout(() => {
  const [first, second] = document.querySelectorAll("button");
  [first.hidden, second.hidden] = [true, false];
}));
</script>"""

FORMS = {kind: f"<form>{AREA}{subs(kind)}{BUTTON}</form>" for kind in FIELDS} | {
    "no form element": (
        f"<div><div>{AREA}</div><div>{subs()}</div>"
        '<div><button class="ant-btn-primary" onclick="note(event)">Get</button></div></div>'
    ),
    "a plain button": f"<form>{AREA}{subs()}<button onclick='note(event)'>Get</button></form>",
    "fields by their names": (
        f"<form>{AREA}"
        + "".join(f'<input name="Sub_id{n}" data-mine>' for n in range(1, 6))
        + "<button type=reset>Clear</button><button onclick='note(event)'>Get</button></form>"
    ),
    "fields by the text before them": (
        f"<form>{AREA}<table>"
        + "".join(f"<tr><td>Sub_id {n}<td><input data-mine>" for n in range(1, 6))
        + f"</table>{BUTTON}</form>"
    ),
    "an action that is no button": (
        "<form action=/search><input name=q><button>Search</button></form>"
        f"<div>{AREA}{subs()}<div role=button onclick='note(event)'>Get</div></div>"
    ),
    "a hidden form first": (
        "<div style='display:none'><textarea></textarea><button>Send</button></div>"
        f"<form>{AREA}{subs()}{BUTTON}</form>"
    ),
    "another text area first": f"<textarea>chat</textarea><form>{AREA}{subs()}{BUTTON}</form>",
    "an overlay with fields of its own": f"{OVERLAY}<form>{AREA}{subs()}{BUTTON}</form>",
    "an overlay that cannot be closed": (
        f"<div role=dialog><textarea></textarea></div><form>{AREA}{subs()}{BUTTON}</form>"
    ),
    "a form that is wiped when the overlay goes": (
        f"{OVERLAY}<form>{AREA}{subs()}{BUTTON}</form>{WIPE}"
    ),
    "a button that comes to life late": (f"<form>{AREA}{subs()}{DULL_BUTTON}</form>{LATE_BUTTON}"),
    "a form that is drawn anew": f"<form>{AREA}{subs()}{BUTTON}</form>{DRAWN_ANEW}",
    "another button once it is filled in": (
        f"<form>{AREA}{subs()}<button type=submit onclick='event.preventDefault()'>Wait</button>"
        f"{BUTTON.replace('<button', '<button hidden')}</form>{ANOTHER_BUTTON}"
    ),
    "old values": (
        f"<form>{AREA}{subs()}{BUTTON}</form><script>"
        'document.querySelectorAll("[data-mine]").forEach((it) => { it.value = "old"; })</script>'
    ),
}


async def test_form_of_any_shape_is_found_and_filled_in(page: Page) -> None:
    expected = [["\n".join(LINKS), "a", "", "c", "", ""]]
    found = {}
    for shape, html in FORMS.items():
        await show(page, html)
        pressed = await submit(page, "a", "", "c")
        found[shape] = (pressed, await noted(page))
    assert found == dict.fromkeys(FORMS, ({"pressed": True}, expected))


REFUSED = {
    "it has no text area for the links": f"<form>{subs()}{BUTTON}</form>",
    "it has no button": f"<form>{AREA}{subs()}</form>",
    "it has no field for sub-id 3": f"<form>{AREA}{subs(numbers='12')}{BUTTON}</form>",
    "disabled": f"<form><fieldset disabled>{AREA}{subs()}{BUTTON}</fieldset></form>",
    "its button stays disabled": (
        f"<form>{AREA}{subs()}<p role=alert> Too many. </p>{DULL_BUTTON}</form>"
    ),
}


async def test_form_that_cannot_be_used_is_not_pressed(page: Page) -> None:
    found = {}
    for html in REFUSED.values():
        await show(page, html)
        refused = await submit(page, "a", "", "c", wait=200)
        assert refused["pressed"] is False
        found[refused["why"]] = html
        if refused["why"] == "its button stays disabled":
            assert refused["hint"] == "Too many."
        assert await noted(page) == []
    assert found == REFUSED


async def test_form_without_a_field_that_is_not_needed_is_submitted(page: Page) -> None:
    await show(page, f"<form>{AREA}{BUTTON}</form>")
    assert await submit(page) == {"pressed": True}
    assert await submit(page, "", "") == {"pressed": True}
    assert await noted(page) == [["\n".join(LINKS)]] * 2


async def test_markup_in_links_and_sub_ids_stays_text(page: Page) -> None:
    odd = '"); alert(1); ("</textarea>\\u0041${1}`'
    await show(page, f"<form>{AREA}{subs()}{BUTTON}</form>")
    assert await submit(page, odd, links=[odd]) == {"pressed": True}
    assert (await noted(page))[0][:2] == [odd, odd]


LOOKS = {
    f"<form>{AREA}{subs()}{BUTTON}</form>": ("ready", False),
    f"<form>{AREA}{subs()}{DULL_BUTTON}</form>": ("ready", False),
    f"<form><fieldset disabled>{AREA}{BUTTON}</fieldset></form>": ("disabled", False),
    f"<form>{AREA.replace('data-mine', 'readonly')}{BUTTON}</form>": ("disabled", False),
    f"<form>{AREA}</form>": ("disabled", False),
    OVERLAY: ("none", False),
    "<form><input name=loginKey><input type=password></form>": ("none", True),
    "": ("none", False),
}


async def test_form_state_of_each_page_is_read(page: Page) -> None:
    found = {}
    for html in LOOKS:
        await show(page, html)
        seen: Any = await page.evaluate(page_state.FORM_SCRIPT, "look", [], [], 0)
        found[html] = (seen["form"], seen["password"])
    assert found == LOOKS
