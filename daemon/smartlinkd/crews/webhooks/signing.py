"""The signature of webhook calls, by "Standard Webhooks" 1.0.0 (symmetric).

A receiver knows a repeated call by its id, which is sent with and without a secret.
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
    """Return the `webhook-…` headers of an attempt at `now`. `call_id` has no full stop."""
    seconds = str(int(now.timestamp()))
    headers = {"webhook-id": call_id, "webhook-timestamp": seconds}
    if key is not None:
        signed = b".".join((call_id.encode(), seconds.encode(), body))
        digest = hmac.digest(key.get_secret_value(), signed, hashlib.sha256)
        headers["webhook-signature"] = f"v1,{b64encode(digest).decode()}"
    return headers
