"""Records in systemd's own journal, and a daemon whose standard error is a stream of the journal.

A journal of its own runs in a mount namespace of its own, with a /run that nobody else sees: for
that one has to be root, and systemd has to be installed. It need not be what runs this machine.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from smartlinkd.logs import LogEvent

JOURNALD = "/lib/systemd/systemd-journald"
ROOT = Path(__file__).parents[2]

pytestmark = pytest.mark.skipif(
    os.geteuid() != 0 or not Path(JOURNALD).exists() or not shutil.which("unshare"),
    reason="needs root, systemd's journal and unshare",
)

# Standard error becomes a stream of the journal's, as that of a service is (the lines are those of
# sd_journal_stream_fd): identifier, unit, priority, whether lines have a prefix, and three targets.
IN_A_NAMESPACE = """
set -e
mount -t tmpfs tmpfs /run
mkdir -p /run/systemd/journal /run/log/journal
{journald} >/run/journald.log 2>&1 &
journald=$!
for _ in $(seq 100); do [ -S /run/systemd/journal/stdout ] && break; sleep 0.05; done
code=0
"$@" || code=$?
sleep 0.3
journalctl --sync 2>/dev/null || true
kill $journald
wait $journald || true
journalctl --directory /run/log/journal {how} --no-pager --quiet _TRANSPORT=journal \\
    + _TRANSPORT=stdout
exit $code
"""

AS_A_SERVICE = """
import os, socket, sys

stream = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
stream.connect("/run/systemd/journal/stdout")
stream.sendall(b"of-the-unit\\nsmartlinkd.service\\n6\\n1\\n0\\n0\\n0\\n")
os.dup2(stream.fileno(), 2)
status = os.fstat(2)
os.environ["JOURNAL_STREAM"] = f"{status.st_dev}:{status.st_ino}"
stream.close()
"""


def run(script: str, *arguments: str, timeout: float = 30) -> list[dict[str, Any]]:
    """Run Python as a service. Return the journal's entries."""
    printed = journalctl("--output json --all", script, *arguments, timeout=timeout)
    return [json.loads(line) for line in printed.splitlines()]


def journalctl(how: str, script: str, *arguments: str, timeout: float = 30) -> str:
    """Run Python as a service. Return the output of `journalctl`."""
    program = [sys.executable, "-c", AS_A_SERVICE + script, *arguments]
    done = subprocess.run(
        [
            "unshare",
            "--mount",
            "sh",
            "-c",
            IN_A_NAMESPACE.format(journald=JOURNALD, how=how),
            "sh",
            *program,
        ],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_journal_has_records_with_their_fields() -> None:
    script = """
import logging
from smartlinkd import logs
from smartlinkd.logs import LogEvent, LogContext, bind_log_actor, bind_log_contexts

logs.set_up("info")
logger = logging.getLogger("smartlinkd.test")
contexts = LogContext("r1", "post", "k1"), LogContext("r2")
with bind_log_actor("conversion"), bind_log_contexts(contexts):
    logger.warning("account 7 is paused", extra=LogEvent.ACCOUNT_PAUSED(account="7"))
try:
    1 / 0
except ZeroDivisionError:
    logger.exception("failed\\nPRIORITY=0")
print("by hand", file=sys.stderr)
"""
    # The journal reads records and what is printed in two ways, and keeps no order between them.
    paused, failed, by_hand = sorted(run(script), key=lambda it: it["MESSAGE"] == "by hand")
    assert {name: paused[name] for name in sorted(set(paused)) if not name.startswith("_")} == {
        "MESSAGE": "account 7 is paused",
        "PRIORITY": "4",
        "SYSLOG_IDENTIFIER": "smartlinkd",
        "LOGGER": "smartlinkd.test",
        "EVENT": "account_paused",
        "MESSAGE_ID": LogEvent.ACCOUNT_PAUSED.message_id,
        "ACTOR": "conversion",
        "REQUEST_ID": ["r1", "r2"],
        "CREW": "post",
        "KICKOFF_ID": "k1",
        "ACCOUNT": "7",
        "CODE_FILE": "<string>",
        "CODE_LINE": paused["CODE_LINE"],
        "CODE_FUNC": "<module>",
    }
    assert failed["MESSAGE"] == "failed\nPRIORITY=0: ZeroDivisionError: division by zero"
    assert failed["PRIORITY"] == "3"
    assert failed["EXCEPTION"].startswith("Traceback (most recent call last):\n")
    assert by_hand["SYSLOG_IDENTIFIER"] == "of-the-unit"


def test_journalctl_shows_text_with_control_characters() -> None:
    script = """
import logging
from smartlinkd import logs

logs.set_up("info")
log = logging.getLogger("smartlinkd.test")
log.warning("standard error: 10%\\r20%\\x1b[2K\\uffff\\n\\tlast words")
"""
    printed = journalctl("", script)
    assert "blob data" not in printed
    assert "standard error: 10%\\x0d20%\\x1b[2K\\uffff\n" in printed
    assert printed.endswith("last words\n")


def test_journal_without_its_socket_has_lines_with_their_priority() -> None:
    script = """
import logging
from smartlinkd import logs

logs.set_up("info")
os.unlink("/run/systemd/journal/socket")
logging.getLogger("smartlinkd.test").error("one\\ntwo")
"""
    (entry,) = run(script)
    assert (entry["_TRANSPORT"], entry["PRIORITY"]) == ("stdout", "3")
    assert json.loads(entry["MESSAGE"])["message"] == "one\ntwo"
