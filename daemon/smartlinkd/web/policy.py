"""The content security policy of the owner's page (W3C Content Security Policy Level 3)."""

from __future__ import annotations

import base64
import hashlib
from typing import Final
from urllib.parse import urlsplit

HEADERS: Final = {
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
}


def content_security_policy(inline_script: str, picture_url: str) -> str:
    """Return the policy: the page's own files, and product pictures from one host.

    Args:
        inline_script: the text of the page's one inline script, its import map.
        picture_url: an address at the host that product pictures come from.
    """
    digest = base64.b64encode(hashlib.sha256(inline_script.encode()).digest()).decode()
    pictures = urlsplit(picture_url)
    return "; ".join(
        (
            "default-src 'none'",
            f"script-src 'self' 'sha256-{digest}'",
            "style-src 'self'",
            f"img-src 'self' data: {pictures.scheme}://{pictures.netloc}",
            "connect-src 'self'",
            "manifest-src 'self'",
            "base-uri 'none'",
            "form-action 'self'",
            "frame-ancestors 'none'",
            # Text of others (product names, log lines) can never become markup or code.
            "require-trusted-types-for 'script'",
            "trusted-types 'none'",
        )
    )
