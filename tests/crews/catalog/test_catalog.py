"""From the configuration to crews that can run: what each comes to, and what two may not share."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from smartlinkd.auth.passwords import hash_password
from smartlinkd.config import build
from smartlinkd.crews.catalog.catalog import ADAPTER, Catalog, read_catalog
from smartlinkd.crews.model import BrokenCrew, Input
from smartlinkd.errors import NotFound, Unavailable
from smartlinkd.net.addresses import Bind

HASH = hash_password("correct horse")
Table = dict[str, object]


def read(*crews: Table, **sections: object) -> Catalog:
    tables = {"auth": {"password_hash": HASH}, **sections, "crews": list(crews)}
    return read_catalog(build(tables))


def command(name: str, **keys: object) -> Table:
    return {"name": name, "runner": "command", "command": ["/bin/true"], **keys}


def told(crew: BrokenCrew) -> dict[str, str]:
    return {problem.key: f"{problem.fault}; {problem.remedy}" for problem in crew.problems}


@pytest.fixture
def crewai(tmp_path: Path) -> Callable[..., Table]:
    """A crew of a CrewAI project, whose Python finds a package `crewai`."""
    (tmp_path / "lib" / "crewai").mkdir(parents=True)
    (tmp_path / "lib" / "crewai" / "__init__.py").touch()
    config = tmp_path / "project" / "src" / "news" / "config"
    config.mkdir(parents=True)
    (config.parent / "crew.py").touch()
    (config / "tasks.yaml").write_text("find:\n  description: Find {topic} of {year}\n")

    def table(**keys: object) -> Table:
        return {
            "name": "news",
            "runner": "crewai",
            "project": str(tmp_path / "project"),
            "python": sys.executable,
            "environment": {"PYTHONPATH": str(tmp_path / "lib")},
            **keys,
        }

    return table


def test_command_entry_becomes_a_crew() -> None:
    catalog = read(
        command(
            "greeter",
            command=["sh", "-c", "exit"],
            inputs=["name", {"name": "tone", "default": "warm", "description": "of the greeting"}],
            max_running=1,
            queue=2,
            deadline=3,
            human_deadline=4,
            memory=2**25,
            grace=5,
            on_restart="rerun",
            users=["anna"],
            tools=["convert_links"],
            bind="127.0.0.1:8801",
            environment={"KEY": "hunter2"},
        )
    )
    assert catalog.broken == ()
    crew = catalog.crew("greeter")
    assert crew.worker.command == ("sh", "-c", "exit")
    assert crew.worker.environment == {"KEY": "hunter2"}
    assert (crew.worker.memory, crew.worker.grace) == (2**25, 5.0)
    assert crew.inputs == (Input("name"), Input("tone", False, "warm", "of the greeting"))
    assert (crew.max_running, crew.queue, crew.deadline, crew.human_deadline) == (1, 2, 3.0, 4.0)
    assert (crew.on_restart, crew.users, crew.tools) == ("rerun", ("anna",), ("convert_links",))
    assert crew.bind == Bind("127.0.0.1", 8801)
    assert "hunter2" not in repr(catalog)


def test_crewai_entry_becomes_a_crew(crewai: Callable[..., Table], tmp_path: Path) -> None:
    catalog = read(crewai(inputs=[{"name": "year", "default": 2030}, "more"]))
    assert catalog.broken == ()
    crew = catalog.crew("news")
    assert crew.worker.command == (sys.executable, str(ADAPTER), str(tmp_path / "project"))
    assert ADAPTER.is_file()
    assert crew.inputs == (Input("topic"), Input("year", False, 2030), Input("more"))


@pytest.mark.parametrize(
    "fault", [{"command": ["/nowhere"]}, {"memory": "much"}, {"environment": {"no name": "x"}}]
)
def test_broken_crew_keeps_its_on_restart(fault: Table) -> None:
    """Whatever is wrong with it, and be it that nothing else can be looked at."""
    broken = read(command("a", on_restart="rerun", **fault), command("b", **fault)).broken
    assert [each.on_restart for each in broken] == ["rerun", "fail"]


def test_broken_crew_keeps_its_name_users_and_bind() -> None:
    catalog = read(
        command("good", users=["anna"]),
        command("bad", command=["/nowhere"], users=["bob"], bind="127.0.0.1:8802", default=True),
        command("Bad", command=["/nowhere"], users=["carl"], bind="127.0.0.1:8803"),
    )
    assert list(catalog.crews) == ["good"]
    assert [crew.name for crew in catalog.broken] == ["bad", None]
    assert catalog.default == "bad"
    assert catalog.names() == ("good", "bad")
    assert catalog.users() == {"good": ("anna",), "bad": ("bob",)}
    assert catalog.binds() == {"bad": Bind("127.0.0.1", 8802)}
    with pytest.raises(Unavailable, match="check-config") as refused:
        catalog.crew("bad")
    assert refused.value.retry_after == 60
    for name in ("Bad", "none", ""):
        with pytest.raises(NotFound):
            catalog.crew(name)


def test_all_faults_of_a_crew_are_named_at_once(
    crewai: Callable[..., Table], tmp_path: Path
) -> None:
    tasks = tmp_path / "project/src/news/config/tasks.yaml"
    tasks.write_text("find: [")
    catalog = read(
        command("a", default=True),
        crewai(python="/nowhere", default=True, tools=["convert_links", "shell"]),
        crewai(name="gone", project="/nowhere/project"),
        command("wrong", command=["relative/x"], max_running=0, tools=["shell"]),
        command("blind", command=["relative/x"], environment={"PATH": 3}),
    )
    news, gone, wrong, blind = map(told, catalog.broken)
    assert set(news) == {
        f'crew "news": {key}' for key in ("default", "tools[1]", "python", "project")
    }
    assert "convert_links" in news['crew "news": tools[1]']
    assert "tasks.yaml is not YAML in line 1" in news['crew "news": project']
    assert set(gone) == {'crew "gone": project'}
    assert set(wrong) == {f'crew "wrong": {key}' for key in ("max_running", "tools[0]", "command")}
    assert set(blind) == {'crew "blind": environment.PATH'}


def test_problem_text_is_printable_whatever_the_file_is_called(
    crewai: Callable[..., Table], tmp_path: Path
) -> None:
    """A name may be bytes that are no UTF-8, or what a terminal takes for an order."""
    package = os.fsencode(tmp_path / "project/src") + b"/\xff\n\x1b[2J"
    (tmp_path / "project/src/news").rename(os.fsdecode(package))
    tasks = Path(os.fsdecode(package), "config", "tasks.yaml")
    tasks.write_text("find: [")
    (news,) = read(crewai()).broken
    told = [str(problem) for problem in news.problems]
    assert [each.split(" is not")[0] for each in told] == [
        r'crew "news": project: src/\udcff\n\x1b[2J/config/tasks.yaml'
    ]


# --- what two cannot both have -------------------------------------------------------------------


def test_second_crew_of_a_name_is_broken() -> None:
    catalog = read(command("a", users=["anna"]), command("a", users=["bob"], bind="127.0.0.1:1"))
    (second,) = catalog.broken
    assert told(second) == {
        "crews[1].name": 'is "a", as is that of crews[0]; give one of them another name'
    }
    assert second.name is None
    assert catalog.users() == {"a": ("anna",)}
    assert catalog.binds() == {}


def test_second_default_crew_is_broken() -> None:
    catalog = read(command("a"), command("b", default=True), command("c", default=True))
    assert catalog.default == "b"
    (third,) = catalog.broken
    assert told(third) == {
        'crew "c": default': 'is true, and "b" is the default already; leave one of the two'
    }


@pytest.mark.parametrize(
    ("server", "own"),
    [
        ("127.0.0.1:8787", "127.0.0.1:8787"),
        ("0.0.0.0:8787", "127.0.0.1:8787"),
        ("[::]:8787", "127.0.0.1:8787"),
        ("127.0.0.1:8787", "0.0.0.0:8787"),
        ("localhost:8787", "127.0.0.1:8787"),
        ("[::1]:8787", "localhost:8787"),
        ("links.example:8787", "LINKS.example:8787"),
    ],
)
def test_bind_at_the_daemons_own_address_is_broken(server: str, own: str) -> None:
    (crew,) = read(command("a", bind=own), server={"bind": server}).broken
    assert "(server.bind) listens already" in told(crew)['crew "a": bind']
    assert (crew.name, crew.bind) == ("a", None)


def test_second_crew_of_a_bind_is_broken() -> None:
    catalog = read(*(command(name, bind="127.0.0.1:8801") for name in "ab"))
    assert catalog.binds() == {"a": Bind("127.0.0.1", 8801)}
    (second,) = catalog.broken
    assert told(second) == {
        'crew "b": bind': 'is where the crew "a" listens already; choose another port'
    }
