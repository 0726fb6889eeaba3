"""The client of one daemon: links, the account, API keys and crews."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from types import TracebackType
from typing import Final
from urllib.parse import quote

import httpx
from pydantic import SecretStr, ValidationError

from smartlinkd.admin.reports import AccountResponse, KeyReport, StatusReport
from smartlinkd.api.schemas import (
    ClearedResponse,
    ConvertResponse,
    ConvertTextResponse,
    CrewEntry,
    CrewsResponse,
    DoneResponse,
    ExtractedLink,
    ExtractResponse,
    HistoryEntry,
    HistoryResponse,
    KeyResponse,
    KeysResponse,
    LoggedInResponse,
    SecondStepResponse,
    SyncCookieResponse,
    TokenResponse,
)
from smartlinkd.client.connection import Connection
from smartlinkd.client.crews import CrewClient
from smartlinkd.client.errors import ClientError
from smartlinkd.conversion.schemas import MAX_LINKS, FailureEntry, SuccessEntry

HISTORY_PAGE: Final = 200
"""Entries of a page of the history."""

LinkEntry = SuccessEntry | FailureEntry


class Smartlinkd:
    """A daemon, called with an API key.

    All methods raise `ClientError`: `ApiFailure` when the daemon refuses, `Unreachable` when none
    answers. Use it in `with`, or close it.

        with Smartlinkd("https://links.example.net", key) as daemon:
            for link, entry in daemon.convert(links):
                print(link, entry)
    """

    def __init__(
        self,
        url: str,
        key: str | SecretStr | None = None,
        *,
        allow_http: bool = False,
        on_wait: Callable[[float, str], None] | None = None,
        transport: httpx.BaseTransport | None = None,
    ) -> None:
        """Open no connection yet.

        Args:
            url: the daemon's address, such as `https://links.example.net`.
            key: an API key; None for `log_in` alone.
            allow_http: send the key in clear to another machine.
            on_wait: called before each pause with its seconds and the reason.
            transport: httpx's, in place of the network.

        Raises:
            ClientError: the address or the key cannot be one.
        """
        self._connection = Connection(
            url, key, allow_http=allow_http, on_wait=on_wait, transport=transport
        )

    @property
    def url(self) -> str:
        return self._connection.url

    def __enter__(self) -> Smartlinkd:
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc_value: BaseException | None,
        tb: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()

    # Links

    def convert(
        self, links: Sequence[str], sub_ids: Sequence[str] = ()
    ) -> Iterator[tuple[str, LinkEntry]]:
        """Yield each link with its result, in order, as they come.

        Any number of links: they are sent in pieces of 15. A link that fails does not fail the
        others (`FailureEntry`).
        """
        for start in range(0, len(links), MAX_LINKS):
            piece = links[start : start + MAX_LINKS]
            response = self._connection.send(
                "POST", "/api/convert", body={"links": list(piece), "subIds": list(sub_ids)}
            )
            mapping = _read_mapping(response)
            for link in piece:
                if link not in mapping:
                    raise ClientError("the daemon's answer lacks a link that was sent; update both")
                yield link, mapping[link]

    def convert_text(self, text: str, sub_ids: Sequence[str] = ()) -> ConvertTextResponse:
        """Return the text with its links replaced; at most 15 different ones and 64 KiB."""
        return self._connection.post(
            "/api/convert-text",
            {"text": text, "subIds": list(sub_ids)},
            ConvertTextResponse,
            is_safe=True,
        )

    def extract(self, text: str) -> list[ExtractedLink]:
        """Return the marketplace links of a text of at most 512 KiB."""
        body = {"text": text}
        return self._connection.post("/api/extract", body, ExtractResponse, is_safe=True).links

    # The history

    def history(
        self,
        *,
        q: str | None = None,
        sub_id: str | None = None,
        since: str | None = None,
        until: str | None = None,
    ) -> Iterator[HistoryEntry]:
        """Yield converted links, the newest first. They are read by pages as they are taken.

        Args:
            q: words; each is a part of the product's name, the link, the short link or a sub-id.
            sub_id: one of the sub-ids, as a whole.
            since: the first moment, an ISO 8601 date or time.
            until: the end: a date, that day included, or a time.
        """
        wanted = {"q": q, "subId": sub_id, "from": since, "to": until, "limit": HISTORY_PAGE}
        cursor: str | None = None
        while True:
            query = {**wanted, "cursor": cursor}
            page = self._connection.get("/api/history", HistoryResponse, query)
            yield from page.entries
            cursor = page.next_cursor
            if cursor is None:
                return

    # The account

    def account(self) -> AccountResponse:
        """Return the stored cookie's state and the accounts'."""
        return self._connection.get("/api/account", AccountResponse)

    def clear_account(self) -> int:
        """End pauses and lost sessions of all accounts, and return how many accounts had one."""
        return self._connection.post(
            "/api/account/clear", {}, ClearedResponse, is_safe=True
        ).cleared

    def status(self) -> StatusReport:
        """Return the whole daemon's state."""
        return self._connection.get("/api/status", StatusReport)

    def sync_cookie(
        self, cookie: SecretStr, *, account_name: str | None = None, replace_account: bool = False
    ) -> SyncCookieResponse:
        """Store the cookie that links are made with.

        Args:
            cookie: in any form that people paste (docs/api.md).
            replace_account: store it also if it is another account's.
        """
        return self._connection.post(
            "/api/sync-cookie",
            {
                "cookie": cookie.get_secret_value(),
                "accountName": account_name,
                "replaceAccount": replace_account or None,
            },
            SyncCookieResponse,
            is_safe=True,
        )

    # Crews

    def crews(self) -> list[CrewEntry]:
        """Return all crews."""
        return self._connection.get("/api/crews", CrewsResponse).crews

    def crew(self, name: str) -> CrewClient:
        """Return the client of a crew; nothing is sent yet."""
        return CrewClient(self._connection, name)

    # Sessions and API keys

    def log_in(self, password: SecretStr, code: Callable[[], SecretStr]) -> None:
        """Use a session from now on in place of a key.

        Args:
            code: called for a one-time code if the second factor is on.
        """
        response = self._connection.send(
            "POST", "/api/auth/login", body={"password": password.get_secret_value()}
        )
        try:
            step = SecondStepResponse.model_validate_json(response.content)
        except ValidationError:
            token = self._connection.read(response, LoggedInResponse).token
        else:
            body = {"tempToken": step.temp_token, "code": code().get_secret_value()}
            token = self._connection.post(
                "/api/auth/verify-mfa", body, TokenResponse, is_safe=False
            ).token
        self._connection.authorize(token)

    def log_out(self) -> None:
        """End the session of `log_in`."""
        self._connection.post("/api/auth/logout", {}, DoneResponse, is_safe=False)

    def create_key(
        self,
        name: str,
        scopes: Sequence[str],
        *,
        expires_in_days: int | None = None,
        code: SecretStr | None = None,
    ) -> KeyResponse:
        """Make an API key, with a session.

        Args:
            code: a one-time code, needed while the second factor is on.
        """
        return self._connection.post(
            "/api/keys",
            {
                "name": name,
                "scopes": list(scopes),
                "expiresInDays": expires_in_days,
                "code": code.get_secret_value() if code is not None else None,
            },
            KeyResponse,
            is_safe=False,
        )

    def list_keys(self) -> list[KeyReport]:
        """Return all API keys, with a session."""
        return self._connection.get("/api/keys", KeysResponse).keys

    def revoke_key(self, key_id: str) -> None:
        """End an API key, with a session."""
        self._connection.delete(f"/api/keys/{quote(key_id, safe='')}")

    def crew_token(self, crew: str, *, user: str | None = None, rotate: bool = False) -> str:
        """Return a crew's bearer token, with a session.

        Args:
            user: whose token; None for the organization token.
            rotate: make a new one. The old one is dead.
        """
        path = "/api/crews/token/rotate" if rotate else "/api/crews/token"
        body = {"crew": crew, "user": user}
        return self._connection.post(path, body, TokenResponse, is_safe=not rotate).token

    def end_own_key(self) -> None:
        """End the key that this client sends."""
        self._connection.delete("/api/keys/self")


def _read_mapping(response: httpx.Response) -> dict[str, LinkEntry]:
    """Return the results by link. `json` keeps half a character in a link; pydantic refuses it."""
    try:
        return ConvertResponse.model_validate(json.loads(response.content)).mapping
    except (ValueError, ValidationError):
        raise ClientError("the daemon's answer is not understood; check the address") from None
