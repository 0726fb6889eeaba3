"""`[[crews]]` in the configuration: its faults are its own, and told as well as any other's."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from smartlinkd.config import ConfigError, build, load
from smartlinkd.config.crews import CrewTable
from smartlinkd.net.addresses import Bind
from tests.config_file import HASH

AUTH = f'[auth]\npassword_hash = "{HASH}"\n'
GOOD = {"name": "greeter", "runner": "command", "command": ["/bin/true"]}

Write = Callable[[str], Path]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    def write_config(text: str) -> Path:
        path = tmp_path / "config.toml"
        path.write_text(AUTH + text)
        path.chmod(0o600)
        return path

    return write_config


@pytest.fixture
def variables(tmp_path: Path) -> Path:
    path = tmp_path / "crew.env"
    path.write_text("MODEL_KEY='hunter2'\n")
    path.chmod(0o600)
    return path


def entry(**keys: object) -> CrewTable:
    """Return a good crew but for these keys; None takes one away."""
    table = {key: value for key, value in {**GOOD, **keys}.items() if value is not None}
    (made,) = build({"auth": {"password_hash": HASH}, "crews": [table]}).crews
    return made


def told(made: CrewTable) -> dict[str, str]:
    assert made.problems
    return {problem.key: f"{problem.fault}; {problem.remedy}" for problem in made.problems}


def test_fault_of_a_crew_is_reported_by_its_name() -> None:
    found = told(
        entry(
            command=[],
            project="research",
            python="/usr/bin/python3",
            default="yes",
            bind="8801",
            inputs=["a", "a"],
            max_running=0,
            queue=1.5,
            deadline=604_801,
            human_deadline=0,
            memory=1024,
            grace=0.1,
            on_restart="retry",
            environment={"no name": "x", "HOME": "x", "A": "x\0"},
            users=["Anna"],
            tools="convert_links",
            enviroment_file="/x",
            allow=[],
        )
    )
    expected = {
        "command": "is missing, and is needed by runner",
        "project": "must be an absolute path",
        "python": "is of no use",
        "default": "true or false",
        "bind": 'for example bind = "127.0.0.1:8801"',
        "inputs": "names one twice",
        "max_running": "must be from 1 to 256 executions; for example max_running = 4",
        "queue": "whole number",
        "deadline": "from 1 to 604800 seconds",
        "human_deadline": "from 1 to 2592000 seconds",
        "memory": "from 16777216 to 274877906944 bytes",
        "grace": "from 1 to 300 seconds",
        "on_restart": 'one of "fail" or "rerun"',
        'environment."no name"': "no name for a variable",
        "environment.HOME": "set by the daemon",
        "environment.A": "NUL",
        "users[0]": 'for example users = ["anna", "shop-frontend"]',
        "tools": "must be a list",
        "enviroment_file": "did you mean environment_file?",
        "allow": "it belongs under [webhooks]",
    }
    told_under = {f'crew "greeter": {key}': part for key, part in expected.items()}
    assert set(told_under) == set(found)
    assert {key: part for key, part in told_under.items() if part not in found[key]} == {}


@pytest.mark.parametrize("name", [None, "Deal Post", 3])
def test_nameless_crew_has_no_section_and_its_faults_are_reported_by_its_place(
    name: object,
) -> None:
    made = entry(name=name, max_running=0)
    assert set(told(made)) == {"crews[0].name", "crews[0].max_running"}
    assert made.section is None


def test_readable_keys_of_a_broken_crew_are_kept() -> None:
    made = entry(users=["anna"], bind="127.0.0.1:8801", default="yes", max_running=0, queue=3)
    assert made.problems
    assert made.section is not None
    assert (made.section.users, made.section.bind) == (("anna",), Bind("127.0.0.1", 8801))
    assert (made.name, made.section.default) == ("greeter", False)
    assert (made.section.max_running, made.section.queue) == (4, 3)


@pytest.mark.parametrize("runner", ["shell", ["command"], None])
def test_crew_whose_runner_is_wrong_keeps_what_else_is_said_of_it(runner: object) -> None:
    """Its interrupted executions wait until it is mended, and its users are told so."""
    made = entry(runner=runner, users=["anna"], on_restart="rerun", default=True)
    assert made.problems
    assert made.section is not None
    assert (made.section.users, made.section.on_restart) == (("anna",), "rerun")
    assert (made.section.default, made.has_environment) == (True, False)


@pytest.mark.parametrize(
    "faulty", ["environment = { 'no name' = 'x' }", "environment_file = 'nowhere.env'"]
)
def test_entry_with_unreadable_variables_has_a_section_and_no_environment(
    write: Write, faulty: str
) -> None:
    crew = "name = 'greeter'\nrunner = 'command'\ncommand = ['/bin/true']\nusers = ['anna']\n"
    (made,) = load(write(f"[[crews]]\n{crew}{faulty}"), {}).crews
    assert made.problems
    assert made.section is not None
    assert (made.section.users, made.has_environment) == (("anna",), False)


@pytest.mark.parametrize(
    ("keys", "needed", "useless"),
    [
        ({"command": None}, ["command"], []),
        ({"project": "/a", "python": "/b"}, [], ["project", "python"]),
        ({"runner": "crewai", "command": None}, ["project", "python"], []),
        ({"runner": "crewai", "project": "/a", "python": "/b"}, [], ["command"]),
    ],
)
def test_key_of_another_runner_is_refused(
    keys: dict[str, object], needed: list[str], useless: list[str]
) -> None:
    found = told(entry(**keys))
    assert sorted(found) == sorted(f'crew "greeter": {key}' for key in needed + useless)
    for key in needed:
        assert "is missing" in found[f'crew "greeter": {key}']
    for key in useless:
        assert "is of no use" in found[f'crew "greeter": {key}']


@pytest.mark.parametrize(
    ("crews", "keys"),
    [
        ("[crews]\nname = 'greeter'", ["crews"]),
        ("crews = 3", ["crews"]),
        ("crews = [3, 'x']", ["crews[0]", "crews[1]"]),
    ],
)
def test_entry_that_is_no_crew_leaves_the_others(
    tmp_path: Path, crews: str, keys: list[str]
) -> None:
    path = tmp_path / "config.toml"
    path.write_text(f"{crews}\n{AUTH}")
    found = load(path, {}).crews
    assert [problem.key for made in found for problem in made.problems] == keys
    assert all(made.name is None and made.section is None for made in found)


def test_configuration_may_have_64_crews() -> None:
    tables = [{**GOOD, "name": f"crew-{number}"} for number in range(65)]
    *good, last = build({"auth": {"password_hash": HASH}, "crews": tables}).crews
    assert all(made.section for made in good)
    assert [problem.key for problem in last.problems] == ["crews[64]"]


def test_environment_variables_define_no_crews(write: Write) -> None:
    with pytest.raises(ConfigError) as raised:
        load(write(""), {"SMARTLINKD_CREWS__NAME": "hunter2"})
    (problem,) = raised.value.problems
    assert problem.key == "SMARTLINKD_CREWS__NAME"
    assert "variables set no crews" in problem.fault
    assert "[[crews]] in the file" in problem.remedy


# --- variables for the worker --------------------------------------------------------------------


def with_file(path: object, more: str = "") -> str:
    return (
        "[[crews]]\nname = 'greeter'\nrunner = 'command'\ncommand = ['/bin/true']\n"
        f"environment_file = '{path}'\n{more}"
    )


def test_variables_of_file_and_table_are_joined(write: Write, variables: Path) -> None:
    settings = load(write(with_file(variables, "environment = { MODEL = 'small' }")), {})
    (made,) = settings.crews
    assert made.section is not None
    found = {k: v.get_secret_value() for k, v in made.section.environment.items()}
    assert found == {"MODEL_KEY": "hunter2", "MODEL": "small"}
    assert settings.warnings == ()


def test_variable_in_file_and_table_is_refused(write: Write, variables: Path) -> None:
    (made,) = load(write(with_file(variables, "environment = { MODEL_KEY = 'x' }")), {}).crews
    assert list(told(made)) == ['crew "greeter": environment.MODEL_KEY']


@pytest.mark.parametrize("key", ["users", "tools", "inputs"])
def test_name_twice_in_a_list_is_refused(key: str) -> None:
    found = told(entry(**{key: ["anna", "anna"]}))
    assert found == {f'crew "greeter": {key}': "names one twice; keep one of them"}


def test_table_may_have_128_variables() -> None:
    variables = {f"A{number}": "x" for number in range(128)}
    assert entry(environment=variables).problems == ()
    found = told(entry(environment=variables | {"B": "x"}))
    assert "must have at most 128 entries" in found['crew "greeter": environment']


def test_variables_over_the_limit_of_a_process_are_refused() -> None:
    environment = {f"A{number}": 32_766 * "x" for number in range(8)}
    assert entry(environment=environment).problems == ()
    assert told(entry(environment=environment | {"A0": 32_767 * "x"})) == {
        'crew "greeter": environment': "comes to more than 262144 bytes; put what is large into "
        "files, and name those"
    }


@pytest.mark.parametrize(
    ("content", "fault"),
    [
        (None, "does not exist"),
        ("nonsense", "line 1 is no NAME=VALUE"),
        (262_145 * "#", "is longer than 262144 bytes"),
    ],
)
def test_fault_of_a_variable_file_is_the_crews(
    write: Write, tmp_path: Path, content: str | None, fault: str
) -> None:
    path = tmp_path / "other.env"
    if content is not None:
        path.write_text(content)
    (made,) = load(write(with_file(path)), {}).crews
    found = told(made)
    assert list(found) == ['crew "greeter": environment_file']
    assert fault in found['crew "greeter": environment_file']


def test_variable_file_open_to_others_is_a_warning(write: Write, variables: Path) -> None:
    variables.chmod(0o644)
    (warning,) = load(write(with_file(variables)), {}).warnings
    assert warning.key == 'crew "greeter": environment_file'
    assert warning.remedy == (
        f"chmod 600 {variables} if the daemon's user owns it, else make it a credential"
    )


def test_variables_in_a_public_configuration_are_a_warning(write: Write) -> None:
    path = write("[[crews]]\nname = 'a'\nenvironment = { KEY = 'hunter2' }")
    path.chmod(0o644)
    password, environment = load(path, {}).warnings
    assert (password.key, environment.key) == ("auth.password_hash", 'crew "a": environment')
    assert environment.remedy == (
        "keep it as a credential or in a file of its own (environment_file), "
        f"or chmod 600 {path} if the daemon's user owns that"
    )


def test_value_of_a_variable_is_in_no_problem_and_no_repr(write: Write, variables: Path) -> None:
    path = write(
        with_file(variables, "environment = { A = 'hunter2', B = 'hunter2\\u0000' }")
        + "\n[[crews]]\nenvironment = 'hunter2'\n"
        + "\n[[crews]]\nenvironment = { A = ['hunter2'] }\n"
    )
    made = load(path, {}).crews
    assert "hunter2" not in repr(made) + "".join(map(str, made[0].problems + made[1].problems))
    (good,) = load(write(with_file(variables)), {}).crews
    assert good.section is not None
    assert "hunter2" not in repr(good.section) + str(good.section)
