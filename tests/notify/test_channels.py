"""The two channels, with a real receiver and real programs."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest
import trio
import trio.testing
from pydantic import SecretStr

from smartlinkd.notify.channels import CommandChannel, NotSent, RequestChannel
from tests.fakes.internet import Behaviour, Receiver, answer, hang, reset

BODY = {"event": "account_paused", "account": "7", "text": "account 7, giá", "state": "paused"}

REPORT = """
import json, os, sys
told = {
    "arguments": sys.argv[2:],
    "stdin": sys.stdin.read(),
    "environment": dict(os.environ),
    "descriptors": sorted(os.listdir("/proc/self/fd")),
    "session": os.getsid(0) == os.getpid(),
    "group": os.getpgid(0) == os.getpid(),
    "folder": os.getcwd(),
}
with open(sys.argv[1], "w") as file:
    json.dump(told, file)
"""


def python(script: str) -> tuple[str, ...]:
    """The command that runs a script."""
    return (sys.executable, "-I", "-S", "-c", script)


def is_there(pid: str) -> bool:
    return Path(f"/proc/{pid}").exists()


def to(receiver: Receiver) -> RequestChannel:
    return RequestChannel(SecretStr(receiver.url("/a-key-in-the-path?x=1")))


async def test_request_carries_the_notice(receiver: Receiver) -> None:
    await to(receiver).send(BODY)
    (call,) = receiver.calls
    assert (call.method, call.path, call.body) == ("POST", "/a-key-in-the-path?x=1", BODY)
    assert call.headers["content-type"] == "application/json"
    assert "authorization" not in call.headers


@pytest.mark.parametrize(
    ("behaviour", "final"),
    [
        (answer(500), False),
        (answer(503), False),
        (answer(429), False),
        (answer(404), True),
        (answer(302, Location="http://127.0.0.1/"), True),
        (reset, False),
    ],
)
async def test_answer_that_is_no_success_raises_not_sent_without_the_url(
    receiver: Receiver, behaviour: Behaviour, final: bool
) -> None:
    receiver.next.append(behaviour)
    with pytest.raises(NotSent) as raised:
        await to(receiver).send(BODY)
    assert raised.value.is_final is final
    assert "a-key-in-the-path" not in str(raised.value)
    assert len(receiver.calls) == 1  # no redirect was followed


async def test_receiver_that_hangs_raises_not_sent_in_time(receiver: Receiver) -> None:
    receiver.next.append(hang)
    channel = RequestChannel(SecretStr(receiver.url()), deadline_s=0.2)
    with trio.fail_after(5), pytest.raises(NotSent, match="no answer within"):
        await channel.send(BODY)


async def test_program_gets_the_notice_and_its_arguments_and_nothing_of_the_daemon(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    report, words = tmp_path / "report", ["$(touch /tmp/no)", "a b", "; exit 1", ""]
    monkeypatch.setenv("SECRET_OF_THE_DAEMON", "x")
    kept = os.open("/dev/null", os.O_RDONLY)
    os.set_inheritable(kept, True)
    try:
        await CommandChannel((*python(REPORT), str(report), *words)).send(BODY)
    finally:
        os.close(kept)
    seen = json.loads(report.read_text())
    assert (json.loads(seen["stdin"]), seen["arguments"]) == (BODY, words)  # no shell read them
    assert seen["environment"] == {
        "PATH": os.defpath,
        "LANG": "C.UTF-8",
        "SMARTLINKD_EVENT": "account_paused",
        "SMARTLINKD_ACCOUNT": "7",
        "SMARTLINKD_TEXT": "account 7, giá",
        "SMARTLINKD_STATE": "paused",
    }
    assert seen["descriptors"] == ["0", "1", "2", "3"]  # the last is the listing's own
    assert (seen["session"], seen["group"], seen["folder"]) == (True, True, "/")


async def test_program_that_does_not_read_succeeds() -> None:
    await CommandChannel(python("import os; os.close(0)")).send(BODY)


@pytest.mark.parametrize(
    ("script", "why"),
    [
        ("import sys; sys.exit(3)", "exit code 3; without a word on standard error"),
        ("import sys; sys.exit('first\\nno network')", "exit code 1; no network"),
        ("import os; os.kill(os.getpid(), 9)", "signal 9 .*"),
        (
            "import sys; sys.exit('cannot reach ' + sys.argv[1])",
            r"exit code 1; cannot reach \[argument 5\]",
        ),
    ],
)
async def test_program_that_fails_raises_with_its_last_line_and_no_argument(
    script: str, why: str
) -> None:
    with pytest.raises(NotSent, match=f"^{why}$") as raised:
        await CommandChannel((*python(script), "https://tell.example/key")).send(BODY)
    assert not raised.value.is_final


async def test_missing_program_raises_not_sent() -> None:
    with pytest.raises(NotSent, match=r"could not be started: .*No such file"):
        await CommandChannel(("/nowhere/tell-me",)).send(BODY)


async def test_program_that_does_not_end_is_killed_with_its_children(tmp_path: Path) -> None:
    script = f"""
import subprocess, sys, time
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
open({str(tmp_path / "pid")!r}, "w").write(str(child.pid))
time.sleep(60)
"""
    with trio.fail_after(8), pytest.raises(NotSent, match="did not end within 1 s"):
        await CommandChannel(python(script), deadline_s=1.0).send(BODY)
    assert not is_there((tmp_path / "pid").read_text())
