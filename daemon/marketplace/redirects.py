"""Where a call of the page is redirected to: a login, a human check, or something else.

A page cannot read that, and a call's answer is its redirect. But the browser tells of each request
that the page makes on the way, and which of the two it is makes all the difference for the account.
"""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager

import trio

from daemon.marketplace.portal_page import Answer, PageResponse, PortalPage
from daemon.marketplace.session import PARTS_OF_SIGNS, Sign, sign_of_url

LEADS_ON_WITHIN = 2.0
"""Seconds for a login's page to come, or to lead on."""

_REDIRECTS = range(300, 400)


def detours_of(
    page: PortalPage,
) -> AbstractAsyncContextManager[trio.MemoryReceiveChannel[PageResponse]]:
    """What the page asks for on its way to a login or a human check, and some that is neither.

    A request that is never sent, since a page may not read what it leads to, is among them.
    """
    return page.responses(*PARTS_OF_SIGNS, method="GET")


async def seen_through(
    response: PageResponse, detours: trio.MemoryReceiveChannel[PageResponse]
) -> PageResponse:
    """`response`; if it is a redirect, with the URL that it leads to in the place of its own.

    A check counts as soon as the way leads to it, however long its page takes. A login counts when
    its page is there or takes its time: the way may go on to the check, which a login does not end.
    """
    if response.status not in _REDIRECTS or sign_of_url(response.url):
        return response
    hop, login = response, ""
    with trio.move_on_after(LEADS_ON_WITHIN):
        while True:
            signs = {sign_of_url(url): url for url in (hop.url, hop.leads_to)}
            if check := signs.get(Sign.HUMAN_CHECK):
                return _led_to(check, response)
            login = signs.get(Sign.LOST, login)
            if Sign.LOST in signs and hop.status not in _REDIRECTS:
                break
            hop = await detours.receive()
    return _led_to(login, response) if login else response


def _led_to(url: str, redirect: PageResponse) -> PageResponse:
    return Answer(redirect.status, url, redirect.mime_type, redirect.body)
