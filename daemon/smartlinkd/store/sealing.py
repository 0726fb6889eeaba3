"""Encryption under the store's key, of webhook credentials in the file.

The key is derived from `crew-master-secret` (`app/components.py`). AES-256-GCM, with a subkey for
the use. A sealed value is bound to a context (a credential's execution, kind and URL), and does not
open in another one.
"""

from __future__ import annotations

import hmac
import os
from typing import Final

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from pydantic import SecretBytes

_USE: Final = b"webhook credentials"
_NONCE: Final = 12
"""Bytes of the random nonce. A key seals far fewer than the 2^32 values that it is safe for."""


class Seal:
    """Seals webhook credentials."""

    def __init__(self, key: SecretBytes) -> None:
        self._cipher = AESGCM(hmac.digest(key.get_secret_value(), _USE, "sha256"))

    def seal(self, content: bytes, context: str) -> bytes:
        """Return `content` encrypted, differently each time."""
        nonce = os.urandom(_NONCE)
        return nonce + self._cipher.encrypt(nonce, content, context.encode())

    def open(self, sealed: bytes, context: str) -> bytes | None:
        """Return the content; None if it was not sealed under this key and in this context."""
        try:
            return self._cipher.decrypt(sealed[:_NONCE], sealed[_NONCE:], context.encode())
        except (InvalidTag, ValueError):
            return None
