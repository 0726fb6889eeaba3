"""What the facade is given: the parts behind it, and the settings that are its own."""

from __future__ import annotations

from dataclasses import dataclass

from pydantic import SecretStr

from daemon.api.access import Neighbourhood
from daemon.auth.actor import Auth
from daemon.browser.actor import Browser
from daemon.conversion.desk import Desk
from daemon.metrics import Metrics
from daemon.operator import Operator
from daemon.vault.actor import Vault


@dataclass(frozen=True)
class Services:
    """`browser` is None where nothing of the configuration needs one."""

    auth: Auth
    vault: Vault
    desk: Desk
    browser: Browser | None
    operator: Operator
    metrics: Metrics
    neighbourhood: Neighbourhood
    sync_key: SecretStr
    extension_origins: frozenset[str]
    max_body: int
