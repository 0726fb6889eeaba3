"""Rules for single values of the configuration. Pure: a value in, the typed value out.

Settings hold parsed values (a path, the bytes of a key, an origin without its trailing slash), so
their users do not parse again. Every function here raises `BadValue` if its rule is broken. Rules
for addresses are in `smartlinkd/net/addresses.py`, since other rooms use them too.
"""

from __future__ import annotations

import json
import re
from base64 import b64decode
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from pydantic import JsonValue, SecretBytes, SecretStr
from pydantic_core import from_json

from smartlinkd.auth.passwords import check_hash
from smartlinkd.marketplace import markets
from smartlinkd.marketplace.products import FIELD_NAMES, PLACEHOLDER
from smartlinkd.marketplace.urls import origin
from smartlinkd.state_files import parse_secret
from smartlinkd.validation import BadValue, require_text

SHORTEST_KEY = 16  # characters of a key: 64 bits even when they are hexadecimal digits
LONGEST_URL = 2048  # characters
LONGEST_ARGUMENT = 32 * 1024  # bytes; a quarter of Linux's limit (MAX_ARG_STRLEN)
LONGEST_DESCRIPTION = 2000
MOST_APPRISE_URLS = 16

_WEBHOOK_KEY = "whsec_"
_SHORTEST_WEBHOOK_KEY = 24  # bytes, by the Standard Webhooks specification
_USER_NAME = re.compile(r"[a-z_][a-z0-9_-]{0,31}")  # adduser.conf(5), SYS_NAME_REGEX
_KEY = re.compile(r"[A-Za-z0-9._~+/=-]+")  # characters of a bearer token (RFC 6750, section 2.1)
_APPRISE_URL = re.compile(r"[a-z][a-z0-9+.-]*://[^\s\x00-\x1f]{1,2000}", re.IGNORECASE)
_UUID = r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"
# POSIX: the names that a shell can assign to.
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,127}")
_INPUT_KEYS = ("name", "required", "default", "description")
# The daemon sets these for every worker (see docs/crew-workers.md).
_RESERVED_VARIABLES = ("HOME", "TMPDIR")
_RESERVED_PREFIX = "SMARTLINKD_"


def _matching(pattern: str, fault: str, remedy: str = "") -> Callable[[object], str]:
    """Return a rule for texts that match a pattern from end to end."""
    compiled = re.compile(pattern)

    def parse(value: object) -> str:
        given = require_text(value)
        if not compiled.fullmatch(given):
            raise BadValue(fault, remedy)
        return given

    return parse


def parse_origin(value: object) -> str:
    """Return `scheme://host[:port]`, lower case, no default port; empty stays empty."""
    return parse_required_origin(value) if require_text(value) else ""


def parse_required_origin(value: object) -> str:
    """Return an origin as `parse_origin` does. An empty one is refused."""
    given = require_text(value)
    try:
        return origin(given)
    except ValueError:
        # Its text quotes the value, which may hold a password.
        raise BadValue(
            "must be http:// or https://, a host, maybe a port, and nothing behind it"
        ) from None


def parse_endpoint(value: object) -> str:
    """Return an origin with a path, unchanged; empty stays empty."""
    given = require_text(value)
    if given == "":
        return ""
    _split_url(given)
    if "?" in given or "#" in given:
        raise BadValue("must not have a query or a fragment")
    return given


def parse_url(value: object) -> SecretStr:
    """Return a URL whose path or query may hold a key; empty: not given."""
    given = _secret_text(value)
    if given:
        _split_url(given)
        if "#" in given:
            raise BadValue("must not have a fragment", "leave out what begins with #")
    return SecretStr(given)


def parse_apprise_urls(value: object) -> tuple[SecretStr, ...]:
    """Return Apprise's addresses, from a list or the lines of a file. Each may hold a key."""
    given = value.splitlines() if isinstance(value, str) else value
    if not isinstance(given, list | tuple):
        raise BadValue("must be a list of addresses", 'such as ["tgram://TOKEN/CHAT"]')
    urls = [require_text(url).strip() for url in given]
    urls = [url for url in urls if url]
    if urls and find_spec("apprise") is None:
        raise BadValue("needs the package apprise", "install it: pip install 'smartlinkd[notices]'")
    if len(urls) > MOST_APPRISE_URLS:
        raise BadValue(f"has more than {MOST_APPRISE_URLS} addresses", "leave some out")
    for number, url in enumerate(urls, start=1):
        if not _APPRISE_URL.fullmatch(url):
            raise BadValue(
                f"has no address in place {number}", "write it as Apprise does: tgram://TOKEN/CHAT"
            )
    return tuple(SecretStr(url) for url in urls)


def parse_url_template(value: object) -> str:
    """Return a URL with placeholders for the product after its host; empty stays empty."""
    given = require_text(value)
    if given == "":
        return ""
    path = _split_url(given)
    placeholders, rest = set(PLACEHOLDER.findall(path)), PLACEHOLDER.sub("", path)
    if not placeholders & {"item_id", "url"} or "{" in rest or "}" in rest:
        raise BadValue("must hold {item_id} or {url}, maybe {shop_id}, and no other braces")
    return given


def parse_market(value: object) -> str:
    """Return the code of one of the marketplace's countries."""
    code = require_text(value)
    if code not in markets.MARKET_CODES:
        raise BadValue(f"must be one of {', '.join(markets.MARKET_CODES)}")
    return code


# Chromium names an extension by 32 letters a-p, Firefox and Safari by a UUID, some Safaris in
# capitals.
parse_extension_origin = _matching(
    rf"chrome-extension://[a-p]{{32}}|moz-extension://{_UUID}|safari-web-extension://(?i:{_UUID})",
    "must be an extension's own origin, with the id that the browser gave it",
    'for example "chrome-extension://abcdefghijklmnopabcdefghijklmnop" '
    '(see chrome://extensions); in Firefox it begins with "moz-extension://", in Safari '
    'with "safari-web-extension://"',
)
"""Return the `Origin` header of an extension of Chromium, Firefox or Safari, unchanged."""


def parse_path(value: object) -> Path:
    """Return an absolute path. A relative one would depend on the folder of the start."""
    given = str(value) if isinstance(value, Path) else require_text(value)
    if not given.startswith("/"):
        raise BadValue("must be an absolute path")
    if "\0" in given:
        raise BadValue("must not hold a NUL character", "take it out: no path can have one")
    return Path(given)


def parse_optional_path(value: object) -> Path | None:
    """Return an absolute path, or None for an empty text or None."""
    return None if value in ("", None) else parse_path(value)


def parse_user_name(value: object) -> str:
    """Return the name of an unprivileged user of this machine."""
    name = require_text(value)
    if name == "root":
        raise BadValue("must not be root, as whom Chromium has no sandbox", 'keep "nobody"')
    if not _USER_NAME.fullmatch(name):
        raise BadValue("must be the name of a user")
    return name


def parse_password_hash(value: object) -> SecretStr:
    """Return an argon2id hash as `smartlinkd hash-password` prints it; empty: not given."""
    secret = _secret_text(value)
    if secret:
        try:
            check_hash(secret)
        except ValueError as error:
            fault, _, remedy = str(error).partition("; ")
            raise BadValue(fault, remedy) from None
    return SecretStr(secret)


def parse_signing_key(value: object) -> SecretStr:
    """Return 256 bits in hexadecimal, as HS256 needs (RFC 7518 section 3.2); empty: not given."""
    secret = SecretStr(_secret_text(value))
    if secret:
        parse_secret(secret)
    return secret


def parse_bearer_key(value: object) -> SecretStr:
    """Return a key that clients send as `Authorization: Bearer …`; empty: not given."""
    secret = _secret_text(value)
    if secret and (len(secret) < SHORTEST_KEY or not _KEY.fullmatch(secret)):
        raise BadValue(
            f"must be {SHORTEST_KEY} or more letters, digits or . _ ~ + / = -",
            "make one with: openssl rand -base64 32",
        )
    return SecretStr(secret)


def parse_plain_secret(value: object) -> SecretStr:
    """Return a secret that somebody else made: one line of printable ASCII; empty: not given."""
    secret = _secret_text(value)
    if not (secret.isascii() and secret.isprintable() and secret == secret.strip()):
        raise BadValue(
            "must be one line of printable characters", "copy it again, without blanks around it"
        )
    return SecretStr(secret)


def parse_webhook_key(value: object) -> SecretBytes | None:
    """Return the key that signs webhook calls; None for an empty text: they are not signed.

    Standard Webhooks writes a key as `whsec_` and base64. Of any other text the bytes are the key.
    """
    given = parse_plain_secret(value).get_secret_value()
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


parse_app_id = _matching(r"[A-Za-z0-9]{0,64}", "must be letters and digits")
"""Return the public half of the Open API's credentials, which is sent in a header."""


def parse_product_field(value: object) -> str:
    """Return the name of a field of products, as answers have it."""
    name = require_text(value)
    if name not in FIELD_NAMES:
        raise BadValue(f"must name only product fields: {', '.join(FIELD_NAMES)}")
    return name


parse_key_path = _matching(
    r"[^.\s]{1,64}(\.[^.\s]{1,64}){0,9}",
    "must be a key of the service's answer, or several with dots between them",
)
"""Return the place of a value in a JSON answer: keys with dots between them."""

# Values of crews


@dataclass(frozen=True)
class InputTable:
    """One configured input of a crew.

    `required` is None if the file does not say. `default` counts only if `required` is False.
    """

    name: str
    required: bool | None = None
    default: JsonValue = None
    description: str = ""


# A slug is part of addresses, of folders' names and of a shell's command line.
parse_slug = _matching(
    r"[a-z0-9][a-z0-9-]{0,62}",
    "must be 1 to 63 lower-case letters, digits and hyphens, the first no hyphen",
)
"""Return the name of a crew, or of one of its users."""


def parse_argument(value: object) -> str:
    """Return one word of a command, which the kernel can pass to a program."""
    given = require_text(value)
    if "\0" in given:
        raise BadValue("must not hold a NUL character", "take it out: no program can be given one")
    if len(require_encodable(given).encode()) > LONGEST_ARGUMENT:
        raise BadValue(
            f"must be at most {LONGEST_ARGUMENT} bytes", "put it into a file, and name that"
        )
    return given


def parse_variable(value: object) -> str:
    """Return the name of an environment variable that a crew may set for its workers."""
    name = require_text(value)
    if not _VARIABLE.fullmatch(name):
        raise BadValue(
            "is no name for a variable",
            "use letters, digits and underscores, with no digit at the start",
        )
    if name in _RESERVED_VARIABLES or name.startswith(_RESERVED_PREFIX):
        raise BadValue(
            "is set by the daemon, for every worker anew", "leave it out, or choose another name"
        )
    return name


def parse_variable_value(value: object) -> SecretStr:
    """Return the value of an environment variable. Most are keys, so each is a secret."""
    given = value.get_secret_value() if isinstance(value, SecretStr) else value
    try:
        return SecretStr(parse_argument(given))
    except BadValue as fault:
        raise BadValue(fault.fault, fault.remedy or "put quotes around it") from None


# CrewAI replaces inputs of these names in its prompts.
_parse_input_name = _matching(
    r"[A-Za-z_][A-Za-z0-9_-]{0,99}",
    "must have a name of letters, digits, _ and -, at most 100, that begins with a letter or _",
)


def parse_input(value: object) -> InputTable:
    """Return an input from its name, or from a table of name, required, default, description."""
    if isinstance(value, InputTable):
        return value
    if isinstance(value, str):
        return InputTable(_parse_input_name(value))
    if not isinstance(value, Mapping):
        raise BadValue("must be a name in quotes or a table")
    unknown = set(value) - set(_INPUT_KEYS)
    if unknown or "name" not in value:
        raise BadValue(f"takes {', '.join(_INPUT_KEYS)}, and needs the name")
    name = _parse_input_name(value["name"])
    required, description = value.get("required"), value.get("description", "")
    if not (required is None or isinstance(required, bool)):
        raise BadValue("has a `required` that is neither true nor false")
    if not isinstance(description, str) or len(description) > LONGEST_DESCRIPTION:
        raise BadValue(f"has a `description` that is no text of at most {LONGEST_DESCRIPTION}")
    if "default" not in value:
        return InputTable(name, required, description=description)
    if required:
        raise BadValue("is required and has a default", "keep one of the two")
    return InputTable(name, False, parse_default(value["default"]), description)


def parse_default(value: object) -> JsonValue:
    """Return an input's default, which a worker gets as JSON.

    TOML has dates and infinities besides, and a JSON crew's own file has infinities. The parser
    refuses more than some 200 levels.
    """
    try:
        text = json.dumps(value, ensure_ascii=False).encode()
        parsed: JsonValue = from_json(text, allow_inf_nan=False)
    except (TypeError, ValueError, RecursionError):  # ValueError: also half of a character
        fault = "has a default that JSON cannot hold"
        raise BadValue(fault, "write it as text, in quotes") from None
    return parsed


def require_encodable(given: str) -> str:
    """Return a text that UTF-8 can encode. JSON's escapes can write half of a surrogate pair."""
    try:
        given.encode()
    except UnicodeEncodeError:
        raise BadValue("must not hold half of a character", "write it anew") from None
    return given


def _secret_text(value: object) -> str:
    if isinstance(value, SecretStr):
        return value.get_secret_value()
    if not isinstance(value, str):
        raise BadValue("must be text in quotes", "put quotes around it")
    return value


def _split_url(given: str) -> str:
    """Check a URL, and return the part after its origin."""
    if len(given) > LONGEST_URL or not (given.isascii() and given.isprintable()) or " " in given:
        raise BadValue(f"must be at most {LONGEST_URL} ASCII characters, without blanks")
    parts = given.split("/", 3)
    try:
        parse_required_origin("/".join(parts[:3]))
    except BadValue:  # its text is about an origin alone
        raise BadValue("must begin with http:// or https:// and a host, maybe a port") from None
    return parts[3] if len(parts) > 3 else ""
