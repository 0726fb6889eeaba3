"""Single values of the configuration: what is taken, what it becomes, and what is refused."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from pydantic import SecretStr

from smartlinkd.auth.passwords import hash_password
from smartlinkd.config import ConfigError, build, values
from smartlinkd.validation import BadValue

HASH = hash_password("correct horse")
SAFARIS = "safari-web-extension://0B2A7AC6-6D4F-4A3E-9C0A-0123456789AB"
CHROMES = "chrome-extension://abcdefghijklmnopabcdefghijklmnop"
LONGEST = "https://api.example/" + 2028 * "x"


def salted(name: str, *values_: object) -> object:
    """Arguments with a hash among them, named: its random salt must not be in a test's name, which
    has to be the same in every process that collects the tests.
    """
    return pytest.param(*values_, id=name)


@pytest.mark.parametrize(
    ("rule", "given", "value"),
    [
        (values.origin, "", ""),
        (values.origin, "HTTP://Shop.Example:8080/", "http://shop.example:8080"),
        (values.required_origin, "https://[::1]:9", "https://[::1]:9"),
        (values.endpoint, "https://api.example/graphql", "https://api.example/graphql"),
        (values.endpoint, "", ""),
        (values.endpoint, LONGEST, LONGEST),
        (values.url_template, "", ""),
        (values.url_template, "https://x.example/{item_id}", "https://x.example/{item_id}"),
        (
            values.url_template,
            "https://x.example/e?url={url}&s={shop_id}",
            "https://x.example/e?url={url}&s={shop_id}",
        ),
        (values.key_path, "data.price", "data.price"),
        (values.key_path, ".".join(10 * [64 * "a"]), ".".join(10 * [64 * "a"])),
        (values.market, "th", "th"),
        (values.directory, "/var/lib/x", Path("/var/lib/x")),
        (values.signing_secret, "", SecretStr("")),
        (values.optional_path, "", None),
        (values.user_name, "www-data", "www-data"),
        (values.user_name, 32 * "a", 32 * "a"),
        (values.app_id, 64 * "9", 64 * "9"),
        (values.extension_origin, CHROMES, CHROMES),
        (
            values.extension_origin,
            "moz-extension://0123abcd-0123-4567-89ab-0123456789ab",
            "moz-extension://0123abcd-0123-4567-89ab-0123456789ab",
        ),
        (values.extension_origin, SAFARIS, SAFARIS),
        (values.extension_origin, SAFARIS.lower(), SAFARIS.lower()),
    ],
)
def test_what_fits_a_rule_is_given_as_its_value(
    rule: Callable[[object], object], given: str, value: object
) -> None:
    assert rule(given) == value


@pytest.mark.parametrize(
    ("rule", "given", "fault"),
    [
        (values.origin, "https://host/path", "nothing behind"),
        (values.origin, "https://user:secret@host", "nothing behind"),
        (values.origin, "ftp://host", "http://"),
        (values.origin, "https://", "a host"),
        (values.required_origin, "", "a host"),
        (values.endpoint, "https://api.example/graphql?x=1", "query"),
        (values.endpoint, "https://api.example/graphql#x", "fragment"),
        (values.endpoint, "/graphql", "must begin with"),
        (values.endpoint, LONGEST + "x", "at most"),
        (values.endpoint, "https://api.example/\t", "ASCII"),
        (values.endpoint, "https://api.example/gi\xe1", "ASCII"),
        (values.market, "xx", "vn, th"),
        (values.directory, "var/lib", "absolute"),
        (values.optional_path, "~/hash", "absolute"),
        (values.directory, "/var/lib/\0", "NUL"),
        (values.user_name, "root", "root"),
        (values.user_name, "No Body", "name of a user"),
        (values.user_name, 33 * "a", "name of a user"),
        (values.user_name, "65534", "name of a user"),
        (values.user_name, "", "name of a user"),
        (values.extension_origin, "https://example.org", "extension's own"),
        (values.extension_origin, "chrome-extension://" + 31 * "a", "extension's own"),
        (values.extension_origin, "chrome-extension://q" + 31 * "a", "extension's own"),
        (values.extension_origin, "chrome-extension://" + 32 * "A", "extension's own"),
        (values.extension_origin, SAFARIS.replace("safari-web", "moz"), "extension's own"),
        (values.extension_origin, SAFARIS.replace("-web", ""), "extension's own"),
        (values.extension_origin, SAFARIS + "/", "extension's own"),
        (values.extension_origin, SAFARIS[:-1], "extension's own"),
        (values.extension_origin, SAFARIS[:-1] + "G", "extension's own"),
        (values.extension_origin, "safari-web-extension://", "extension's own"),
        (values.app_id, "12 34", "letters"),
        (values.app_id, 65 * "9", "letters"),
        (values.url_template, "https://x.example/{shop_id}", "{item_id}"),
        (values.url_template, "https://x.example/{item_id}/{user}", "no other"),
        (values.url_template, "https://x.example/{item_id}/{", "no other"),
        (values.url_template, "https://x.example/{item_id}}", "no other"),
        (values.url_template, "https://{item_id}.example/", "must begin with"),
        (values.whole_url, "ntfy.sh/a-topic", "must begin with http:// or https:// and a host"),
        (values.answer_field, "colour", "shopName"),
        (values.key_path, "data..price", "dots"),
        (values.key_path, 65 * "a", "dots"),
        (values.key_path, ".".join(11 * "a"), "dots"),
        (values.signing_secret, 63 * "a", "64 hexadecimal"),
        (values.signing_secret, 64 * "g", "64 hexadecimal"),
        (values.bearer_key, 15 * "a", "16 or more"),
        (values.bearer_key, "sixteen letters, but blanks", "16 or more"),
        (values.plain_secret, "two\nlines", "one line"),
        (values.plain_secret, "a blank behind ", "one line"),
        (values.plain_secret, "gi\xe1", "one line"),
        (values.password_hash, "correct horse", "argon2id"),
        salted("argon2i", values.password_hash, HASH.replace("argon2id", "argon2i"), "argon2id"),
        salted("weak", values.password_hash, HASH.replace("m=19456", "m=8"), "weaker"),
    ],
)
def test_what_breaks_a_rule_is_refused_with_what_it_should_be(
    rule: Callable[[object], object], given: object, fault: str
) -> None:
    with pytest.raises(BadValue) as refused:
        rule(given)
    assert fault in refused.value.fault


@pytest.mark.parametrize(
    ("rule", "given"),
    [
        salted("hash", values.password_hash, HASH),
        (values.signing_secret, 64 * "a"),
        (values.bearer_key, "aZ019.-_~+/=wxyz"),
        (values.plain_secret, "p@ss word"),
    ],
)
def test_a_secret_is_wrapped_and_not_shown(rule: Callable[[object], object], given: str) -> None:
    wrapped = rule(given)
    assert isinstance(wrapped, SecretStr)
    assert wrapped.get_secret_value() == given
    assert given not in repr(wrapped)


@pytest.mark.parametrize(
    ("secret", "fault"),
    [
        ("swordfish-sword", "16 or more characters"),
        ("sword\nlines of them", "one line"),
        (" sword with a blank", "one line"),
        ("whsec_", "24 bytes"),
        ("whsec_c3dvcmRmaXNo", "24 bytes"),
        ("whsec_swordfis-MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3", "base64"),
        ("whsec_swordfish", "base64"),
    ],
)
def test_a_webhook_secret_that_is_none_is_refused(secret: str, fault: str) -> None:
    with pytest.raises(ConfigError, match=rf"webhooks\.secret: .*{fault}") as refused:
        build({"auth": {"password_hash": HASH}, "webhooks": {"secret": secret}})
    assert "sword" not in str(refused.value)


@pytest.mark.parametrize(
    ("secret", "key"),
    [
        ("", None),
        ("whsec_MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3", b"0123456789abcdef01234567"),
        ("swordfish sword1", b"swordfish sword1"),
    ],
)
def test_a_webhook_secret_is_a_key(secret: str, key: bytes | None) -> None:
    found = build({"auth": {"password_hash": HASH}, "webhooks": {"secret": secret}}).webhooks
    assert (found.secret and found.secret.get_secret_value()) == key
    assert "sword" not in repr(found)
