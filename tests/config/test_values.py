"""Single values of the configuration: what is taken, what it becomes, and what is refused."""

from __future__ import annotations

import datetime
from collections.abc import Callable
from pathlib import Path

import pytest
from pydantic import JsonValue, SecretBytes, SecretStr

from smartlinkd.config import values
from smartlinkd.config.values import InputTable
from smartlinkd.validation import BadValue
from tests.config_file import HASH

SAFARIS = "safari-web-extension://0B2A7AC6-6D4F-4A3E-9C0A-0123456789AB"
CHROMES = "chrome-extension://abcdefghijklmnopabcdefghijklmnop"
NO_SLUGS = ("", "-a", "Deal", "a_b", "a b", "ä", 64 * "a", "a\n")
LONGEST = "https://api.example/" + 2028 * "x"
WHSEC = "whsec_MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3"


@pytest.mark.parametrize(
    ("rule", "given", "value"),
    [
        (values.parse_origin, "", ""),
        (values.parse_origin, "HTTP://Shop.Example:8080/", "http://shop.example:8080"),
        (values.parse_required_origin, "https://[::1]:9", "https://[::1]:9"),
        (values.parse_endpoint, "https://api.example/graphql", "https://api.example/graphql"),
        (values.parse_endpoint, "", ""),
        (values.parse_endpoint, LONGEST, LONGEST),
        (values.parse_url_template, "", ""),
        (values.parse_url_template, "https://x.example/{item_id}", "https://x.example/{item_id}"),
        (
            values.parse_url_template,
            "https://x.example/e?url={url}&s={shop_id}",
            "https://x.example/e?url={url}&s={shop_id}",
        ),
        (values.parse_key_path, "data.price", "data.price"),
        (values.parse_key_path, ".".join(10 * [64 * "a"]), ".".join(10 * [64 * "a"])),
        (values.parse_market, "th", "th"),
        (values.parse_path, "/var/lib/x", Path("/var/lib/x")),
        (values.parse_signing_key, "", SecretStr("")),
        (values.parse_optional_path, "", None),
        (values.parse_user_name, "www-data", "www-data"),
        (values.parse_user_name, 32 * "a", 32 * "a"),
        (values.parse_app_id, 64 * "9", 64 * "9"),
        (values.parse_extension_origin, CHROMES, CHROMES),
        (
            values.parse_extension_origin,
            "moz-extension://0123abcd-0123-4567-89ab-0123456789ab",
            "moz-extension://0123abcd-0123-4567-89ab-0123456789ab",
        ),
        (values.parse_extension_origin, SAFARIS, SAFARIS),
        (values.parse_extension_origin, SAFARIS.lower(), SAFARIS.lower()),
        *((values.parse_slug, slug, slug) for slug in ("a", "0", "deal-post", 63 * "a")),
        (values.parse_webhook_key, "", None),
        (values.parse_webhook_key, "hunter2 hunter2 1", SecretBytes(b"hunter2 hunter2 1")),
        (values.parse_webhook_key, WHSEC, SecretBytes(b"0123456789abcdef01234567")),
        (values.parse_argument, 16384 * "á", 16384 * "á"),
        (values.parse_variable, 128 * "a", 128 * "a"),
    ],
)
def test_valid_text_is_parsed(rule: Callable[[object], object], given: str, value: object) -> None:
    assert rule(given) == value


@pytest.mark.parametrize(
    ("rule", "given", "fault"),
    [
        (values.parse_origin, "https://host/path", "nothing behind"),
        (values.parse_origin, "https://user:secret@host", "nothing behind"),
        (values.parse_origin, "ftp://host", "http://"),
        (values.parse_origin, "https://", "a host"),
        (values.parse_required_origin, "", "a host"),
        (values.parse_endpoint, "https://api.example/graphql?x=1", "query"),
        (values.parse_endpoint, "https://api.example/graphql#x", "fragment"),
        (values.parse_endpoint, "/graphql", "must begin with"),
        (values.parse_endpoint, LONGEST + "x", "at most"),
        (values.parse_endpoint, "https://api.example/\t", "ASCII"),
        (values.parse_endpoint, "https://api.example/gi\xe1", "ASCII"),
        (values.parse_market, "xx", "vn, th"),
        (values.parse_path, "var/lib", "absolute"),
        (values.parse_optional_path, "~/hash", "absolute"),
        (values.parse_path, "/var/lib/\0", "NUL"),
        (values.parse_user_name, "root", "root"),
        (values.parse_user_name, "No Body", "name of a user"),
        (values.parse_user_name, 33 * "a", "name of a user"),
        (values.parse_user_name, "65534", "name of a user"),
        (values.parse_user_name, "", "name of a user"),
        (values.parse_extension_origin, "https://example.org", "extension's own"),
        (values.parse_extension_origin, "chrome-extension://" + 31 * "a", "extension's own"),
        (values.parse_extension_origin, "chrome-extension://q" + 31 * "a", "extension's own"),
        (values.parse_extension_origin, "chrome-extension://" + 32 * "A", "extension's own"),
        (values.parse_extension_origin, SAFARIS.replace("safari-web", "moz"), "extension's own"),
        (values.parse_extension_origin, SAFARIS.replace("-web", ""), "extension's own"),
        (values.parse_extension_origin, SAFARIS + "/", "extension's own"),
        (values.parse_extension_origin, SAFARIS[:-1], "extension's own"),
        (values.parse_extension_origin, SAFARIS[:-1] + "G", "extension's own"),
        (values.parse_extension_origin, "safari-web-extension://", "extension's own"),
        (values.parse_app_id, "12 34", "letters"),
        (values.parse_app_id, 65 * "9", "letters"),
        (values.parse_url_template, "https://x.example/{shop_id}", "{item_id}"),
        (values.parse_url_template, "https://x.example/{item_id}/{user}", "no other"),
        (values.parse_url_template, "https://x.example/{item_id}/{", "no other"),
        (values.parse_url_template, "https://x.example/{item_id}}", "no other"),
        (values.parse_url_template, "https://{item_id}.example/", "must begin with"),
        (values.parse_url, "ftp://tell.example/hunter2", "must begin with http:// or https://"),
        (values.parse_url, "ntfy.sh/hunter2", "must begin with http:// or https:// and a host"),
        (values.parse_url, "https://user:hunter2@tell.example/", "must begin with"),
        (values.parse_url, "https://tell.example/hunter2 x", "without blanks"),
        (values.parse_url, "https://tell.example/hunter2/giá", "ASCII"),
        (values.parse_url, "https://tell.example/hunter2#part", "fragment"),
        (values.parse_product_field, "colour", "shopName"),
        (values.parse_key_path, "data..price", "dots"),
        (values.parse_key_path, 65 * "a", "dots"),
        (values.parse_key_path, ".".join(11 * "a"), "dots"),
        (values.parse_signing_key, 63 * "a", "64 hexadecimal"),
        (values.parse_signing_key, 64 * "g", "64 hexadecimal"),
        (values.parse_bearer_key, 15 * "a", "16 or more"),
        (values.parse_bearer_key, "sixteen letters, but blanks", "16 or more"),
        (values.parse_plain_secret, "two\nlines", "one line"),
        (values.parse_plain_secret, "a blank behind ", "one line"),
        (values.parse_plain_secret, "gi\xe1", "one line"),
        (values.parse_password_hash, "correct horse", "argon2id"),
        (values.parse_password_hash, HASH.replace("argon2id", "argon2i"), "argon2id"),
        (values.parse_password_hash, HASH.replace("m=19456", "m=8"), "weaker"),
        *((values.parse_slug, slug, "1 to 63 lower-case") for slug in NO_SLUGS),
        (values.parse_slug, None, "text in quotes"),
        (values.parse_webhook_key, "hunter2-hunter2", "16 or more characters"),
        (values.parse_webhook_key, "hunter2\nlines of them", "one line"),
        (values.parse_webhook_key, " hunter2 with a blank", "one line"),
        (values.parse_webhook_key, "whsec_", "24 bytes"),
        (values.parse_webhook_key, WHSEC[:-4], "24 bytes"),
        (values.parse_webhook_key, WHSEC.replace("whsec_", "whsec_hunter2-"), "must have base64"),
        (values.parse_webhook_key, "whsec_hunter2", "must have base64"),
        (values.parse_argument, "a\0b", "NUL"),
        (values.parse_argument, 32769 * "x", "at most 32768 bytes"),
        (values.parse_argument, 16385 * "á", "at most 32768 bytes"),
        (values.parse_argument, "\ud800", "half of a character"),
        (values.parse_argument, 3, "text in quotes"),
        (values.parse_variable_value, "hunter2\0", "NUL"),
        (values.parse_variable_value, 3, "text in quotes"),
        (values.parse_variable, "A-B", "no name for a variable"),
        (values.parse_variable, "", "no name for a variable"),
        (values.parse_variable, 129 * "A", "no name for a variable"),
        (values.parse_variable, "TMPDIR", "set by the daemon"),
        (values.parse_variable, "SMARTLINKD_ANYTHING", "set by the daemon"),
    ],
)
def test_invalid_text_is_refused_with_its_rule(
    rule: Callable[[object], object], given: object, fault: str
) -> None:
    with pytest.raises(BadValue) as refused:
        rule(given)
    assert fault in refused.value.fault
    assert "hunter2" not in refused.value.fault


@pytest.mark.parametrize(
    ("rule", "given"),
    [
        (values.parse_password_hash, HASH),
        (values.parse_signing_key, 64 * "a"),
        (values.parse_bearer_key, "aZ019.-_~+/=wxyz"),
        (values.parse_plain_secret, "p@ss word"),
        (values.parse_variable_value, "hunter2"),
        (values.parse_url, "http://127.0.0.1:9000"),
        (values.parse_url, "http://[::1]:9000/x"),
        (values.parse_url, "https://api.example/bot123456:secret/send?chat_id=1&x=%20"),
    ],
)
def test_secret_is_wrapped_and_not_shown(rule: Callable[[object], object], given: str) -> None:
    wrapped = rule(given)
    assert isinstance(wrapped, SecretStr)
    assert wrapped.get_secret_value() == given
    assert given not in repr(wrapped)


# Values of crews


def nested(levels: int) -> JsonValue:
    return [nested(levels - 1)] if levels else 1


@pytest.mark.parametrize(
    ("given", "entry"),
    [
        ("topic", InputTable("topic")),
        ({"name": "sub-id_2"}, InputTable("sub-id_2")),
        ({"name": "a", "required": True}, InputTable("a", True)),
        ({"name": "a", "required": False}, InputTable("a", False)),
        ({"name": "a", "default": "x"}, InputTable("a", False, "x")),
        (
            {"name": "a", "default": {"b": [1, 2.5, True]}},
            InputTable("a", False, {"b": [1, 2.5, True]}),
        ),
        ({"name": "a", "default": None}, InputTable("a", False, None)),
        ({"name": "a", "default": nested(20)}, InputTable("a", False, nested(20))),
        ({"name": "a", "description": 2000 * "y"}, InputTable("a", description=2000 * "y")),
        ({"name": "a", "default": 1, "description": "y"}, InputTable("a", False, 1, "y")),
        (100 * "a", InputTable(100 * "a")),
    ],
)
def test_input_is_parsed(given: object, entry: InputTable) -> None:
    assert values.parse_input(given) == entry


@pytest.mark.parametrize(
    ("given", "fault"),
    [
        ("", "must have a name"),
        ("two words", "must have a name"),
        ("1a", "must have a name"),
        (101 * "a", "must have a name"),
        (3, "a name in quotes or a table"),
        ({}, "needs the name"),
        ({"name": "a", "requierd": True}, "takes name, required"),
        ({"name": 3}, "text in quotes"),
        ({"name": "a", "required": 1}, "neither true nor false"),
        ({"name": "a", "required": "no"}, "neither true nor false"),
        ({"name": "a", "required": True, "default": 1}, "required and has a default"),
        ({"name": "a", "default": float("inf")}, "JSON cannot hold"),
        ({"name": "a", "default": float("nan")}, "JSON cannot hold"),
        ({"name": "a", "default": [datetime.date(2020, 1, 1)]}, "JSON cannot hold"),
        ({"name": "a", "default": nested(250)}, "JSON cannot hold"),
        ({"name": "a", "default": {"\ud800": 1}}, "JSON cannot hold"),
        ({"name": "a", "description": 3}, "description"),
        ({"name": "a", "description": 2001 * "x"}, "description"),
    ],
)
def test_invalid_input_is_refused(given: object, fault: str) -> None:
    with pytest.raises(BadValue) as refused:
        values.parse_input(given)
    assert fault in refused.value.fault
