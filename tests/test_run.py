"""`./run` and `.ci/run` without a network.

The script runs in its own folder, with a PATH that has only stubs. They record their calls, which
are those of a fresh machine.
"""

from __future__ import annotations

import fcntl
import shutil
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
# Programs that every Debian has.
ESSENTIAL = (
    "bash",
    "cat",
    "cp",
    "dirname",
    "env",
    "mkdir",
    "mktemp",
    "paste",
    "readlink",
    "rm",
    "sed",
    "sh",
    "touch",
    "xargs",
)
CHROMIUM = "chromium-headless-shell"
TEST_TOOLS = (CHROMIUM, "chromium", "curl", "oathtool", "zbarimg")

PYTHON = f"""
case "$*" in
"-m venv --clear .venv" | "-m venv --clear .venv-"[a-z]*)
    note "${{4#.}}"
    rm -f "$4/made-from"
    mkdir -p "$4/bin"
    for name in python ruff mypy lint-imports smartlinkd; do
        cp "$STUBS/in-venv" "$4/bin/$name"
    done ;;
*) exec {sys.executable} "$@" ;;
esac
"""
IN_VENV = """
name=${0##*/}
if [ "$name" = python ]; then shift; name=; fi
note "${name:+$name }$*"
case "$name $*" in *"${BROKEN:-no such call}"*) echo "it broke"; exit 3 ;; esac
"""


@dataclass
class Clone:
    """A fresh clone on a machine that has only stubs."""

    folder: Path
    programs: Path
    environment: dict[str, str] = field(default_factory=dict)

    def write_stub(self, name: str, body: str = ":") -> None:
        path = self.programs / name
        path.write_text(f'#!/bin/sh\nnote() {{ echo "$*" >>"$CALLS"; }}\n{body}\n')
        path.chmod(0o755)

    def start(self, *command: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            command,
            cwd=self.folder,
            env={
                "PATH": str(self.programs),
                "STUBS": str(self.programs),
                "CALLS": str(self.programs / "calls"),
                "TMPDIR": str(self.programs),
                **self.environment,
            },
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def run(self, *arguments: str, program: str = "./run") -> tuple[int, str, str]:
        """Return exit code, standard output and standard error."""
        with self.start(program, *arguments) as process:
            out, err = process.communicate(timeout=30)
        return process.returncode, out, err

    def calls(self) -> list[str]:
        """Return the recorded calls since the last call of this method."""
        path = self.programs / "calls"
        lines = path.read_text().splitlines() if path.exists() else []
        path.unlink(missing_ok=True)
        return lines


@pytest.fixture
def clone(tmp_path: Path) -> Clone:
    """A clone on a machine with Python and Chromium, used by root."""
    made = Clone(tmp_path / "clone", tmp_path / "bin")
    made.folder.mkdir()
    made.programs.mkdir()
    (made.folder / ".ci").mkdir()
    for name in ("run", ".ci/run", "pyproject.toml"):
        shutil.copy(ROOT / name, made.folder / name)
    for path in ROOT.glob("requirements*.txt"):
        shutil.copy(path, made.folder)
    shutil.copytree(ROOT / "systemd", made.folder / "systemd")
    (made.folder / "daemon/smartlinkd").mkdir(parents=True)
    shutil.copytree(ROOT / "daemon/smartlinkd/deploy", made.folder / "daemon/smartlinkd/deploy")
    (made.folder / "tests/systemd").mkdir(parents=True)
    shutil.copy(ROOT / "tests/systemd/container.sh", made.folder / "tests/systemd/container.sh")
    for name in ESSENTIAL:
        found = shutil.which(name)
        assert found is not None
        (made.programs / name).symlink_to(found)
    made.write_stub("id", "echo 0")
    made.write_stub("python3", PYTHON)
    made.write_stub("in-venv", IN_VENV)
    made.write_stub(CHROMIUM)
    made.write_stub("apt-get", 'note "apt-get $*"')
    return made


PIP = "pip --disable-pip-version-check --no-input"
SET_UP = [
    "venv",
    f"{PIP} install -r requirements.txt",
    f"{PIP} install --no-deps --no-build-isolation -e .",
]
CHECKS = ["ruff check .", "ruff format --check .", "mypy ", "lint-imports --no-logo --no-cache"]
PYTEST = "pytest -n 3 --dist loadfile --no-loadscope-reorder"


@pytest.mark.parametrize(
    ("arguments", "code"), [((), 2), (("tets",), 2), (("help",), 0), (("--help",), 0)]
)
def test_unknown_command_prints_the_usage(
    clone: Clone, arguments: tuple[str, ...], code: int
) -> None:
    found, out, err = clone.run(*arguments)
    assert found == code
    assert "usage: ./run demo" in (err if code else out)
    assert clone.calls() == []


def test_clone_is_set_up_once_and_again_when_its_requirements_change(clone: Clone) -> None:
    code, _, err = clone.run("demo", "--once")
    assert code == 0
    assert clone.calls() == [*SET_UP, "smartlinkd demo --once"]
    assert [line.split()[:2] for line in err.splitlines()] == [
        ["run:", "making"],
        ["run:", "installing"],
        ["run:", "installing"],
    ]
    code, _, err = clone.run("demo")
    assert (code, clone.calls(), err) == (0, ["smartlinkd demo"], "")
    for name in ("requirements.txt", "pyproject.toml"):
        with (clone.folder / name).open("a") as file:
            file.write("# another line\n")
        clone.run("demo")
        assert clone.calls() == [*SET_UP, "smartlinkd demo"]


def test_failed_set_up_says_why_and_is_repeated(clone: Clone) -> None:
    clone.environment["BROKEN"] = "-e ."
    code, _, err = clone.run("demo")
    assert code == 1
    assert "it broke\nrun: failed with exit code 3: .venv/bin/python -m pip" in err
    assert clone.calls() == SET_UP
    clone.environment.clear()
    assert clone.run("demo")[0] == 0
    assert clone.calls() == [*SET_UP, "smartlinkd demo"]


@pytest.mark.parametrize(
    ("gone", "instead", "told"),
    [
        (
            [],
            {"python3": "exit 1"},
            ["Python 3.11 or later is needed", "apt-get install python3 python3-venv"],
        ),
        ([CHROMIUM], {"id": "echo 1000"}, [f"as root: apt-get install {CHROMIUM}"]),
        (
            [CHROMIUM, "apt-get"],
            {},
            [f"there is no apt-get here: {CHROMIUM}\n", "install Google Chrome's own package\n"],
        ),
    ],
    ids=["an old Python", "no sudo", "no apt"],
)
def test_missing_program_is_an_error_with_its_remedy(
    clone: Clone, gone: list[str], instead: dict[str, str], told: list[str]
) -> None:
    for name in gone:
        (clone.programs / name).unlink()
    for name, body in instead.items():
        clone.write_stub(name, body)
    code, _, err = clone.run("demo")
    assert code == 1
    assert [text for text in told if text not in err] == []


def test_debians_python_gets_its_venv(clone: Clone) -> None:
    without = f'case "$*" in *ensurepip*) [ -e "$STUBS/has-venv" ] ;; *) {PYTHON} ;; esac'
    clone.write_stub("python3", without)
    clone.write_stub("apt-get", 'note "apt-get ${7-$5}"; touch "$STUBS/has-venv"')
    assert clone.run("demo")[0] == 0
    assert clone.calls() == [
        "apt-get update",
        "apt-get python3-venv",
        *SET_UP,
        "smartlinkd demo",
    ]


def test_a_missing_chromium_is_installed(clone: Clone) -> None:
    (clone.programs / CHROMIUM).unlink()
    code, _, err = clone.run("demo")
    assert code == 0
    lock = "-o DPkg::Lock::Timeout=600"
    assert clone.calls()[3:] == [
        f"apt-get -q -y {lock} update",
        f"apt-get -q -y {lock} install --no-install-recommends {CHROMIUM}",
        "smartlinkd demo",
    ]
    assert f"run: installing Debian's {CHROMIUM}" in err


@pytest.mark.parametrize("other", ["chromium", "google-chrome"])
def test_demo_uses_any_installed_chromium(clone: Clone, other: str) -> None:
    (clone.programs / CHROMIUM).rename(clone.programs / other)
    clone.run("demo")
    assert clone.calls() == [*SET_UP, "smartlinkd demo"]


def test_snap_is_not_used_as_chromium(clone: Clone) -> None:
    """Ubuntu's snaps are links to the program that starts them."""
    clone.write_stub("snap")
    (clone.programs / CHROMIUM).unlink()
    (clone.programs / "chromium").symlink_to("snap")
    clone.write_stub("apt-get", "exit 100")
    code, _, err = clone.run("demo")
    assert code == 1
    assert err.splitlines()[-1].endswith("install Google Chrome's own package")


def test_installation_continues_without_chromium(
    clone: Clone,
) -> None:
    script = clone.folder / "systemd/install.sh"
    text = script.read_text().replace("/run/systemd/system", str(clone.folder))
    script.write_text(text.replace("VERSIONS=/opt", f"VERSIONS={clone.folder}/opt"))
    (clone.programs / CHROMIUM).unlink()
    clone.write_stub("apt-get", "exit 100")
    clone.write_stub("systemctl", "echo systemd 252")
    (clone.programs / "mkdir").unlink()
    clone.write_stub("mkdir", 'note "mkdir $*"; exit 1')  # the first step of the installation
    code, _, err = clone.run("install")
    assert code == 1
    assert err.splitlines()[-1].startswith("run: there is no Chromium here: ")
    assert clone.calls() == [f"mkdir -p {clone.folder}/opt/smartlinkd"]


def test_installed_documents_are_readable_for_all_users(clone: Clone) -> None:
    for tool in ("chmod", "date", "stat"):
        clone.programs.joinpath(tool).symlink_to(str(shutil.which(tool)))
    script = clone.folder / "systemd/install.sh"
    text = script.read_text().replace("/run/systemd/system", str(clone.folder))
    text = text.replace("/usr/bin/python3 /usr/local/bin/python3", "")
    script.write_text(text.replace("VERSIONS=/opt", f"VERSIONS={clone.folder}/opt"))
    (clone.folder / "extension").mkdir(0o700)
    for name in ("README.md", "config.example.toml", "extension/manifest.json"):
        (clone.folder / name).touch(0o600)
    clone.write_stub("systemctl", "echo systemd 252")
    clone.write_stub(
        "python3",
        'case "$*" in *"venv --clear"*) mkdir -p "$4/bin"; cp "$STUBS/in-venv" "$4/bin/python" ;;'
        f' *) exec {sys.executable} "$@" ;; esac',
    )
    shared = "${0%/bin/*}/share/smartlinkd"
    names = ("config.example.toml", "extension", "extension/manifest.json")
    paths = " ".join(f'"{shared}/{name}"' for name in names)
    modes = f"echo $(stat -c %a {paths})"
    clone.write_stub("in-venv", f'case "$*" in *smartlinkd.deploy*) note "$({modes})" ;; esac')
    code, _, err = clone.run("install")
    assert (code, clone.calls()) == (0, ["644 755 644"]), err


def test_sudo_is_announced_and_used_without_root(clone: Clone) -> None:
    (clone.programs / CHROMIUM).unlink()
    clone.write_stub("id", "echo 1000")
    clone.write_stub("sudo", 'note "sudo $1 $3"; exec "$@"')
    code, _, err = clone.run("demo")
    assert code == 0
    assert clone.calls()[3::2] == ["sudo env apt-get", "sudo env apt-get", "smartlinkd demo"]
    assert err.index("sudo will be used") < err.index("refreshing")


@pytest.mark.parametrize(
    ("broken", "code", "last"),
    [
        ("", 0, []),
        ("ruff format", 1, ["run: failed before the tests: ruff format"]),
        ("mypy", 1, ["run: failed before the tests: mypy"]),
        ("lint-imports", 1, ["run: failed before the tests: layers"]),
        ("pytest", 3, []),
    ],
)
def test_tests_come_after_four_checks_and_one_that_fails_stops_no_other(
    clone: Clone, broken: str, code: int, last: list[str]
) -> None:
    for tool in TEST_TOOLS:
        clone.write_stub(tool)
    clone.environment["BROKEN"] = broken
    found, _, err = clone.run("test", "-k", "two words")
    assert found == code
    assert clone.calls() == [*SET_UP, *CHECKS, f"{PYTEST} -k two words"]
    stages = [f"run: {each}" for each in ("ruff check", "ruff format", "mypy", "layers", "pytest")]
    assert err.splitlines()[3:] == [*stages, *last]


@pytest.mark.parametrize("action", ["install", "uninstall"])
def test_only_root_can_install(clone: Clone, action: str) -> None:
    clone.write_stub("systemctl", "echo systemd 252")
    clone.write_stub("id", "echo 1000")
    code, _, err = clone.run(action)
    assert code == 1
    assert err == f"run: only root can do that: sudo ./run {action}\n"
    assert clone.calls() == []


@pytest.mark.parametrize(
    ("arguments", "systemd", "code", "told"),
    [
        (["--instace", "a"], 252, 2, "unrecognized arguments: --instace a"),
        (["--bind", "8787"], 252, 2, "argument --bind: must be an IP address"),
        ([], 247, 1, "systemd 252 or newer is needed"),
        (["--help"], 247, 0, "usage: ./run demo"),
    ],
)
def test_installation_is_refused_before_anything_is_made(
    clone: Clone, arguments: list[str], systemd: int, code: int, told: str
) -> None:
    (clone.programs / CHROMIUM).unlink()
    clone.write_stub("systemctl", f"echo systemd {systemd}")
    found, out, err = clone.run("install", *arguments)
    assert found == code
    assert told in out + err
    assert clone.calls() == []


def test_concurrent_run_waits_for_the_set_up(clone: Clone) -> None:
    with (clone.folder / "requirements.txt").open() as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        with clone.start("./run", "demo") as waiting:
            assert waiting.stderr is not None
            assert waiting.stderr.readline() == (
                "run: another ./run is setting up here; waiting for it\n"
            )
            assert clone.calls() == []
            fcntl.flock(held, fcntl.LOCK_UN)
            waiting.communicate(timeout=30)
    assert waiting.returncode == 0
    assert clone.calls() == [*SET_UP, "smartlinkd demo"]


def test_the_lock_is_gone_before_the_program_starts(clone: Clone) -> None:
    clone.write_stub(
        "in-venv", IN_VENV + '[ ! -e /proc/self/fd/9 ] || [ "$name" = "" ] || note locked'
    )
    clone.run("demo")
    assert "locked" not in clone.calls()


@pytest.mark.parametrize(("broken", "status"), [("", 0), ("pytest", 3)])
def test_ci_runs_the_tests_and_the_systemd_tests(clone: Clone, broken: str, status: int) -> None:
    for tool in TEST_TOOLS:
        clone.write_stub(tool)
    clone.environment |= {"CI": "true", "BROKEN": broken}
    code, out, _ = clone.run(program=".ci/run")
    assert code == status
    assert clone.calls() == [*SET_UP, *CHECKS, PYTEST]
    assert out.splitlines()[-1].startswith("run: the tests under systemd are SKIPPED: ")


def test_nightly_run_fails_where_the_systemd_tests_are_skipped(clone: Clone) -> None:
    for tool in ("date", "git"):
        clone.write_stub(tool, "[ $1 = status ] || echo 0")
    code, _, err = clone.run("nightly")
    assert code == 1
    last = err.splitlines()[-1]
    assert last.startswith("run: failed: test --systemd --nightly,")
    assert "--coverage" not in last
    assert not (clone.folder / ".ci/nightly").exists()
