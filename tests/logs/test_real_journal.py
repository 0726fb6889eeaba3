"""Records in systemd's own journal, and a daemon whose standard error is a stream of the journal.

The tests start a journal in their own mount namespace with its own /run. They need root and an
installed systemd, which does not have to be the machine's init.
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

# Standard error becomes a stream of the journal, like a service's. The lines are those of
# sd_journal_stream_fd: identifier, unit, priority, a flag for prefixes, and three targets.
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
journalctl --directory /run/log/journal --output json --all --no-pager --quiet _TRANSPORT=journal \\
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


LOGGED = """
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
logger.warning("standard error: 10%\\r20%\\x1b[2K\\uffff\\n\\tlast words")
print("by hand", file=sys.stderr)
"""


def test_journal_has_records_with_their_fields() -> None:
    script = IN_A_NAMESPACE.format(journald=JOURNALD)
    program = [sys.executable, "-c", AS_A_SERVICE + LOGGED]
    done = subprocess.run(
        ["unshare", "--mount", "sh", "-c", script, "sh", *program],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    entries: list[dict[str, Any]] = [json.loads(line) for line in done.stdout.splitlines()]
    # The journal reads records and printed lines from two sockets, in any order.
    paused, failed, shown = [each for each in entries if each["_TRANSPORT"] == "journal"]
    (by_hand,) = [each for each in entries if each["_TRANSPORT"] == "stdout"]
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
    # `journalctl` shows a text only without control characters, else bytes.
    assert shown["MESSAGE"] == "standard error: 10%\\x0d20%\\x1b[2K\\uffff\n\tlast words"
    assert (by_hand["MESSAGE"], by_hand["SYSLOG_IDENTIFIER"]) == ("by hand", "of-the-unit")
