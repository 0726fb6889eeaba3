"""Encryption under the store's key, of webhook credentials in the file.

AES-256-GCM, with a subkey for the use. A sealed value is bound to a context (a credential's
execution and URL), and does not open in another one.
"""

from __future__ import annotations

import hmac
import os
from typing import Final

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from pydantic import SecretBytes

KEY_BYTES: Final = 32
_USE: Final = b"webhook credentials"
_NONCE: Final = 12
"""The size of the random nonce. A key seals far fewer than the 2^32 values that it is safe for."""


class NotSealed(ValueError):  # noqa: N818 - said of the value
    """The value was not sealed under this key and in this context."""


class Seal:
    """Seals webhook credentials."""

    def __init__(self, key: SecretBytes) -> None:
        """`key` has 32 bytes. Raises `ValueError` for another length."""
        if len(key) != KEY_BYTES:
            raise ValueError(f"the journal's key has {len(key)} bytes; it needs {KEY_BYTES}")
        self._cipher = AESGCM(hmac.digest(key.get_secret_value(), _USE, "sha256"))

    def seal(self, content: bytes, context: str) -> bytes:
        """Return `content` encrypted, differently each time."""
        nonce = os.urandom(_NONCE)
        return nonce + self._cipher.encrypt(nonce, content, context.encode())

    def open(self, sealed: bytes, context: str) -> bytes:
        """Return the content. Raises `NotSealed`."""
        try:
            return self._cipher.decrypt(sealed[:_NONCE], sealed[_NONCE:], context.encode())
        except (InvalidTag, ValueError):
            raise NotSealed("a value that does not open under its key") from None
