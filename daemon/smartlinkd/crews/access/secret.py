"""The crews' master secret, and the keys that are derived from it.

One secret is behind all that crews need kept: their tokens (`tokens.py`), and the key that the
journal seals webhook credentials with. So there is one file to back up, and one to move to another
machine. Each use has a key of its own, derived from the secret and the use's name: what one of them
gives away says nothing of the others.

Whoever has the secret alone has no token yet, since those also depend on `crew-tokens.json`; with
both he has all of them.
"""

from __future__ import annotations

import hmac
import logging
from pathlib import Path
from typing import Final

from pydantic import SecretBytes, SecretStr

from smartlinkd.crews.access.generations import GENERATIONS_FILE
from smartlinkd.state_files import load_secret, parse_secret

logger = logging.getLogger(__name__)

SECRET_FILE: Final = "crew-master-secret"  # noqa: S105 - a file's name
_NAME: Final = "the crews' master secret"


def load_master_secret(directory: Path, configured: SecretStr) -> SecretBytes:
    """The 32 bytes: what is configured (64 hexadecimal digits), or with nothing configured the
    state directory's own, made at the first start.

    Raises `ValueError` for a configured one that is no good, `StateUnusable`, or `NotSaved` at the
    first start. Blocks for as long as the disk takes.
    """
    if configured:
        return parse_secret(configured, name=_NAME)
    path = directory / SECRET_FILE
    if not path.exists() and (directory / GENERATIONS_FILE).exists():
        # No first start, then.
        logger.warning("%s was not there: with the new one every crew has new tokens", path)
    return load_secret(
        path,
        name=_NAME,
        loss="gives every crew new tokens, and loses the credentials of webhooks not yet called",
    )


def derive(master: SecretBytes, use: str) -> SecretBytes:
    """The 32 bytes that are for one use ("journal", say), by HMAC-SHA256."""
    return SecretBytes(hmac.digest(master.get_secret_value(), use.encode(), "sha256"))
