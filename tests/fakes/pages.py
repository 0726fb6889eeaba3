"""The scripts of the portal's pages in a fake tab.

The portal's own scripts do the same in `sandbox/pages`. The daemon's two for them are here, too.
"""

from __future__ import annotations

import html
import json
import re
from typing import Any
from urllib.parse import urlsplit

import trio

from smartlinkd.marketplace import page_state, portal
from tests.fakes.network import NetError
from tests.fakes.tab import Document, Tab, script

MOUNT = 0.06  # seconds
SOON = 0.05  # seconds
LEAVES_AFTER = 0.4  # seconds
PROGRAM = {"content-type": "application/json; charset=UTF-8", "affiliate-program-type": "1"}
RISK_CONTROL = 90309999


def fact(document: Document, name: str) -> str:
    """Return the value of the body's attribute `data-NAME`, or ""."""
    found = re.search(rf'data-{name}="([^"]*)"', document.html)
    return html.unescape(found[1]) if found else ""


def open_page(tab: Tab) -> None:
    """Run the document's own scripts."""
    document = tab.document

    async def play() -> None:
        match fact(document, "behaviour"):
            case "alert":
                await tab.alert()
            case "hang":
                tab.spin()
                return
            case "login_script":
                await trio.sleep(SOON)
                tab.set_location(fact(document, "login"))
                return
            case "login_in_place":
                await trio.sleep(SOON)
                document.password = True
                return
        await trio.sleep(MOUNT)
        if fact(document, "behaviour") != "without_form":
            document.form = "disabled" if fact(document, "behaviour") == "frozen" else "ready"

    if "/static/custom_link.js" in document.html:
        tab.run(play)


@script(page_state.FORM_SCRIPT)
async def links_form(tab: Tab, arguments: list[Any]) -> Any:
    """Do what `smartlinkd/marketplace/links_form.js` does."""
    task, links, sub_ids, _ = arguments
    document = tab.document
    await trio.lowlevel.checkpoint()
    if task == "look":
        return {
            "url": document.url,
            "status": document.status,
            "password": document.password,
            "form": document.form,
            "json": "",
        }
    if document.form != "ready":
        no_form = "it has no text area for the links"
        return {
            "pressed": False,
            "why": "disabled" if document.form == "disabled" else no_form,
            "hint": "",
        }
    if fact(document, "behaviour") == "hang_on_submit":
        tab.spin()
        await trio.sleep_forever()
    tab.run(lambda: _submit(tab, links, sub_ids))
    return {"pressed": True}


async def _submit(tab: Tab, links: list[str], sub_ids: list[str]) -> None:
    """Do what the page does when its button is pressed."""
    places = {f"subId{n}": value for n, value in enumerate([*sub_ids, *[""] * 5][:5], start=1)}
    body = {
        "operationName": "batchGetCustomLink",
        "query": portal.LINKS_QUERY,
        "variables": {
            "linkParams": [{"originalLink": link, "advancedLinkParams": places} for link in links],
            "sourceCaller": "CUSTOM_LINK_CALLER",
        },
    }
    try:
        exchange = await tab.request(
            "POST",
            f"{_origin(tab)}/api/v3/gql?q=batchCustomLink",
            headers={**PROGRAM, "csrf-token": tab.cookies.get("csrftoken", "")},
            body=json.dumps(body).encode(),
        )
        answer = json.loads(await exchange.read())
    except (NetError, ValueError):
        return  # a real page shows its user an error
    await _leave_if_refused(tab, exchange.status, answer)


async def _leave_if_refused(tab: Tab, status: int, answer: Any) -> None:
    if not isinstance(answer, dict):
        return
    logged_in = answer.get("is_login", answer.get("2"))
    lost = status == 401 or logged_in is False
    if lost or answer.get("error", answer.get("5")) == RISK_CONTROL:
        await trio.sleep(LEAVES_AFTER)
        tab.set_location(fact(tab.document, "login" if lost else "check"))


@script(portal.CALL_SCRIPT)
async def portal_call(tab: Tab, arguments: list[Any]) -> Any:
    """Do what `smartlinkd/marketplace/portal_call.js` does."""
    method, url, body, milliseconds, longest, sign_paths = arguments
    path = urlsplit(tab.document.url).path
    if any(path == root or path.startswith(f"{root}/") for root in sign_paths):
        return {"status": 302, "url": tab.document.url, "mimeType": "", "body": ""}
    headers = {"accept": "application/json", "affiliate-program-type": "1"}
    if body is not None:
        headers |= {**PROGRAM, "csrf-token": tab.cookies.get("csrftoken", "")}
    with trio.move_on_after(milliseconds / 1000):
        try:
            exchange = await tab.request(
                method, url, headers=headers, body=(body or "").encode(), manual=True
            )
            if exchange.status in range(300, 400):
                return {"status": 302, "url": url, "mimeType": "", "body": ""}
            text = (await exchange.read()).decode()
        except NetError:
            return {"failed": "TypeError"}
        return {
            "status": exchange.status,
            "url": exchange.url,
            "mimeType": exchange.response_headers.get("content-type", ""),
            "body": text[:longest],
        }
    return {"failed": "TimeoutError"}


def _origin(tab: Tab) -> str:
    return "/".join(tab.document.url.split("/")[:3])
