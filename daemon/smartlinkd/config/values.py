"""What single values of the configuration look like: pure rules, text in, typed value out.

The problem: a value that is only checked is parsed again by everybody who uses it, and each of
them decides anew what an origin looks like. So a value is parsed here, once, and the settings hold
the result (a path, the bytes of a key, an origin without its trailing slash).

A rule that is broken is a `BadValue`. Those of addresses are not here: others need them who have
nothing to do with the configuration (`smartlinkd/net/addresses.py`).
"""

from __future__ import annotations

import re
from base64 import b64decode
from pathlib import Path

from pydantic import SecretBytes, SecretStr

from smartlinkd.auth.files import parse_signing_secret
from smartlinkd.auth.passwords import check_hash
from smartlinkd.marketplace import markets
from smartlinkd.marketplace.products import FIELD_NAMES, PLACEHOLDER
from smartlinkd.validation import BadValue, require_text

_WEBHOOK_KEY = "whsec_"
_SHORTEST_WEBHOOK_KEY = 24  # bytes, by the specification
SHORTEST_KEY = 16  # characters of a key: 64 bits even when they are hexadecimal digits
LONGEST_URL = 2048

_USER_NAME = re.compile(r"[a-z_][a-z0-9_-]{0,31}")  # what Debian's adduser makes
_KEY = re.compile(r"[A-Za-z0-9._~+/=-]+")  # what may follow "Bearer " (RFC 6750, section 2.1)
_APP_ID = re.compile(r"[A-Za-z0-9]{1,64}")
# Chromium names an extension by 32 letters a-p, Firefox and Safari by a UUID, some Safaris in
# capitals.
_UUID = r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"
_EXTENSION = re.compile(
    rf"chrome-extension://[a-p]{{32}}|moz-extension://{_UUID}|safari-web-extension://(?i:{_UUID})"
)
_KEY_PATH = re.compile(r"[^.\s]{1,64}(\.[^.\s]{1,64}){0,9}")


def origin(value: object) -> str:
    """`scheme://host[:port]` in the marketplace's one spelling; empty stays empty."""
    return required_origin(value) if require_text(value) else ""


def required_origin(value: object) -> str:
    """An origin where an empty one would mean nothing."""
    given = require_text(value)
    try:
        return markets.origin(given)
    except ValueError:
        # Its text quotes the value, which ours never do.
        raise BadValue(
            "must be http:// or https://, a host, maybe a port, and nothing behind it"
        ) from None


def endpoint(value: object) -> str:
    """An origin with a path behind it; empty stays empty."""
    given = require_text(value)
    if given == "":
        return ""
    _whole_url(given)
    if "?" in given or "#" in given:
        raise BadValue("must not have a query or a fragment")
    return given


def market(value: object) -> str:
    """The code of one of the marketplace's countries."""
    code = require_text(value)
    if code not in markets.MARKET_CODES:
        raise BadValue(f"must be one of {', '.join(markets.MARKET_CODES)}")
    return code


def extension_origin(value: object) -> str:
    """Return the `Origin` that a browser extension's requests carry, as it is written.

    Raises:
        BadValue: `value` is no origin of an extension of Chromium, Firefox or Safari.
    """
    if not _EXTENSION.fullmatch(require_text(value)):
        raise BadValue(
            "must be an extension's own origin, with the id that the browser gave it",
            'for example "chrome-extension://abcdefghijklmnopabcdefghijklmnop" '
            '(see chrome://extensions); in Firefox it begins with "moz-extension://", in Safari '
            'with "safari-web-extension://"',
        )
    return require_text(value)


def directory(value: object) -> Path:
    """An absolute path. Relative ones would move with the folder the daemon is started from."""
    if isinstance(value, Path):
        value = str(value)
    given = require_text(value)
    if not given.startswith("/"):
        raise BadValue("must be an absolute path")
    if "\0" in given:
        raise BadValue("must not hold a NUL character", "take it out: no path can have one")
    return Path(given)


def optional_path(value: object) -> Path | None:
    """An absolute path, or nothing when empty."""
    return None if value in ("", None) else directory(value)


def user_name(value: object) -> str:
    """An unprivileged account of this machine."""
    name = require_text(value)
    if name == "root":
        raise BadValue("must not be root, as whom Chromium has no sandbox", 'keep "nobody"')
    if not _USER_NAME.fullmatch(name):
        raise BadValue("must be the name of a user")
    return name


def password_hash(value: object) -> SecretStr:
    """An argon2id hash as `smartlinkd hash-password` prints it; empty: not given."""
    secret = _secret_text(value)
    if secret:
        try:
            check_hash(secret)
        except ValueError as error:
            fault, _, remedy = str(error).partition("; ")
            raise BadValue(fault, remedy) from None
    return SecretStr(secret)


def signing_secret(value: object) -> SecretStr:
    """256 bits in hexadecimal, the key of HS256 (RFC 7518, section 3.2); empty: not given."""
    secret = SecretStr(_secret_text(value))
    if secret:
        try:
            parse_signing_secret(secret)
        except ValueError:
            raise BadValue(
                "must be 64 hexadecimal digits", "make one with: openssl rand -hex 32"
            ) from None
    return secret


def bearer_key(value: object) -> SecretStr:
    """A key that clients send as `Authorization: Bearer …`; empty: not given."""
    secret = _secret_text(value)
    if secret and (len(secret) < SHORTEST_KEY or not _KEY.fullmatch(secret)):
        raise BadValue(
            f"must be {SHORTEST_KEY} or more letters, digits or . _ ~ + / = -",
            "make one with: openssl rand -base64 32",
        )
    return SecretStr(secret)


def app_id(value: object) -> str:
    """The public half of the Open API's credentials; it travels in a header."""
    given = require_text(value)
    if given and not _APP_ID.fullmatch(given):
        raise BadValue("must be letters and digits")
    return given


def webhook_key(value: object) -> SecretBytes | None:
    """The key of the signatures under webhook calls; None for an empty text: they are not signed.

    `whsec_` and base64 behind it is how "Standard Webhooks" writes a key. Of any other text the
    bytes are the key.
    """
    given = plain_secret(value).get_secret_value()
    if not given:
        return None
    remedy = f'write "{_WEBHOOK_KEY}" and behind it what this prints: openssl rand -base64 32'
    if not given.startswith(_WEBHOOK_KEY):
        if len(given) < SHORTEST_KEY:
            raise BadValue(f"must have {SHORTEST_KEY} or more characters", remedy)
        return SecretBytes(given.encode())
    try:
        key = b64decode(given.removeprefix(_WEBHOOK_KEY), validate=True)
    except ValueError:
        raise BadValue(f"must have base64 behind {_WEBHOOK_KEY}", remedy) from None
    if len(key) < _SHORTEST_WEBHOOK_KEY:
        fault = f"must have at least {_SHORTEST_WEBHOOK_KEY} bytes in base64 behind {_WEBHOOK_KEY}"
        raise BadValue(fault, remedy)
    return SecretBytes(key)


def plain_secret(value: object) -> SecretStr:
    """A secret that somebody else made: one line of printable ASCII; empty: not given."""
    secret = _secret_text(value)
    if not (secret.isascii() and (secret.isprintable()) and secret == secret.strip()):
        raise BadValue(
            "must be one line of printable characters", "copy it again, without blanks around it"
        )
    return SecretStr(secret)


def url_template(value: object) -> str:
    """A URL with placeholders behind its host, one of which names the product; may be empty."""
    given = require_text(value)
    if given == "":
        return ""
    behind = _whole_url(given)
    found, rest = set(PLACEHOLDER.findall(behind)), PLACEHOLDER.sub("", behind)
    if not found & {"item_id", "url"} or "{" in rest or "}" in rest:
        raise BadValue("must hold {item_id} or {url}, maybe {shop_id}, and no other braces")
    return given


def answer_field(value: object) -> str:
    """A field of the product object, by its name on the wire."""
    name = require_text(value)
    if name not in FIELD_NAMES:
        raise BadValue(f"must name only product fields: {', '.join(FIELD_NAMES)}")
    return name


def whole_url(value: object) -> SecretStr:
    """An address with all that stands behind its host, which may be a key; empty: not given."""
    given = _secret_text(value)
    if given:
        _whole_url(given)
        if "#" in given:
            raise BadValue("must not have a fragment", "leave out what begins with #")
    return SecretStr(given)


def key_path(value: object) -> str:
    """Where something stands in a JSON answer: keys, with dots between them."""
    given = require_text(value)
    if not _KEY_PATH.fullmatch(given):
        raise BadValue("must be a key of the service's answer, or several with dots between them")
    return given


def _secret_text(value: object) -> str:
    if isinstance(value, SecretStr):
        return value.get_secret_value()
    if not isinstance(value, str):
        raise BadValue("must be text in quotes", "put quotes around it")
    return value


def _whole_url(given: str) -> str:
    """Check a URL whose path matters; return what stands behind its origin."""
    if len(given) > LONGEST_URL or not (given.isascii() and given.isprintable()) or " " in given:
        raise BadValue(f"must be at most {LONGEST_URL} ASCII characters, without blanks")
    parts = given.split("/", 3)
    try:
        required_origin("/".join(parts[:3]))
    except BadValue:  # which is about an origin alone, with nothing behind it
        raise BadValue("must begin with http:// or https:// and a host, maybe a port") from None
    return parts[3] if len(parts) > 3 else ""
