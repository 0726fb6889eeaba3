"""The client commands, used by a person and by a script, with a daemon and the sandbox."""

from __future__ import annotations

import csv
import io
import json
import os
import re
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
import trio

from tests.contract.keys import make_key
from tests.e2e.conftest import ROOT, Account, Daemon, Portal


class Shell:
    """A user of a machine, who runs `smartlinkd`. The home directory is empty at first."""

    def __init__(self, home: Path, daemon: Daemon) -> None:
        self.home = home
        self.daemon = daemon

    def environment(self) -> dict[str, str]:
        return {
            "PATH": os.environ["PATH"],
            "HOME": str(self.home),
            "SMARTLINKD_URL": self.daemon.url,
        }

    async def run(
        self, *words: str, stdin: str = "", env: dict[str, str] | None = None
    ) -> tuple[int, str, str]:
        """Return the exit code, standard output and standard error, which must hold no secret."""
        done = await trio.run_process(
            [sys.executable, "-m", "smartlinkd", *words],
            cwd=ROOT,
            env=env or self.environment(),
            stdin=stdin.encode(),
            capture_stdout=True,
            capture_stderr=True,
            check=False,
        )
        out, err = done.stdout.decode(), done.stderr.decode()
        assert not self.daemon.secrets_in(err)
        return done.returncode, out, err


@pytest.fixture
async def shell(tmp_path: Path, crew_daemon: Daemon, portal: Portal) -> Shell:
    """A user who is logged in to a daemon with a stored cookie."""
    account = portal.account()
    await crew_daemon.sync(account)
    shell = Shell(tmp_path, crew_daemon)
    scopes = [f"--scope={scope}" for scope in ("convert", "history", "status", "crews")]
    code, out, err = await shell.run("login", *scopes, stdin=f"{crew_daemon.password}\n")
    assert (code, out) == (0, ""), err
    kept = json.loads((tmp_path / ".config/smartlinkd/login.json").read_text())
    crew_daemon.secrets.add(kept["key"])
    return shell


def rows(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text)))


async def test_login_keeps_a_private_key_and_logout_ends_it(shell: Shell) -> None:
    kept = shell.home / ".config/smartlinkd/login.json"
    assert kept.stat().st_mode & 0o777 == 0o600
    key = json.loads(kept.read_text())["key"]
    assert (await shell.daemon.ask("GET", "/api/account", token=key)).status_code == 200
    assert (await shell.run("logout"))[0] == 0
    assert not kept.exists()
    assert (await shell.daemon.ask("GET", "/api/account", token=key)).status_code == 403


async def test_links_are_converted_in_order_as_text(shell: Shell, portal: Portal) -> None:
    items = [portal.item() for _ in range(17)]
    links = [portal.link(item) for item in items]
    code, out, err = await shell.run("convert", *links)
    assert (code, err) == (0, "")
    shorts = out.splitlines()
    assert len(shorts) == 17
    history = json.loads((await shell.run("history", "--json", "--limit", "17"))[1])
    assert {each["link"]: each["shortLink"] for each in history} == dict(
        zip(links, shorts, strict=True)
    )


async def test_some_and_no_links_have_their_exit_codes(shell: Shell, portal: Portal) -> None:
    good, bad = portal.link(portal.item()), "https://example.org/nothing"
    assert (await shell.run("convert", good, bad))[0] == 3
    assert (await shell.run("convert", bad))[:2] == (1, f"{bad}\n")


@pytest.mark.parametrize("option", ["--format=csv", "--format=json", "--format=text", "--text"])
async def test_link_that_is_not_utf_8_is_printed_with_question_marks(
    shell: Shell, option: str
) -> None:
    # As in most locales; in the locale C, Python prints such bytes as they are.
    env = shell.environment() | {"PYTHONIOENCODING": "utf-8:strict"}
    link = os.fsdecode(b"https://x\xff")
    code, out, err = await shell.run("convert", option, link, env=env)
    assert (code, err) == (0 if option == "--text" else 1, "")
    assert "https://x?" in out


async def test_csv_keeps_its_columns_and_replaces_its_output(shell: Shell, portal: Portal) -> None:
    source, output = shell.home / "in.csv", shell.home / "out.csv"
    links = [portal.link(portal.item()) for _ in range(3)]
    lines = [f"{number};{link}" for number, link in enumerate(links)]
    source.write_text("\ufeffstt;sản phẩm\r\n" + "\r\n".join(lines))
    code, out, err = await shell.run(
        "convert", f"--file={source}", "--column=sản phẩm", f"--output={output}"
    )
    assert (code, out, err) == (0, "", "")
    found = rows(output.read_text(encoding="utf-8-sig"))
    assert [row["sản phẩm"] for row in found] == links
    assert all(row["shortLink"].startswith(portal.origins.short) for row in found)
    assert sorted(path.name for path in shell.home.glob("*.csv*")) == ["in.csv", "out.csv"]


async def test_interrupted_run_goes_on_where_it_was(
    shell: Shell, portal: Portal, slow_submits: None
) -> None:
    links = [portal.link(portal.item()) for _ in range(45)]
    source, output = shell.home / "links.txt", shell.home / "out.json"
    source.write_text("\n".join(links))
    words = ["convert", f"--file={source}", f"--output={output}"]
    part = output.with_name("out.json.part")
    log = shell.home / "stderr"
    with log.open("wb") as stderr:
        process = await trio.lowlevel.open_process(
            # A shell gives a background job, such as a test run, an ignored SIGINT.
            ["env", "--default-signal=INT", sys.executable, "-m", "smartlinkd", *words],
            cwd=ROOT,
            env=shell.environment(),
            stderr=stderr,
        )

    async def some_are_done() -> bool:
        return part.exists() and part.read_text().count("\n") > 15

    await shell.daemon.until("some results", some_are_done)
    process.send_signal(signal.SIGINT)
    await process.wait()
    told = log.read_text()
    done = re.search(r"(\d+) of 45 are done and kept; to go on, run the same command again", told)
    assert done is not None, told
    assert process.returncode == 3
    assert not output.exists()
    code, _, err = await shell.run(*words)
    assert code == 0
    assert f"{done[1]} results are in" in err
    assert [each["link"] for each in json.loads(output.read_text())] == links
    assert not part.exists()


async def test_text_keeps_all_but_its_links(shell: Shell, portal: Portal) -> None:
    link = portal.link(portal.item())
    code, out, err = await shell.run("convert", "--text", stdin=f"🔥 Deal: {link} nhanh!\n")
    assert (code, err) == (0, "")
    assert re.fullmatch(rf"🔥 Deal: {portal.origins.short}/\w+ nhanh!\n", out)
    code, found, _ = await shell.run("convert", "--text", "--json", link)
    assert (code, json.loads(found)["text"]) == (0, out.split()[2])


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--server=http://127.0.0.1:1", "x"], "there is no key for http://127.0.0.1:1"),
        (["--file=none.csv"], "No such file"),
        (["--file=README.md", "--column=link"], "CSV"),
        (["--key-file=README.md", "x"], "the key is not one of smartlinkd's"),
    ],
)
async def test_wrong_usage_is_one_sentence_and_exit_code_2(
    shell: Shell, words: Sequence[str], says: str
) -> None:
    code, out, err = await shell.run("convert", *words)
    assert (code, out) == (2, "")
    assert says in err
    assert err.count("\n") == 1


async def test_full_output_is_one_sentence(shell: Shell, portal: Portal) -> None:
    link = portal.link(portal.item())
    command = f"{sys.executable} -m smartlinkd convert --format csv '{link}' > /dev/full"
    done = await trio.run_process(
        ["sh", "-c", command],
        cwd=ROOT,
        env=shell.environment(),
        capture_stderr=True,
        check=False,
    )
    assert done.returncode == 1
    says = "smartlinkd: the output cannot be written: No space left on device\n"
    assert done.stderr.decode() == says


async def test_damaged_login_says_what_to_do(shell: Shell) -> None:
    kept = shell.home / ".config/smartlinkd/login.json"
    kept.write_text("{")
    code, _, err = await shell.run("convert", "x")
    assert code == 2
    assert "is damaged" in err
    assert "delete it, which makes you run `smartlinkd login` again" in err


async def test_wrong_key_and_unreachable_server_say_what_to_do(shell: Shell) -> None:
    env = shell.environment() | {"SMARTLINKD_KEY": "slk_wrong"}
    code, _, err = await shell.run("convert", "x", env=env)
    assert code == 1
    assert "make a new one" in err
    env["SMARTLINKD_URL"] = "http://127.0.0.1:1"
    code, _, err = await shell.run("convert", "x", env=env)
    assert code == 2
    assert "check that the daemon runs" in err
    assert (await shell.run("history", "--format=csv", env=env))[:2] == (2, "")


async def test_crew_runs_is_followed_and_listed(shell: Shell, portal: Portal) -> None:
    link = f"links={portal.link(portal.item())}"
    code, out, err = await shell.run("crew", "run", "deal-post", "-i", link, "--follow")
    assert code == 0, err
    assert portal.origins.short in out
    assert "analyst: Rank the deals" in err
    kickoff_id = (await shell.run("crew", "run", "deal-post", "-i", link))[1].strip()
    code, result, _ = await shell.run("crew", "follow", "deal-post", kickoff_id)
    assert (code, result) == (0, out)
    assert kickoff_id in (await shell.run("crew", "executions", "deal-post"))[1]
    code, _, err = await shell.run("crew", "stop", "deal-post", kickoff_id)
    assert code == 1
    assert "ended" in err
    code, _, err = await shell.run("crew", "run", "deal-post")
    assert (code, err.count("\n")) == (1, 1)
    assert "links" in err
    code, _, err = await shell.run("crew", "run", "deal-post", "-i", "links:=" + "[" * 100_000)
    assert (code, "its value is no JSON" in err) == (2, True)


async def test_daemon_commands_use_the_api_and_say_so(shell: Shell) -> None:
    code, out, err = await shell.run("status", "--json")
    assert code == 0
    assert json.loads(out)["cookie"]["accountName"] == "Affiliate"
    assert err == f"smartlinkd: at {shell.daemon.url} (SMARTLINKD_URL)\n"
    password = f"{shell.daemon.password}\n"
    code, out, err = await shell.run("keys", "list", "--json", stdin=password)
    assert code == 0, err
    assert any("crews" in key["scopes"] for key in json.loads(out)["keys"])
    code, token, _ = await shell.run("crew", "token", "deal-post", stdin=password)
    shell.daemon.secrets.add(token.strip())
    assert code == 0
    answer = await shell.daemon.ask("GET", "/crews/deal-post/inputs", token=token.strip())
    assert answer.status_code == 200


async def test_cookie_is_synced_from_standard_input_alone(shell: Shell, portal: Portal) -> None:
    account: Account = portal.account()
    shell.daemon.secrets |= account.secrets
    key = await make_key(shell.daemon, "cookie:write")
    env = shell.environment() | {"SMARTLINKD_KEY": key["key"]}
    code, _, err = await shell.run("sync-cookie", stdin=account.cookie, env=env)
    assert code == 1
    assert "replaceAccount" in err
    code, out, err = await shell.run(
        "sync-cookie", "--replace-account", stdin=account.cookie, env=env
    )
    assert (code, out) == (0, ""), err
    code, _, err = await shell.run("sync-cookie", stdin=f"\ufeff{'x' * 600 * 1024}", env=env)
    assert (code, "more than 512 KiB" in err) == (2, True)


COMPLETE = """
eval "$(smartlinkd completion bash)"
COMP_WORDBREAKS=$' \\t\\n"\\'><=;|&(:'
complete_line() {
    COMP_LINE=$1 COMP_POINT=${#1} COMP_TYPE=9 COMPREPLY=()
    read -ra COMP_WORDS <<<"$1"
    COMP_CWORD=$((${#COMP_WORDS[@]} - 1))
    _python_argcomplete smartlinkd
    echo "${COMPREPLY[*]}"
}
complete_line "smartlinkd conv"
complete_line "smartlinkd convert --outp"
complete_line "smartlinkd crew run deal"
"""


async def test_bash_completes_command_flag_and_crew(shell: Shell) -> None:
    programs = shell.home / "bin"
    programs.mkdir()
    program = programs / "smartlinkd"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -m smartlinkd "$@"\n')
    program.chmod(0o755)
    env = shell.environment()
    env |= {"PATH": f"{programs}:{env['PATH']}", "PYTHONPATH": str(ROOT / "daemon")}
    done = await trio.run_process(
        ["bash", "-c", COMPLETE], env=env, capture_stdout=True, capture_stderr=True
    )
    assert done.stdout.decode().split() == ["convert", "--output", "deal-post"], done.stderr


async def test_completion_is_silent_when_the_daemon_is_off(shell: Shell) -> None:
    env = shell.environment()
    env |= {
        "SMARTLINKD_URL": "http://127.0.0.1:1",
        "SMARTLINKD_KEY": "slk_x",
        "_ARGCOMPLETE": "1",
        "COMP_LINE": "smartlinkd crew run d",
        "COMP_POINT": "21",
        "_ARGCOMPLETE_STDOUT_FILENAME": str(shell.home / "found"),
    }
    code, out, err = await shell.run(env=env)
    assert (code, out, err) == (0, "", "")
    assert (shell.home / "found").read_text() == ""
