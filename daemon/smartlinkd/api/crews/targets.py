"""The webhooks that a body asks for, as targets that the daemon can call."""

from __future__ import annotations

import base64
from collections.abc import Sequence

from pydantic import SecretStr

from smartlinkd.api.crews.schemas import AnyAuthentication, BearerAuthentication, Webhooks
from smartlinkd.errors import Invalid
from smartlinkd.net.addresses import Network
from smartlinkd.net.egress_rules import check_url
from smartlinkd.store.model import WebhookKind, WebhookTarget


def targets(asked: Webhooks, allow: Sequence[Network]) -> tuple[WebhookTarget, ...]:
    """One for each address that is given. Raises `Invalid`, naming every one that cannot be."""
    made: list[WebhookTarget] = []
    faults: list[str] = []

    def add(
        field: str,
        kind: WebhookKind,
        url: str | None,
        events: Sequence[str] = (),
        auth: SecretStr | None = None,
    ) -> None:
        if not url:
            return
        try:
            made.append(WebhookTarget(kind, check_url(field, url, allow), tuple(events), auth))
        except Invalid as fault:
            faults.append(str(fault))

    add("taskWebhookUrl", "task", asked.task_webhook_url)
    add("stepWebhookUrl", "step", asked.step_webhook_url)
    add("crewWebhookUrl", "crew", asked.crew_webhook_url)
    if (stream := asked.webhooks) is not None:
        add(
            "webhooks.url",
            "stream",
            stream.url,
            stream.events or (),
            _header(stream.authentication),
        )
    if (human := asked.human_input_webhook) is not None:
        add(
            "humanInputWebhook.url",
            "human_input",
            human.url,
            auth=_header(human.authentication),
        )
    if faults:
        raise Invalid("; ".join(faults))
    return tuple(made)


def _header(given: BearerAuthentication | AnyAuthentication | None) -> SecretStr | None:
    """The value of an `Authorization` header: RFC 6750, section 2.1, or RFC 7617, section 2."""
    if given is None:
        return None
    if given.strategy == "bearer":
        assert given.token is not None  # noqa: S101 - for the type checker: it was checked when read
        return SecretStr(f"Bearer {given.token.get_secret_value()}")
    assert given.password is not None  # noqa: S101 - for the type checker, likewise
    pair = f"{given.username}:{given.password.get_secret_value()}"
    return SecretStr(f"Basic {base64.b64encode(pair.encode()).decode()}")
