"""Secrets that a service manager hands over, and what commands see that it did not start."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from smartlinkd.config import ConfigError, Settings, load, state_directory
from smartlinkd.config.secret_files import parse_variables
from smartlinkd.config.settings import SECRETS
from smartlinkd.validation import BadValue
from tests.config_file import HASH

KEY = "0123456789abcdef" * 4
GOOD = {
    ("auth", "password_hash"): HASH,
    ("auth", "signing_secret"): KEY,
    ("cookie", "sync_key"): KEY,
    ("open_api", "secret"): KEY,
    ("webhooks", "secret"): KEY,
    ("crew_tokens", "master_secret"): KEY,
    ("notify", "url"): f"https://tell.example/{KEY}",
    ("notify", "apprise"): f"json://tell.example/{KEY}",
}

Give = Callable[..., dict[str, str]]


@pytest.fixture
def config(tmp_path: Path) -> Path:
    path = tmp_path / "config.toml"
    path.touch(0o600)
    return path


@pytest.fixture
def give(tmp_path: Path) -> Give:
    """The environment of a service that was given files by these names."""

    def given(files: Mapping[str, str], folder: str = "given") -> dict[str, str]:
        there = tmp_path / folder
        there.mkdir(0o700)
        for name, content in files.items():
            (there / name).write_text(content)
            (there / name).chmod(0o440)  # how the mask of the manager's ACL shows
        return {"CREDENTIALS_DIRECTORY": str(there)}

    return given


def problems(config: Path, environ: Mapping[str, str], *, by_hand: bool = False) -> dict[str, str]:
    with pytest.raises(ConfigError) as raised:
        load(config, environ, by_hand=by_hand)
    return {p.key: f"{p.fault}; {p.remedy}" for p in raised.value.problems}


def revealed(value: Any) -> str | bytes:
    """A setting's secret, or the only one of several."""
    one = value[0] if isinstance(value, tuple) else value
    found: str | bytes = one.get_secret_value()
    return found


def test_each_secret_can_be_a_credential(config: Path, give: Give) -> None:
    files = {
        f"smartlinkd_{section}.{key}": f"{secret}\n" for (section, key), secret in GOOD.items()
    }
    settings = load(config, give(files))
    assert set(SECRETS) == set(GOOD)
    for (section, key), secret in GOOD.items():
        found = revealed(getattr(getattr(settings, section), key))
        assert found in (secret, secret.encode())
    assert not settings.warnings


def test_credential_of_another_name_is_ignored(config: Path, give: Give) -> None:
    files = {
        "cookie.sync_key": KEY,
        "smartlinkd_research.env": "KEY=x",
        "smartlinkd_authority": "",
    }
    environ = give(files | {"smartlinkd_auth.password_hash": HASH})
    (config.parent / "given/smartlinkd_auth.d").mkdir()
    settings = load(config, environ)
    assert settings.auth.password_hash.get_secret_value() == HASH
    assert not settings.cookie.sync_key


@pytest.mark.parametrize(
    ("name", "remedy"),
    [
        ("auth.pasword_hash", "did you mean auth.password_hash?"),
        ("server.bind", "the secrets are auth.password_hash, "),
    ],
)
def test_credential_that_is_no_secret_is_refused(
    config: Path, give: Give, name: str, remedy: str
) -> None:
    found = problems(config, give({f"smartlinkd_{name}": HASH}))
    assert found[f"credential {name}"].startswith(f"is the name of no secret; {remedy}")


@pytest.mark.parametrize(
    ("content", "fault"),
    [
        ("\n", "has an empty file; write the secret into it, one line"),
        ("hunter2", "is no argon2id hash"),
        ("x" * 4097, "is longer than"),
    ],
)
def test_fault_of_a_credential_is_reported_once_by_its_name(
    config: Path, give: Give, content: str, fault: str
) -> None:
    found = problems(config, give({"smartlinkd_auth.password_hash": content}))
    assert list(found) == ["credential auth.password_hash"]
    assert fault in found["credential auth.password_hash"]
    assert "hunter2" not in str(found)


@pytest.mark.parametrize("key", ["password_hash", "password_hash_file"])
def test_secret_beside_its_credential_is_refused(config: Path, give: Give, key: str) -> None:
    (config.parent / "other").write_text(HASH)
    value = HASH if key == "password_hash" else config.parent / "other"
    given = {"smartlinkd_auth.password_hash": HASH}
    told = {"credential auth.password_hash": f"stands beside auth.{key}; keep one of them"}
    environ = give(given)
    config.write_text(f'[auth]\n{key} = "{value}"')
    assert problems(config, environ) == told
    config.write_text("")
    environ[f"SMARTLINKD_AUTH__{key}".upper()] = str(value)
    found = problems(config, environ)
    assert list(found) == ["credential auth.password_hash"]
    assert f"SMARTLINKD_AUTH__{key}".upper() in found["credential auth.password_hash"]
    config.write_text(f'[auth]\npassword_hash = "{HASH}"\npassword_hash_file = "{config}"')
    found = problems(config, {"CREDENTIALS_DIRECTORY": environ["CREDENTIALS_DIRECTORY"]})
    both = "auth.password_hash and auth.password_hash_file"
    assert found == {"credential auth.password_hash": f"stands beside {both}; keep one of them"}


@pytest.mark.parametrize(
    ("folder", "why"), [("/nowhere", "No such file or directory"), ("/dev/null", "Not a directory")]
)
def test_credentials_folder_that_is_none_is_reported_beside_other_faults(
    config: Path, folder: str, why: str
) -> None:
    found = problems(config, {"CREDENTIALS_DIRECTORY": folder})
    assert found[folder].startswith(f"cannot be looked into ({why})")
    assert list(found) == [folder]  # the password may be in there
    config.write_text('[auth]\npassword_hash = "hunter2"')
    found = problems(config, {"CREDENTIALS_DIRECTORY": folder})
    assert list(found) == [folder, "auth.password_hash"]


def test_check_by_hand_reads_the_services_credentials(config: Path, give: Give) -> None:
    give({"auth.password_hash": HASH}, folder="credentials")
    with pytest.raises(ConfigError):
        load(config, {})
    settings = load(config, {}, by_hand=True)
    assert settings.auth.password_hash.get_secret_value() == HASH
    # There it is files like others, and root's alone.
    assert [(w.key, w.remedy) for w in settings.warnings] == [
        (
            "credential auth.password_hash",
            f"chmod 600 {config.parent}/credentials/auth.password_hash",
        )
    ]


def test_credentials_folder_open_to_others_is_a_warning(config: Path, give: Give) -> None:
    give({"auth.password_hash": HASH}, folder="credentials")
    folder = config.parent / "credentials"
    (folder / "auth.password_hash").chmod(0o600)
    assert load(config, {}, by_hand=True).warnings == ()
    folder.chmod(0o755)
    (warning,) = load(config, {}, by_hand=True).warnings
    assert str(warning) == (f"{folder}: is open to other users (mode 0755); chmod 700 {folder}")
    environ = give({"smartlinkd_auth.password_hash": HASH})
    (config.parent / "given").chmod(0o755)
    assert load(config, environ).warnings == ()  # the manager's is guarded otherwise


@pytest.fixture
def encrypted(config: Path) -> Path:
    """The folder of those that nobody but the service can read."""
    folder = config.parent / "credentials.encrypted"
    folder.mkdir(0o700)
    return folder


def test_encrypted_secret_counts_as_given(config: Path, encrypted: Path) -> None:
    apis = '[links]\nsource = "open_api"\n[open_api]\napp_id = "1"\n[products]\nsource = "none"\n'
    config.write_text(apis)
    for section, key in SECRETS:
        (encrypted / f"{section}.{key}").write_bytes(b"\0")
    settings = load(config, {}, by_hand=True)
    assert settings.warnings == ()
    assert settings.encrypted == tuple(f"{section}.{key}" for section, key in SECRETS)
    # The daemon has none of them.
    assert list(problems(config, {})) == ["auth.password_hash", "open_api.secret"]


def test_encrypted_file_of_another_name_is_ignored_and_may_be_a_crews(
    config: Path, encrypted: Path
) -> None:
    for name in ("auth.password_hash", "research.env"):
        (encrypted / name).write_bytes(b"\0")
    assert load(config, {}, by_hand=True).encrypted == ("auth.password_hash",)
    crew_with(config, seen_by(config.parent.name))
    assert environment(load(config, {}, by_hand=True)) == ({}, [])
    (encrypted / "cookie.sink_key").write_bytes(b"\0")
    assert list(problems(config, {}, by_hand=True)) == ["credential cookie.sink_key"]


def test_plain_credential_comes_before_the_encrypted_one(
    config: Path, give: Give, encrypted: Path
) -> None:
    (encrypted / "auth.password_hash").write_bytes(b"\0")
    give({"auth.password_hash": HASH}, folder="credentials")
    settings = load(config, {}, by_hand=True)
    assert settings.auth.password_hash.get_secret_value() == HASH


# What crews are given besides


def seen_by(unit: str, name: str = "smartlinkd_research.env") -> str:
    return f"/run/credentials/{unit}.service/{name}"


def crew_with(config: Path, environment_file: str) -> None:
    config.write_text(
        "[[crews]]\nname = 'research'\nrunner = 'command'\ncommand = ['/bin/true']\n"
        f"environment_file = '{environment_file}'\n"
    )


def environment(settings: Settings) -> tuple[dict[str, str], list[str]]:
    """The one crew's variables, and what is wrong with it."""
    (crew,) = settings.crews
    variables = crew.section.environment if crew.section else {}
    found = {name: value.get_secret_value() for name, value in variables.items()}
    return found, [f"{each.fault}; {each.remedy}" for each in crew.problems]


NOT_THERE = (
    "names a credential that is not there; put research.env among the credentials, and restart: "
    "a reload sees no new ones"
)


def test_crew_file_of_the_service_is_read_from_the_folder(config: Path, give: Give) -> None:
    give({"auth.password_hash": HASH, "research.env": "KEY=hunter2"}, folder="credentials")
    for path in (config.parent / "credentials").iterdir():
        path.chmod(0o600)
    crew_with(config, seen_by(config.parent.name))
    settings = load(config, {}, by_hand=True)
    assert environment(settings) == ({"KEY": "hunter2"}, [])
    assert settings.warnings == ()


@pytest.mark.parametrize(
    "named",
    [seen_by("another"), seen_by("here", "research.env"), "/nowhere/smartlinkd_research.env"],
)
def test_crew_file_of_another_service_is_not_read_from_the_folder(
    tmp_path: Path, config: Path, give: Give, named: str
) -> None:
    give({"auth.password_hash": HASH, "research.env": "KEY=x"}, folder="credentials")
    crew_with(config, named.replace("/here.", f"/{tmp_path.name}."))
    found, faults = environment(load(config, {}, by_hand=True))
    assert found == {}
    assert faults == ["does not exist; make that file, or correct the path"]


def test_new_credential_needs_a_restart(config: Path, give: Give) -> None:
    environ = give({"smartlinkd_auth.password_hash": HASH})
    crew_with(config, f"{config.parent}/given/smartlinkd_research.env")
    assert environment(load(config, environ)) == ({}, [NOT_THERE])
    (config.parent / "given/smartlinkd_research.env").write_text("KEY=x")
    assert environment(load(config, environ)) == ({"KEY": "x"}, [])


def test_service_reads_its_given_credentials_only(config: Path, give: Give) -> None:
    give({"auth.password_hash": HASH}, folder="credentials")
    assert list(problems(config, give({}), by_hand=True)) == ["auth.password_hash"]


def test_state_directory_is_read_without_secrets(config: Path) -> None:
    config.write_text('[state]\ndirectory = "/srv/state"\n[auth]\nunknown = 1\n[[crews]]\n')
    assert state_directory(config, {"SMARTLINKD_NO__SUCH": "1"}) == Path("/srv/state")
    config.write_text("")
    assert state_directory(config, {}) == Path("/var/lib/smartlinkd")
    environ = {"SMARTLINKD_STATE__DIRECTORY": "/elsewhere"}
    assert state_directory(config, environ) == Path("/elsewhere")


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ('[state]\ndirectory = "here"', "state.directory"),
        ("[state]\ndirectroy = 1", "state.directroy"),
        ("state = 3", "state"),
        ("[state", "config.toml"),
    ],
)
def test_fault_of_the_state_directory_is_reported(config: Path, text: str, key: str) -> None:
    config.write_text(text)
    with pytest.raises(ConfigError) as raised:
        state_directory(config, {})
    (problem,) = raised.value.problems
    assert problem.key.endswith(key)


# Files of variables for crews


def read(content: str) -> dict[str, str]:
    return {name: value.get_secret_value() for name, value in parse_variables(content).items()}


@pytest.mark.parametrize(
    ("content", "variables"),
    [
        ("KEY=plain", {"KEY": "plain"}),
        ("KEY=two words", {"KEY": "two words"}),
        ("  KEY = around  ", {"KEY": "around"}),
        ("KEY=", {"KEY": ""}),
        ("KEY=a=b#c", {"KEY": "a=b#c"}),
        ("KEY='as $it \\ is'", {"KEY": "as $it \\ is"}),
        ('KEY="a \\"word\\", \\$5, a \\\\ and \\n"', {"KEY": 'a "word", $5, a \\ and \\n'}),
        ("KEY=it's", {"KEY": "it's"}),
        ("KEY=ünï", {"KEY": "ünï"}),
        ("KEY=value\r", {"KEY": "value"}),
        ("KEY='single' ", {"KEY": "single"}),
        ('KEY="a \\`b\\`"', {"KEY": "a `b`"}),
        ("KEY=no-break\xa0", {"KEY": "no-break\xa0"}),
        ("\n# A=1\n ; B=2\n\nC=3\n", {"C": "3"}),
        ("A=1\r\nB=2\rC=3\x0b4\u20285\n", {"A": "1", "B": "2", "C": "3\x0b4\u20285"}),
    ],
)
def test_variables_are_parsed_as_by_systemd(content: str, variables: dict[str, str]) -> None:
    assert read(content) == variables


def test_file_may_have_128_variables() -> None:
    assert len(read("".join(f"A{i}=x\n" for i in range(128)))) == 128


@pytest.mark.parametrize(
    ("content", "fault"),
    [
        ("A=1\nhunter2", "line 2 is no NAME=VALUE"),
        ("A=1\r\nhunter2", "line 2 is no NAME=VALUE"),
        ("# hunter2\\\nA=1", "line 1 is a comment that ends in a backslash"),
        ("A='hunter2\rB='", "line 1 gives A a value that does not end where its quotes do"),
        ("A='hunter2'B'", "line 1 gives A a value that does not end where its quotes do"),
        ("export A=hunter2", "line 1 begins with `export`"),
        ("1A=hunter2", "line 1 sets what is no name for a variable"),
        ("HOME=hunter2", "line 1 sets what is set by the daemon"),
        ("SMARTLINKD_FD=hunter2", "line 1 sets what is set by the daemon"),
        ("A='hunter2", "line 1 gives A a value that does not end where its quotes do"),
        ('A="hunter2" # why', "line 1 gives A a value that does not end where its quotes do"),
        ("A=hunter2\\", "line 1 gives A a value that has a backslash outside of quotes"),
        ("A=hunter2\0", "line 1 gives A a value that must not hold a NUL character"),
        ("A=hunter2\nA=hunter2", "line 2 sets A again"),
        ("A=" + 32769 * "x", "line 1 gives A a value that must be at most 32768 bytes"),
        ("".join(f"A{i}=hunter2\n" for i in range(129)), "sets more than 128 variables"),
    ],
)
def test_ambiguous_line_is_refused(content: str, fault: str) -> None:
    with pytest.raises(BadValue) as refused:
        parse_variables(content)
    assert fault in refused.value.fault
    assert refused.value.remedy
    assert "hunter2" not in refused.value.fault + refused.value.remedy
