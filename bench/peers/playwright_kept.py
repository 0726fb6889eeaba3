"""Links by a Playwright script that keeps its page open, as a good script does.

The custom link page is opened once. For each submit the script fills what changes, as Playwright's
documentation recommends (locators, `fill`, `click`, `expect_response`), and reads the response. The
portal's results cover the form and intercept clicks; the script waits for them after the answer,
not before. With `fetch` the page's call is made in one `evaluate`. No code is shared with the
daemon.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, Literal

from playwright.async_api import BrowserContext, Page, Response

Method = Literal["form", "fetch"]
Row = dict[str, Any]

CHUNK = 5
"""The most links that the portal's form takes at once."""

QUERY = """\
query batchGetCustomLink($linkParams: [CustomLinkParam!], $sourceCaller: SourceCaller) {
  batchCustomLink(linkParams: $linkParams, sourceCaller: $sourceCaller) {
    shortLink
    longLink
    failCode
  }
}"""

FETCH = """\
async ({ query, links, subIds }) => {
  const token = document.cookie.split("; ").find((one) => one.startsWith("csrftoken="));
  const response = await fetch("/api/v3/gql?q=batchCustomLink", {
    method: "POST",
    headers: {
      "content-type": "application/json; charset=UTF-8",
      "csrf-token": token.slice("csrftoken=".length),
      "affiliate-program-type": "1",
    },
    body: JSON.stringify({
      operationName: "batchGetCustomLink",
      query,
      variables: {
        linkParams: links.map((link) => ({ originalLink: link, advancedLinkParams: subIds })),
        sourceCaller: "CUSTOM_LINK_CALLER",
      },
    }),
  });
  return await response.json();
}"""


class KeptPage:
    """One account's page. Submits of several callers take turns."""

    def __init__(self, page: Page, method: Method) -> None:
        self._page = page
        self._method = method
        self._area = page.locator("textarea")
        self._button = page.get_by_role("button", name="Lấy link")
        self._results = page.locator(".ant-modal")
        self._filled = [""] * 5
        self._turn = asyncio.Lock()
        self._shown: asyncio.Task[None] | None = None

    @classmethod
    async def open(cls, context: BrowserContext, portal: str, method: Method) -> KeptPage:
        page = await context.new_page()
        await page.goto(f"{portal}/offer/custom_link", wait_until="domcontentloaded")
        await page.locator("textarea").wait_for()
        return cls(page, method)

    async def convert(self, links: Sequence[str], sub_ids: Sequence[str]) -> list[Row]:
        """Return the portal's rows for the links, in their order."""
        submit = self._by_form if self._method == "form" else self._by_fetch
        rows: list[Row] = []
        for start in range(0, len(links), CHUNK):
            async with self._turn:
                rows += await submit(links[start : start + CHUNK], sub_ids)
        return rows

    async def close(self) -> None:
        if self._shown is not None:
            self._shown.cancel()
        await self._page.close()

    async def settle(self) -> None:
        """Wait until the results are shown: then a later submit finds the form in a known state."""
        if self._shown is not None:
            await self._shown
            self._shown = None

    async def _by_form(self, links: Sequence[str], sub_ids: Sequence[str]) -> list[Row]:
        await self.settle()
        await self._area.fill("\n".join(links))
        for place, value in enumerate([*sub_ids, *[""] * (5 - len(sub_ids))]):
            if self._filled[place] != value:
                await self._page.locator(f"#customLink_sub_id{place + 1}").fill(value)
                self._filled[place] = value
        async with self._page.expect_response(_is_answer) as answered:
            await self._button.click()
        answer = await (await answered.value).json()
        self._shown = asyncio.create_task(self._results.wait_for())
        return rows_of(answer)

    async def _by_fetch(self, links: Sequence[str], sub_ids: Sequence[str]) -> list[Row]:
        named = {f"subId{n}": value for n, value in enumerate(sub_ids, start=1)}
        answer = await self._page.evaluate(
            FETCH, {"query": QUERY, "links": list(links), "subIds": named}
        )
        return rows_of(answer)


def rows_of(answer: dict[str, Any]) -> list[Row]:
    """Return the rows of the portal's answer. Raises `KeyError` for any other answer."""
    rows: list[Row] = answer["data"]["batchCustomLink"]
    return rows


def _is_answer(response: Response) -> bool:
    return "batchCustomLink" in response.url
