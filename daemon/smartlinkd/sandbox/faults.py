"""Everything that can go wrong at the sandbox, by name. Pure.

A fault is switched on by its name: for so many times, for one account (the cookie's SPC_U, the Open
API's app id) or all. A fault of links or products also has a magic item, which spoils whatever it
is part of. `FAULTS` is the one list, for the control endpoints and the command's output.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from typing import Final


class Point(Enum):
    """The place where a fault happens."""

    SESSION = "session"
    PAGE = "page"
    SUBMIT = "submit"
    ROW = "row"
    PRODUCT = "product"
    OPEN_API = "open_api"
    ESTIMATE = "estimate"


@dataclass(frozen=True)
class Fault:
    """One fault. `item` is the item that always shows it, if there is one."""

    name: str
    point: Point
    behaviour: str
    shows: str
    item: int | None = None


_Table = tuple[tuple[int, str, str], ...]
"""The last digits of the magic item (0: there is none), the behaviour, and a description of it.

The behaviour is what goes wrong, and the last part of the fault's name.
"""

_ANSWERS: _Table = (
    (1, "401", "status 401"),
    (2, "403", "status 403"),
    (3, "429", "status 429 with Retry-After"),
    (4, "500", "status 500"),
    (5, "html", "an HTML page with status 200 where JSON is due"),
    (6, "logged_out", "status 200 and is_login false with error 90309999"),
    (7, "logged_out_numeric", "the same with numbers for keys"),
    (8, "human_check", "error 90309999 with is_login true: a person is asked for"),
    (9, "human_check_bare", "error 90309999 without is_login: the same"),
    (10, "null", "data is null"),
    (11, "slow", "no answer in any reasonable time"),
    (12, "truncated", "JSON that ends half-way in a complete response"),
    (13, "cut", "the connection is reset half-way through the body"),
    (14, "reset", "the connection is reset before a byte of the answer"),
    (15, "login_redirect", "HTTP redirect to the login page"),
    (16, "captcha", "HTTP redirect to /verify/captcha"),
)

_SUBMITS: _Table = (
    (121, "graphql_error", "GraphQL's own errors, no data"),
    (122, "null_rows", "batchCustomLink is null"),
    (123, "short_rows", "the last row is missing"),
)

_ROWS: _Table = (
    (2, "invalid_link", "failCode 2"),
    (1, "unknown", "failCode 1"),
    (3, "invalid_sub_id", "failCode 3"),
    (99, "code_99", "failCode 99, which nobody has documented"),
    (10, "null", "the row is null"),
    (11, "null_code", "a good row whose failCode is null"),
    (12, "no_short_link", "failCode 0 with an empty shortLink"),
    (13, "other_account", "a longLink that earns for somebody else"),
    (14, "other_item", "a longLink for another item"),
)

_PAGES: _Table = (
    (0, "login_redirect", "HTTP redirect to the login page"),
    (0, "login_script", "status 200, then a script goes to login"),
    (0, "login_in_place", "status 200, a login form on the page"),
    (0, "captcha", "HTTP redirect to /verify/captcha"),
    (0, "traffic", "HTTP redirect to /verify/traffic"),
    (0, "without_form", "the page has no form on it"),
    (0, "endless", "the page never finishes arriving"),
    (0, "hang", "the page falls into an endless loop once shown"),
    (0, "hang_on_submit", "an endless loop on pressing the button"),
    (0, "alert", "the page opens an alert()"),
    (0, "500", "status 500"),
    (0, "slow", "no answer in any reasonable time"),
    (0, "reset", "the connection is reset"),
    (0, "check_in_json", "JSON instead: status 403, error 90309999, is_login true"),
    (0, "check_in_frame", "the button opens a frame with /verify/captcha, no submit"),
    (0, "check_in_window", "the button opens a window with /verify/captcha, no submit"),
    (0, "check_afterwards", "after a good submit a script goes to /verify/captcha"),
)

_SESSIONS: _Table = (
    (0, "lost", "pages redirect to login, calls answer 401"),
    (0, "lost_softly", "pages go to login by script, calls say is_login false"),
    (0, "human_check", "pages redirect to /verify/captcha, calls say error 90309999"),
    (0, "frozen", "the form is disabled, calls answer GraphQL's own errors"),
)

_OPEN_API: _Table = (
    (0, "10020", "error 10020, invalid signature"),
    (0, "10030", "error 10030, rate limit"),
    (0, "10035", "error 10035, no access to the API"),
    (0, "500", "status 500"),
    (0, "slow", "no answer in any reasonable time"),
)

_ESTIMATES: _Table = (
    (301, "500", "status 500"),
    (302, "html", "an HTML page with status 200"),
    (303, "slow", "no answer in any reasonable time"),
)

_OTHER_NAMES = {"session_human_check": "human_check", "session_frozen": "account_frozen"}


def _faults(point: Point, table: _Table, *, items: int = 0) -> Iterator[Fault]:
    """Yield the faults of a table. `items` is added to its numbers to get the magic items."""
    for number, behaviour, shows in table:
        name = f"{point.value}_{behaviour}"
        item = items + number if number else None
        yield Fault(_OTHER_NAMES.get(name, name), point, behaviour, shows, item)


FAULTS: tuple[Fault, ...] = (
    *_faults(Point.ROW, _ROWS, items=900_000_000),
    *_faults(Point.SUBMIT, _ANSWERS, items=900_000_100),
    *_faults(Point.SUBMIT, _SUBMITS, items=900_000_000),
    *_faults(Point.PRODUCT, _ANSWERS, items=900_000_200),
    *_faults(Point.PAGE, _PAGES),
    *_faults(Point.SESSION, _SESSIONS),
    *_faults(Point.OPEN_API, _OPEN_API),
    *_faults(Point.ESTIMATE, _ESTIMATES, items=900_000_000),
)

BY_NAME: Final = {fault.name: fault for fault in FAULTS}
BY_ITEM: Final = {(fault.point, fault.item): fault for fault in FAULTS if fault.item}
