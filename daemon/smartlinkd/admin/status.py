"""The owner's view of the actors, and the owner's commands: for the HTTP API and the shell."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Literal, TypeVar

import trio

from smartlinkd import __version__
from smartlinkd.admin.control_socket import Command, Commands, Response
from smartlinkd.admin.reports import (
    NOT_USED_YET,
    AccountEntry,
    AccountReport,
    AccountResponse,
    BrowserReport,
    ConversionReport,
    CookieReport,
    CreateKeyArguments,
    CrewReport,
    CrewTokenArguments,
    KeyReport,
    PartReport,
    RevokeKeyArguments,
    RevokeTokensArguments,
    StatusReport,
    StoredCookieState,
)
from smartlinkd.auth.actor import ApiKey, Auth, KeySpec
from smartlinkd.auth.keys import Scope
from smartlinkd.browser.actor import Browser
from smartlinkd.conversion.account import AccountStatus, shown_name
from smartlinkd.conversion.service import ConversionService, ConversionStatus
from smartlinkd.crews.executor import Executor
from smartlinkd.crews.model import BrokenCrew, ListedCrew
from smartlinkd.crews.tokens import CrewTokens
from smartlinkd.errors import Invalid, Unavailable
from smartlinkd.supervision.child import ChildSnapshot, ChildState
from smartlinkd.vault.actor import Vault
from smartlinkd.vault.record import CookieRecord

T = TypeVar("T")

REPORT_TIMEOUT_S = 1.0
"""For one actor's report. An owner who looks while an actor is in trouble has to see the others."""

WANTED_COOKIES = ("SPC_EC", "SPC_ST", "SPC_U", "SPC_F", "csrftoken")
"""The names in a whole cookie of the portal's session. Links can be made with fewer."""


class Operator:
    """Gathers the actors' reports, and passes the owner's commands to them."""

    def __init__(
        self,
        *,
        auth: Auth,
        vault: Vault,
        conversion: ConversionService,
        browser: Browser | None,
        parts: Callable[[], list[ChildSnapshot]],
        tokens: CrewTokens,
        executor: Executor,
        url: str,
        crew_urls: Mapping[str, str],
        cookie_kept: Callable[[], bool],
    ) -> None:
        """Use these handles.

        Args:
            url: the daemon's main address.
            crew_urls: the addresses of crews that have their own, by name.
            cookie_kept: returns True if systemd keeps the stored cookie over a restart.
        """
        self._auth = auth
        self._vault = vault
        self._conversion = conversion
        self._browser = browser
        self._parts = parts
        self._tokens = tokens
        self._executor = executor
        self._url = url
        self._crew_urls = crew_urls
        self._cookie_kept = cookie_kept
        self._started_at = datetime.now(UTC)

    async def status(self) -> StatusReport:
        """Return the report for `/api/status`. An actor that is late is left out."""
        conversion = await _section(self._conversion.status)
        cookie = await _section(self._vault.current)
        return StatusReport(
            version=__version__,
            started_at=self._started_at,
            second_factor=await _section(self._auth.has_second_factor),
            actors=[
                PartReport.model_validate(part, from_attributes=True) for part in self._parts()
            ],
            browser=(
                BrowserReport.model_validate(self._browser.status(), from_attributes=True)
                if self._browser
                else None
            ),
            conversion=_conversion_report(conversion) if conversion else None,
            cookie=self._cookie_report(cookie) if cookie else None,
            accounts=_account_reports(conversion, cookie) if conversion else None,
            crews=self._crew_reports(),
        )

    def not_ready(self) -> str | None:
        """Return the state of the first actor that is not ready, or the browser's; else None.

        The accounts do not count.
        """
        for part in self._parts():
            if part.state is not ChildState.RUNNING:
                return part.state
        if self._browser is not None and not self._browser.is_ready:
            return self._browser.status().state
        return None

    async def account(self) -> AccountResponse:
        """Return how the accounts stand, the stored cookie's first.

        Raises what asking the vault or the conversion service raises.
        """
        record = await self._vault.current()
        conversion = await self._conversion.status()
        cookie = record.cookie if record is not None else None
        own = shown_name(cookie.account) if cookie is not None else None
        wanted = WANTED_COOKIES if self._conversion.needs_cookie else ()
        return AccountResponse(
            cookie=StoredCookieState(
                stored=record is not None,
                account_name=record.account_name if record is not None else None,
                synced_at=record.synced_at if record is not None else None,
                missing=[name for name in wanted if cookie is not None and not cookie.get(name)],
            ),
            accounts=[
                AccountEntry(
                    name=name,
                    state=_STATES[state.status],
                    since=state.since,
                    reason=state.reason,
                    remedy=_REMEDIES[state.status],
                )
                for name, state in sorted(
                    conversion.accounts.items(), key=lambda item: item[0] != own
                )
            ],
        )

    async def account_not_ready(self) -> Literal["no_cookie", "session_lost", "paused"] | None:
        """Return why the stored cookie's account makes no links; None when it may make some.

        Where links are made by an API there is no cookie, and one account.
        """
        record = await self._vault.current()
        if record is None and self._conversion.needs_cookie:
            return "no_cookie"
        accounts = (await self._conversion.status()).accounts
        own = (
            shown_name(record.cookie.account) if record and self._conversion.needs_cookie else None
        )
        statuses = {state.status for name, state in accounts.items() if own in (None, name)}
        if AccountStatus.PAUSED in statuses:
            return "paused"
        return "session_lost" if AccountStatus.SESSION_LOST in statuses else None

    async def account_at_hand(self) -> AccountResponse | None:
        """Return how the account stands, or None while a part that knows it does not answer."""
        return await _section(self.account)

    def commands(self) -> Commands:
        """Return the shell's commands by their names on the control socket."""
        return {
            "status": Command(self.status),
            "account show": Command(self.account),
            "account clear": Command(self._clear_accounts),
            "crew list": Command(self._list_crews),
            "crew token": Command(self._crew_token, CrewTokenArguments),
            "keys list": Command(self._list_keys),
            "keys create": Command(self._create_key, CreateKeyArguments),
            "keys revoke": Command(self._revoke_key, RevokeKeyArguments),
            "tokens revoke": Command(self._revoke_tokens, RevokeTokensArguments),
            "2fa off": Command(self._second_factor_off),
        }

    async def _clear_accounts(self) -> Response:
        return {"cleared": await self._conversion.clear_accounts()}

    async def _list_crews(self) -> Response:
        return {"crews": [crew.model_dump(mode="json") for crew in self._crew_reports()]}

    def _cookie_report(self, record: CookieRecord) -> CookieReport:
        return CookieReport(
            account_name=record.account_name, synced_at=record.synced_at, kept=self._cookie_kept()
        )

    def _crew_reports(self) -> list[CrewReport]:
        return [self._crew_report(listed) for listed in self._executor.listed()]

    def _crew_report(self, listed: ListedCrew) -> CrewReport:
        crew = listed.crew
        address = self._url + listed.paths[0] if listed.paths else None
        return CrewReport(
            name=crew.name,
            state="broken" if isinstance(crew, BrokenCrew) else "ready",
            default=listed.default,
            base_address=self._crew_urls.get(crew.name or "", address),
            users=list(crew.users),
            running=listed.load.running,
            waiting=listed.load.waiting,
        )

    async def _crew_token(self, name: str, user: str | None, rotate: bool) -> Response:
        # Perhaps an empty variable in a script: that must not give out everybody's token.
        if user == "":
            raise Invalid("user: is empty; name one, or leave it out for the organization token")
        ask = self._tokens.rotate if rotate else self._tokens.show
        token = await ask(name, user or "")
        return {"crew": name, "user": user, "token": token.get_secret_value()}

    async def keys(self) -> list[KeyReport]:
        """Return the API keys, oldest first."""
        return [key_report(entry) for entry in await self._auth.list_keys()]

    async def _list_keys(self) -> Response:
        return {"keys": [key.model_dump(mode="json") for key in await self.keys()]}

    async def _create_key(
        self, name: str, scopes: Sequence[Scope], expires_in_days: int | None
    ) -> Response:
        made = await self._auth.create_key_in_shell(KeySpec(name, scopes, expires_in_days))
        shown = key_report(made.entry).model_dump(mode="json", exclude={"last_used_at", "hint"})
        return {"key": made.key.get_secret_value(), **shown}

    async def _revoke_key(self, id: str) -> Response:
        await self._auth.revoke_key(id)
        return {"message": "the API key has ended"}

    async def _revoke_tokens(self, keys: bool) -> Response:
        await self._auth.revoke_all(with_keys=keys)
        what = "every session and every API key has" if keys else "every session has"
        return {"message": f"{what} ended; clients have to log in again"}

    async def _second_factor_off(self) -> Response:
        await self._auth.reset_second_factor()
        return {"message": "the second factor is off; the password alone logs in"}


_STATES: dict[AccountStatus, Literal["active", "session_lost", "paused"]] = {
    AccountStatus.ACTIVE: "active",
    AccountStatus.SESSION_LOST: "session_lost",
    AccountStatus.PAUSED: "paused",
}
_REMEDIES = {
    AccountStatus.ACTIVE: None,
    AccountStatus.SESSION_LOST: (
        "log in to the affiliate portal in your browser, then sync its cookie"
    ),
    AccountStatus.PAUSED: (
        "open the affiliate portal in an ordinary browser and answer what it asks; "
        "then clear the pause, or paste a new cookie"
    ),
}


def key_report(key: ApiKey) -> KeyReport:
    """Return what the owner is shown of a key."""
    return KeyReport(
        id=key.id,
        name=key.name,
        scopes=list(key.scopes),
        created_at=datetime.fromtimestamp(key.created_at, UTC),
        expires_at=_moment(key.expires_at),
        last_used_at=_moment(key.last_used_at),
        hint=key.hint,
    )


def _moment(seconds: float | None) -> datetime | None:
    return None if seconds is None else datetime.fromtimestamp(seconds, UTC)


async def _section(ask: Callable[[], Awaitable[T]]) -> T | None:
    """Return an actor's report, or None if it does not answer in time."""
    with trio.move_on_after(REPORT_TIMEOUT_S):
        try:
            return await ask()
        except Unavailable:
            return None
    return None


def _conversion_report(conversion: ConversionStatus) -> ConversionReport:
    return ConversionReport(
        requests_waiting=conversion.requests_under_way,
        submits_waiting=conversion.waiting_submits,
        remembered_links=conversion.remembered_links,
        remembered_products=conversion.remembered_products,
    )


def _account_reports(
    conversion: ConversionStatus, stored: CookieRecord | None
) -> list[AccountReport]:
    """Report the accounts that links were made for, and always the stored cookie's."""
    reports = [
        AccountReport(account=account, state=state.status, since=state.since, reason=state.reason)
        for account, state in conversion.accounts.items()
    ]
    if stored is not None:
        name = shown_name(stored.cookie.account)
        if name not in conversion.accounts:
            since = stored.synced_at
            reports.append(
                AccountReport(account=name, state=NOT_USED_YET, since=since, reason=None)
            )
    return reports
