"""The configuration as a whole: where values come from, and that all faults are told at once."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from ipaddress import ip_network
from pathlib import Path

import pytest

from smartlinkd.config import ConfigError, load
from smartlinkd.net.addresses import Bind
from tests.config_file import HASH

AUTH = f'[auth]\npassword_hash = "{HASH}"\n'

Write = Callable[[str], Path]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    def write_config(text: str) -> Path:
        path = tmp_path / "config.toml"
        path.write_text(text)
        path.chmod(0o600)
        return path

    return write_config


@pytest.fixture
def secret_file(tmp_path: Path) -> Path:
    path = tmp_path / "secret"
    path.write_text(f"{HASH}\n")
    path.chmod(0o600)
    return path


def problems(path: Path, environ: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return fault and remedy by key of a configuration."""
    with pytest.raises(ConfigError) as raised:
        load(path, environ or {})
    assert str(raised.value).splitlines() == [str(p) for p in raised.value.problems]
    return {p.key: f"{p.fault}; {p.remedy}" for p in raised.value.problems}


def test_all_problems_are_reported_at_once(write: Write) -> None:
    path = write(
        """
        serverr = 3
        bind = "127.0.0.1:1"
        [server]
        bind = "8787"
        max_body = 12.5
        grace = true
        trusted_proxies = ["10.0.0.0/8", "10.0.0.1/8", 7]
        max_running = 4
        [cookie]
        open_too = []
        [browser]
        queue = 1000000
        idle = nan
        portal_url = "https://portal.example"
        [marketplace]
        method = "magic"
        short_urls = "https://s.portal.example"
        [links]
        source = "open_api"
        remember = -1
        [products]
        source = "third_party"
        [third_party]
        fields = { nam = "data.title" }
        [crew]
        name = "a"
        [[crews]]
        name = "a"
        runner = "command"
        """
    )
    found = problems(
        path, {"SMARTLINKD_PRODUCTS__PAUSE": "9e9", "SMARTLINKD_SERVER__PUBLIC_HOSTS": "x.example"}
    )
    expected = {
        "serverr": "did you mean [server]?",
        "bind": "it belongs under [server]",
        "server.bind": 'for example bind = "127.0.0.1:8787"',
        "server.max_body": "whole number",
        "server.grace": "must be a number",
        "server.max_running": "; it belongs under [[crews]]",
        "server.trusted_proxies[1]": 'write "10.0.0.0/8"',
        "server.trusted_proxies[2]": "text in quotes",
        "SMARTLINKD_SERVER__PUBLIC_HOSTS": """'["links.example.org"]'""",
        "cookie.open_too": "did you mean open_to?",
        "browser.queue": "from 1 to 10000 jobs",
        "browser.idle": "from 1 to 86400 seconds",
        "browser.portal_url": "it belongs under [marketplace]",
        "marketplace.method": 'one of "form" or "fetch"',
        "marketplace.short_urls": "must be a list",
        "links.remember": "from 0 to 2592000 seconds",
        "SMARTLINKD_PRODUCTS__PAUSE": "from 0 to 86400 seconds",
        "auth.password_hash": "is missing",
        "open_api.app_id": 'needed by links.source = "open_api"',
        "open_api.secret": "is missing",
        "third_party.url": 'needed by products.source = "third_party"',
        "third_party.fields.nam": "must name only product fields: name, price",
        "crew": "; did you mean [[crews]]?",
        'crew "a": command': "is missing",
    }
    assert set(found) == set(expected)
    assert {key: part for key, part in expected.items() if part not in found[key]} == {}


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("[server", "is not TOML"),
        ("x = " + 5000 * "[", "nested too deeply"),
        ("# " + 1024 * 1024 * "x", "is longer than"),
    ],
)
def test_unreadable_file_is_the_only_problem(write: Write, text: str, fault: str) -> None:
    path = write(text)
    found = problems(path)
    assert list(found) == [str(path)]
    assert fault in found[str(path)]


def test_file_may_be_as_long_as_its_bound(write: Write, secret_file: Path) -> None:
    secret_file.write_text(HASH.ljust(4096))
    text = f'[auth]\npassword_hash_file = "{secret_file}"\n'
    settings = load(write(text.ljust(1024 * 1024, "#")), {})
    assert settings.auth.password_hash.get_secret_value() == HASH


def test_impossible_file_name_is_refused() -> None:
    path = Path("no\0path")
    assert "cannot be opened (this is no path)" in problems(path)[str(path)]


def test_missing_file_and_wrong_variable_are_reported_together(tmp_path: Path) -> None:
    path = tmp_path / "none.toml"
    found = problems(path, {"SMARTLINKD_SERVER__BINDD": "x"})
    assert "does not exist" in found[str(path)]
    assert "did you mean SMARTLINKD_SERVER__BIND?" in found["SMARTLINKD_SERVER__BINDD"]


def test_fifo_does_not_hang_the_start(tmp_path: Path) -> None:
    path = tmp_path / "fifo"
    os.mkfifo(path)
    assert "not a regular file" in problems(path)[str(path)]


@pytest.mark.parametrize("mode", [0o600, 0o644])
def test_section_that_is_no_table_is_refused(write: Write, mode: int) -> None:
    path = write("auth = 3\n")
    path.chmod(mode)
    assert "write [auth] on a line" in problems(path)["auth"]


# --- the environment ---------------------------------------------------------------------------


def test_variables_override_the_file(write: Write) -> None:
    settings = load(
        write(
            '[server]\nbind = "127.0.0.1:1"\ntrusted_proxies = ["192.0.2.7"]\n'
            f'[state]\ndirectory = "/srv/links"\n{AUTH}'
        ),
        {
            "SMARTLINKD_SERVER__BIND": "127.0.0.1:2",
            "SMARTLINKD_COOKIE__OPEN_TO": "[]",
            "SMARTLINKD_BROWSER__NO_SANDBOX": "true",
            "SMARTLINKD_BROWSER__START_TIMEOUT": "7",
            "SMARTLINKD_THIRD_PARTY__FIELDS": '{"name": "title"}',
            "SMARTLINKD_OPEN_API__APP_ID": "123456",
            "SMARTLINKD_HOME": "somebody else's",
            "SERVER__BIND": "127.0.0.1:3",
            "SMARTLINK__SERVER__GRACE": "somebody else's",
            "PATH": "/bin",
        },
    )
    assert settings.server.bind == Bind("127.0.0.1", 2)
    assert settings.state.directory == Path("/srv/links")
    assert settings.server.trusted_proxies == (ip_network("192.0.2.7"),)
    assert settings.cookie.open_to == ()
    assert settings.browser.no_sandbox is True
    assert settings.browser.start_timeout == 7.0
    assert settings.third_party.fields == {"name": "title"}
    assert settings.open_api.app_id == "123456"


def test_fault_of_a_variable_is_reported_by_its_name(write: Write) -> None:
    found = problems(
        write('[server]\nbind = "127.0.0.1:1"\n' + AUTH),
        {
            "SMARTLINKD_SERVER__BIND": "elsewhere",
            "SMARTLINKD_SERVER__GRACE": '"10"',
            "SMARTLINKD_COOKIE__OPEN_TO": '["10.0.0.0/8", "x"]',
            "SMARTLINKD_BROWSER__QUEUE": "[" * 5000,
            "SMARTLINKD_NO__SUCH": "1",
        },
    )
    assert set(found) == {
        "SMARTLINKD_SERVER__BIND",
        "SMARTLINKD_SERVER__GRACE",
        "SMARTLINKD_COOKIE__OPEN_TO[1]",
        "SMARTLINKD_BROWSER__QUEUE",
        "SMARTLINKD_NO__SUCH",
    }
    assert "SMARTLINKD_SERVER__BIND='127.0.0.1:8787'" in found["SMARTLINKD_SERVER__BIND"]


# --- secrets -------------------------------------------------------------------------------------


def test_secret_in_two_places_or_variables_is_refused(write: Write, secret_file: Path) -> None:
    found = problems(write(AUTH + f'password_hash_file = "{secret_file}"'))
    assert found == {
        "auth.password_hash_file": "stands beside auth.password_hash; keep one of them"
    }
    both = {
        "SMARTLINKD_AUTH__PASSWORD_HASH": HASH,
        "SMARTLINKD_AUTH__PASSWORD_HASH_FILE": str(secret_file),
    }
    assert problems(write(""), both) == {
        "SMARTLINKD_AUTH__PASSWORD_HASH_FILE": "stands beside SMARTLINKD_AUTH__PASSWORD_HASH; "
        "keep one of them"
    }


def test_secret_variable_replaces_the_file(write: Write, secret_file: Path) -> None:
    path = write('[auth]\npassword_hash_file = "/nowhere"')
    assert load(path, {"SMARTLINKD_AUTH__PASSWORD_HASH": HASH}).auth.password_hash_file is None
    path = write('[auth]\npassword_hash = "nonsense"')
    settings = load(path, {"SMARTLINKD_AUTH__PASSWORD_HASH_FILE": str(secret_file)})
    assert settings.auth.password_hash.get_secret_value() == HASH


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620])
def test_secret_file_open_to_others_is_a_warning(
    write: Write, secret_file: Path, mode: int
) -> None:
    secret_file.chmod(mode)
    settings = load(write(f'[auth]\npassword_hash_file = "{secret_file}"'), {})
    assert settings.auth.password_hash.get_secret_value() == HASH
    (warning,) = settings.warnings
    assert str(warning) == (
        f"auth.password_hash_file: is open to other users (mode {mode:04o}); "
        f"chmod 600 {secret_file} if the daemon's user owns it, else make it a credential"
    )


def test_credential_of_systemd_is_no_warning_whatever_its_mode(
    write: Write, secret_file: Path
) -> None:
    secret_file.chmod(0o440)  # how the mask of its ACL shows
    path = write(f'[auth]\npassword_hash_file = "{secret_file}"')
    settings = load(path, {"CREDENTIALS_DIRECTORY": str(secret_file.parent)})
    assert settings.auth.password_hash.get_secret_value() == HASH
    assert not settings.warnings
    (elsewhere := secret_file.parent / "elsewhere").mkdir()
    assert load(path, {"CREDENTIALS_DIRECTORY": str(elsewhere)}).warnings


@pytest.mark.parametrize(
    ("content", "fault"),
    [
        (b" \n", "has an empty file"),
        (b"x" * 4097, "is longer than"),
        (b"\xff", "is not UTF-8"),
        (b"\xef\xbb\xbf$argon2id$", "begins with a byte order mark"),
        (b"hunter2", "is no argon2id hash"),
    ],
)
def test_fault_of_a_secret_file_is_reported_by_its_key(
    write: Write, secret_file: Path, content: bytes, fault: str
) -> None:
    secret_file.write_bytes(content)
    found = problems(write(f'[auth]\npassword_hash_file = "{secret_file}"'))
    assert list(found) == ["auth.password_hash_file"]
    assert fault in found["auth.password_hash_file"]


@pytest.mark.parametrize(
    ("path", "fault"),
    [
        ("/nowhere/at/all", "does not exist"),
        ("relative", "must be an absolute path"),
        ("/dev/null", "is not a regular file"),
        ("/", "is not a regular file"),
        ("/dev/null/file", "cannot be opened (Not a directory)"),
        ("/proc/self/mem", "cannot be read (Input/output error)"),
    ],
)
def test_missing_secret_file_is_reported_once(write: Write, path: str, fault: str) -> None:
    found = problems(write(f'[auth]\npassword_hash_file = "{path}"'))
    assert list(found) == ["auth.password_hash_file"]
    assert fault in found["auth.password_hash_file"]


def test_problem_never_repeats_a_secret(write: Write) -> None:
    canary = "hunter2-canary"
    path = write(
        f"""
        [auth]
        password = "{canary}"
        password_hash = "{canary}"
        signing_secret = "{canary}"
        password_hash_file = "{canary}"
        [cookie]
        sync_key_file = "/{canary}"
        sync_kye = "{canary}"
        open_to = ["{canary}"]
        [marketplace]
        portal_url = "https://{canary}:{canary}@x/y"
        market = "{canary}"
        method = "{canary}"
        [open_api]
        secret = 3
        secret_file = "{canary}"
        app_id = "{canary}"
        [webhooks]
        secret = "{canary}"
        [notify]
        url = "ftp://{canary}"
        """
    )
    with pytest.raises(ConfigError) as raised:
        load(path, {"SMARTLINKD_SERVER__GRACE": canary, "SMARTLINKD_AUTH__SIGNING_SECRET": canary})
    assert len(raised.value.problems) >= 14
    assert canary not in str(raised.value)


def test_repr_of_settings_hides_secrets(write: Write) -> None:
    assert HASH not in repr(load(write(AUTH), {}))


# --- warnings ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("mode", "keys"),
    [(0o604, ["auth.password_hash"]), (0o644, ["auth.password_hash"]), (0o640, [])],
)
def test_secret_in_a_public_file_is_a_warning(write: Write, mode: int, keys: list[str]) -> None:
    path = write(f'{AUTH}[cookie]\nsync_key = ""\n')  # which is none
    path.chmod(mode)
    assert [warning.key for warning in load(path, {}).warnings] == keys
