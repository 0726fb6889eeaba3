"""What the owner can see of the running daemon, and do to it: over HTTP and in the shell alike."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Literal

from pydantic import Field

from daemon import __version__
from daemon.auth.actor import Auth
from daemon.browser.actor import Browser
from daemon.control import Answer, Commands
from daemon.conversion.desk import Desk
from daemon.supervision.supervisor import ChildSnapshot
from daemon.vault.actor import Vault
from daemon.wire import Body, Timestamp

_SHOWN_DIGEST = 12
"""Characters of a cookie's digest that are shown where it stands for an account."""


class PartReport(Body):
    """One supervised part. `nextRetry` is in seconds."""

    name: str
    state: str
    since: Timestamp
    restarts: int
    last_error: str | None
    next_retry: float | None


class BrowserReport(Body):
    """The browser; null fields while there is none."""

    state: str
    ready: bool
    since: Timestamp
    version: str | None
    pid: int | None
    restarts: int
    last_restart_reason: str | None
    jobs_running: int
    jobs_waiting: int
    contexts: int


class AccountReport(Body):
    """How an account stood with the portal at its last answer."""

    account: str = Field(description="the marketplace's user id, or a cookie's digest")
    state: str
    since: Timestamp
    reason: str | None


class CookieReport(Body):
    """The stored cookie, without the cookie."""

    account_name: str
    synced_at: Timestamp


class ConversionReport(Body):
    """The desk: what waits, and what it remembers."""

    requests_waiting: int
    submits_waiting: int
    remembered_links: int
    remembered_products: int


class StatusReport(Body):
    """The whole daemon at one moment."""

    ok: Literal[True] = True
    version: str
    started_at: Timestamp
    second_factor: bool
    actors: list[PartReport]
    browser: BrowserReport | None
    conversion: ConversionReport
    cookie: CookieReport | None
    accounts: list[AccountReport]


class Operator:
    """Gathers the parts' own reports, and passes the owner's commands on to them."""

    def __init__(
        self,
        *,
        auth: Auth,
        vault: Vault,
        desk: Desk,
        browser: Browser | None,
        parts: Callable[[], list[ChildSnapshot]],
    ) -> None:
        self._auth = auth
        self._vault = vault
        self._desk = desk
        self._browser = browser
        self._parts = parts
        self._started_at = datetime.now(UTC)

    async def status(self) -> StatusReport:
        """Everything that `/api/status` shows."""
        desk = await self._desk.status()
        return StatusReport(
            version=__version__,
            started_at=self._started_at,
            second_factor=await self._auth.second_factor_enabled(),
            actors=[
                PartReport(
                    name=part.name,
                    state=part.state,
                    since=part.since,
                    restarts=part.restarts,
                    last_error=part.last_error,
                    next_retry=part.next_retry,
                )
                for part in self._parts()
            ],
            browser=_browser_report(self._browser) if self._browser else None,
            conversion=ConversionReport(
                requests_waiting=desk.waiting_requests,
                submits_waiting=desk.waiting_submits,
                remembered_links=desk.remembered_links,
                remembered_products=desk.remembered_products,
            ),
            cookie=await self._cookie_report(),
            accounts=await self._account_reports(),
        )

    def commands(self) -> Commands:
        """The shell's commands, by the names that go over the control socket."""
        return {
            "status": self._show_status,
            "account show": self._show_account,
            "account clear": self._clear_accounts,
            "tokens revoke": self._revoke_tokens,
            "2fa off": self._second_factor_off,
        }

    async def _show_status(self) -> Answer:
        return (await self.status()).model_dump(mode="json")

    async def _show_account(self) -> Answer:
        cookie = await self._cookie_report()
        accounts = await self._account_reports()
        return {
            "cookie": cookie.model_dump(mode="json") if cookie else None,
            "accounts": [account.model_dump(mode="json") for account in accounts],
        }

    async def _clear_accounts(self) -> Answer:
        return {"cleared": await self._desk.clear_accounts()}

    async def _revoke_tokens(self) -> Answer:
        await self._auth.revoke_all()
        return {"message": "every session has ended; clients have to log in again"}

    async def _second_factor_off(self) -> Answer:
        await self._auth.second_factor_off()
        return {"message": "the second factor is off; the password alone logs in"}

    async def _cookie_report(self) -> CookieReport | None:
        record = await self._vault.current()
        if record is None:
            return None
        return CookieReport(account_name=record.account_name, synced_at=record.synced_at)

    async def _account_reports(self) -> list[AccountReport]:
        states = (await self._desk.status()).accounts
        return [
            AccountReport(
                # A user id is a short number; a digest would be all that is needed to pass for
                # the cookie among the remembered links, and is cut.
                account=account[:_SHOWN_DIGEST],
                state=state.standing,
                since=state.since,
                reason=state.reason,
            )
            for account, state in states.items()
        ]


def _browser_report(browser: Browser) -> BrowserReport:
    status = browser.status()
    return BrowserReport(
        state=status.state,
        ready=status.ready,
        since=status.since,
        version=status.version,
        pid=status.pid,
        restarts=status.restarts,
        last_restart_reason=status.last_end,
        jobs_running=status.working,
        jobs_waiting=status.waiting,
        contexts=status.contexts,
    )
