"""How a receiver knows that a webhook call is ours, and which one it is.

By the "Standard Webhooks" specification (1.0.0, symmetric signatures): each call has an id that
stays the same over its attempts, the time of the attempt, and, where a secret is configured, an
HMAC-SHA256 over both and the body. Libraries that verify it exist for most languages.

The id and the time go out without a secret, too: calls are made at least once, and the id is what
tells a repeated one.
"""

from __future__ import annotations

import hashlib
import hmac
from base64 import b64encode
from datetime import datetime

from pydantic import SecretBytes


def signature_headers(
    key: SecretBytes | None, call_id: str, now: datetime, body: bytes
) -> dict[str, str]:
    """The `webhook-…` headers of one attempt at `now`. `call_id` has no full stop in it."""
    seconds = str(int(now.timestamp()))
    headers = {"webhook-id": call_id, "webhook-timestamp": seconds}
    if key is not None:
        signed = b".".join((call_id.encode(), seconds.encode(), body))
        digest = hmac.digest(key.get_secret_value(), signed, hashlib.sha256)
        headers["webhook-signature"] = f"v1,{b64encode(digest).decode()}"
    return headers
