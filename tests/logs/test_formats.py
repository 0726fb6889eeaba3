"""Log records as JSON and for terminals: one line each, no forged lines, bounded length."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import pytest

from smartlinkd import logs
from smartlinkd.logs import LogContext, LogEvent, bind_log_actor, bind_log_contexts

if TYPE_CHECKING:
    from tests.fakes.terminal import Terminal
    from tests.logs.conftest import LogLines

logger = logging.getLogger("smartlinkd.test")


def fail(error: Exception) -> None:
    raise error


def log_raised(error: Exception, message: str) -> None:
    try:
        fail(error)
    except Exception:
        logger.exception(message)


def test_pipe_gets_one_json_object_a_line(log_lines: LogLines) -> None:
    record = logging.makeLogRecord(
        {
            "name": "smartlinkd.test",
            "levelname": "INFO",
            "levelno": logging.INFO,
            "msg": "ready after %d ms\n%s",
            "args": (46, "giá"),
            "created": 0.25,
        }
    )
    logging.getLogger().handle(record)
    assert log_lines.lines() == [
        {
            "time": "1970-01-01T00:00:00.250Z",
            "level": "info",
            "logger": "smartlinkd.test",
            "message": "ready after 46 ms\ngiá",
            "code_file": "",
            "code_line": "0",
            "code_func": "",
        }
    ]


def test_exception_group_is_one_record(log_lines: LogLines) -> None:
    log_raised(ExceptionGroup("both", [ValueError("first"), KeyError("second")]), "ended")
    (line,) = log_lines.lines()
    trace = str(line["exception"])
    assert "ValueError: first" in trace
    assert "KeyError: 'second'" in trace
    assert "raise error" in trace


def test_terminal_gets_no_control_characters(terminal: Terminal) -> None:
    logger.warning("account %s", "\x1b[2Jroot\n12:00:00 INFO forged \x9b2J \u202eeno")
    (line,) = terminal.getvalue().splitlines()
    told = "account \\x1b[2Jroot\\x0a12:00:00 INFO forged \\x9b2J \\u202eeno"
    assert line.endswith(f"WARNING test: {told}")


def test_terminal_gets_the_traceback_below_the_line(terminal: Terminal) -> None:
    log_raised(ValueError("bad \x1b[31m"), "ended")
    shown = terminal.getvalue().splitlines()
    assert shown[0].endswith("ERROR   test: ended")
    assert shown[1] == "Traceback (most recent call last):"
    assert shown[-1] == "ValueError: bad \\x1b[31m"


def test_long_message_traceback_and_field_lose_their_middle(log_lines: LogLines) -> None:
    with bind_log_contexts((LogContext(request_id="<" + 5000 * "z" + ">"),)):
        log_raised(ValueError("<" + 100_000 * "x" + ">"), "<" + 100_000 * "y" + ">")
    (line,) = log_lines.lines()
    message, trace, field = (str(line[key]) for key in ("message", "exception", "request_id"))
    assert len(message) < logs.formats.MAX_MESSAGE_CHARS + 100
    assert message[0] + message[-1] == "<>"
    assert len(trace) < logs.formats.MAX_TRACEBACK_CHARS + 100
    assert trace.startswith("Traceback")
    assert trace.endswith("x>")
    assert len(field) < 300
    assert field[0] + field[-1] == "<>"


@pytest.mark.parametrize(
    ("level", "heard"),
    [("debug", ["ours", "theirs"]), ("warning", ["theirs"]), ("error", [])],
)
def test_libraries_are_logged_from_warning_on(
    log_lines: LogLines, level: str, heard: list[str]
) -> None:
    logs.set_level(level)
    logger.debug("ours")
    logging.getLogger("httpx").info("an address")
    logging.getLogger("httpx").warning("theirs")
    assert [line["message"] for line in log_lines.lines()] == heard


WORK = LogContext(request_id="0123456789abcdef", crew="post", kickoff_id="4711")


def test_line_has_event_place_and_context(log_lines: LogLines) -> None:
    with bind_log_actor("conversion"), bind_log_contexts((WORK, LogContext(request_id="other"))):
        logger.warning("account %s is paused", "7", extra=LogEvent.ACCOUNT_PAUSED(account="7"))
    (line,) = log_lines.lines()
    del line["time"], line["code_line"]
    assert line == {
        "level": "warning",
        "logger": "smartlinkd.test",
        "message": "account 7 is paused",
        "event": "account_paused",
        "message_id": LogEvent.ACCOUNT_PAUSED.message_id,
        "actor": "conversion",
        "request_id": ["0123456789abcdef", "other"],
        "crew": "post",
        "kickoff_id": "4711",
        "account": "7",
        "code_file": __file__,
        "code_func": "test_line_has_event_place_and_context",
    }


def test_subject_of_a_record_comes_before_its_context(log_lines: LogLines) -> None:
    with bind_log_actor("supervisor"), bind_log_contexts((WORK,)):
        about = LogEvent.PART_FAILED(actor="journal", kickoff_id="1234", crew="post")
        logger.error("failed", extra=about)
    (line,) = log_lines.lines()
    assert line["actor"] == "journal"
    assert line["kickoff_id"] == ["1234", "4711"]
    assert line["crew"] == "post"


def test_terminal_shows_the_ids_of_a_line_alone(terminal: Terminal) -> None:
    with bind_log_actor("crews"), bind_log_contexts((WORK, LogContext(request_id="\x1b[2J"))):
        logger.info("the work", extra=LogEvent.STARTED())
    (line,) = terminal.getvalue().splitlines()
    assert line.endswith(" INFO    test: the work [0123456789abcdef \\x1b[2J, 4711]")
