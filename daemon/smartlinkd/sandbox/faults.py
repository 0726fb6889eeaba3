"""Everything that can go wrong at the sandbox, by name, and the switchboard that lets it.

A fault is met in one of two ways. Each has a magic number of its own: an item id that spoils
whatever it is part of, or an account number (the cookie's SPC_U) that is in trouble for good; so a
fault can be seen through the daemon with nothing but a link or a cookie. Or it is switched on by
name, for so many times, for one account or for all; so a test can have it happen once and then
see the recovery.

`FAULTS` is the one list: the control endpoint, the command's print-out and the documents read it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import Enum
from typing import Final

from smartlinkd.errors import Invalid

ARMED_AT_ONCE: Final = 100
"""How many switched-on faults are kept: far more than a test can reason about."""

ITEM_BASE: Final = 900_000_000
ACCOUNT_BASE: Final = 990_000_000


class Point(Enum):
    """Where a fault bites."""

    SESSION = "session"
    PAGE = "page"
    SUBMIT = "submit"
    ROW = "row"
    PRODUCT = "product"
    OPEN_API = "open_api"
    ESTIMATE = "estimate"


class Play(Enum):
    """What is played. The value is the last part of the fault's name."""

    # instead of an answer in JSON; some of a page as well
    REFUSED_401 = "401"
    REFUSED_403 = "403"
    BUSY_429 = "429"
    BROKEN_500 = "500"
    HTML = "html"
    LOGGED_OUT = "logged_out"
    LOGGED_OUT_NUMERIC = "logged_out_numeric"
    HUMAN_CHECK = "human_check"
    HUMAN_CHECK_BARE = "human_check_bare"
    NULL = "null"
    SLOW = "slow"
    TRUNCATED = "truncated"
    CUT = "cut"
    RESET = "reset"
    TO_LOGIN = "login_redirect"
    CAPTCHA = "captcha"
    # a whole answer to a submit
    GRAPHQL_ERROR = "graphql_error"
    NULL_ROWS = "null_rows"
    SHORT_ROWS = "short_rows"
    # one row of it
    FAIL_1 = "unknown"
    FAIL_2 = "invalid_link"
    FAIL_3 = "invalid_sub_id"
    FAIL_99 = "code_99"
    NULL_CODE = "null_code"
    NO_SHORT_LINK = "no_short_link"
    OTHER_ACCOUNT = "other_account"
    OTHER_ITEM = "other_item"
    # a page
    LOGIN_BY_SCRIPT = "login_script"
    LOGIN_IN_PLACE = "login_in_place"
    TRAFFIC = "traffic"
    CHECK_IN_JSON = "check_in_json"
    CHECK_IN_FRAME = "check_in_frame"
    CHECK_IN_WINDOW = "check_in_window"
    CHECK_AFTERWARDS = "check_afterwards"
    WITHOUT_FORM = "without_form"
    ENDLESS = "endless"
    HANG = "hang"
    HANG_ON_SUBMIT = "hang_on_submit"
    ALERT = "alert"
    # the session as a whole
    LOST = "lost"
    LOST_SOFTLY = "lost_softly"
    FROZEN = "frozen"
    # the Open API
    BAD_SIGNATURE = "10020"
    RATE_LIMIT = "10030"
    NO_ACCESS = "10035"


@dataclass(frozen=True)
class Fault:
    """One fault: `item` and `account` are its magic numbers, where it has them."""

    name: str
    point: Point
    play: Play
    shows: str
    item: int | None = None
    account: str | None = None


_ANSWERS: tuple[tuple[int, Play, str], ...] = (
    (1, Play.REFUSED_401, "status 401"),
    (2, Play.REFUSED_403, "status 403"),
    (3, Play.BUSY_429, "status 429 with Retry-After"),
    (4, Play.BROKEN_500, "status 500"),
    (5, Play.HTML, "an HTML page with status 200 where JSON is due"),
    (6, Play.LOGGED_OUT, "status 200 and is_login false with error 90309999"),
    (7, Play.LOGGED_OUT_NUMERIC, "the same with numbers for keys"),
    (8, Play.HUMAN_CHECK, "error 90309999 with is_login true: a person is asked for"),
    (9, Play.HUMAN_CHECK_BARE, "error 90309999 without is_login: the same"),
    (10, Play.NULL, "data is null"),
    (11, Play.SLOW, "no answer in any reasonable time"),
    (12, Play.TRUNCATED, "JSON that ends half-way in a complete response"),
    (13, Play.CUT, "the connection is reset half-way through the body"),
    (14, Play.RESET, "the connection is reset before a byte of the answer"),
    (15, Play.TO_LOGIN, "HTTP redirect to the login page"),
    (16, Play.CAPTCHA, "HTTP redirect to /verify/captcha"),
)


def _answer_faults(point: Point, hundreds: int) -> Iterator[Fault]:
    for number, play, shows in _ANSWERS:
        yield _fault(point, play, shows, item=hundreds + number, account=hundreds + number)


def _fault(
    point: Point,
    play: Play,
    shows: str,
    *,
    item: int | None = None,
    account: int | None = None,
    name: str = "",
) -> Fault:
    return Fault(
        name or f"{point.value}_{play.value}",
        point,
        play,
        shows,
        None if item is None else ITEM_BASE + item,
        None if account is None else str(ACCOUNT_BASE + account),
    )


FAULTS: tuple[Fault, ...] = (
    _fault(Point.ROW, Play.FAIL_2, "failCode 2", item=2),
    _fault(Point.ROW, Play.FAIL_1, "failCode 1", item=1),
    _fault(Point.ROW, Play.FAIL_3, "failCode 3", item=3),
    _fault(Point.ROW, Play.FAIL_99, "failCode 99, which nobody has documented", item=99),
    _fault(Point.ROW, Play.NULL, "the row is null", item=10),
    _fault(Point.ROW, Play.NULL_CODE, "a good row whose failCode is null", item=11),
    _fault(Point.ROW, Play.NO_SHORT_LINK, "failCode 0 with an empty shortLink", item=12),
    _fault(Point.ROW, Play.OTHER_ACCOUNT, "a longLink that earns for somebody else", item=13),
    _fault(Point.ROW, Play.OTHER_ITEM, "a longLink for another item", item=14),
    *_answer_faults(Point.SUBMIT, 100),
    _fault(
        Point.SUBMIT, Play.GRAPHQL_ERROR, "GraphQL's own errors, no data", item=121, account=121
    ),
    _fault(Point.SUBMIT, Play.NULL_ROWS, "batchCustomLink is null", item=122, account=122),
    _fault(Point.SUBMIT, Play.SHORT_ROWS, "the last row is missing", item=123, account=123),
    *_answer_faults(Point.PRODUCT, 200),
    _fault(Point.PAGE, Play.TO_LOGIN, "HTTP redirect to the login page", account=1),
    _fault(Point.PAGE, Play.LOGIN_BY_SCRIPT, "status 200, then a script goes to login", account=2),
    _fault(Point.PAGE, Play.LOGIN_IN_PLACE, "status 200, a login form on the page", account=3),
    _fault(Point.PAGE, Play.CAPTCHA, "HTTP redirect to /verify/captcha", account=4),
    _fault(Point.PAGE, Play.TRAFFIC, "HTTP redirect to /verify/traffic", account=5),
    _fault(Point.PAGE, Play.WITHOUT_FORM, "the page has no form on it", account=7),
    _fault(Point.PAGE, Play.ENDLESS, "the page never finishes arriving", account=8),
    _fault(Point.PAGE, Play.HANG, "the page falls into an endless loop once shown", account=9),
    _fault(Point.PAGE, Play.HANG_ON_SUBMIT, "an endless loop on pressing the button", account=10),
    _fault(Point.PAGE, Play.ALERT, "the page opens an alert()", account=11),
    _fault(Point.PAGE, Play.BROKEN_500, "status 500", account=12),
    _fault(Point.PAGE, Play.SLOW, "no answer in any reasonable time", account=13),
    _fault(Point.PAGE, Play.RESET, "the connection is reset", account=14),
    _fault(
        Point.PAGE,
        Play.CHECK_IN_JSON,
        "status 403, and error 90309999 with is_login true in the page's place",
        account=15,
    ),
    _fault(
        Point.PAGE,
        Play.CHECK_IN_FRAME,
        "a dialog with /verify/captcha in a frame on pressing the button, and no submit",
        account=16,
    ),
    _fault(
        Point.PAGE,
        Play.CHECK_IN_WINDOW,
        "a window with /verify/captcha on pressing the button, and no submit",
        account=17,
    ),
    _fault(
        Point.PAGE,
        Play.CHECK_AFTERWARDS,
        "a submit goes well, and then a script goes to /verify/captcha",
        account=18,
    ),
    _fault(Point.SESSION, Play.LOST, "pages redirect to login, calls answer 401", account=301),
    _fault(
        Point.SESSION,
        Play.LOST_SOFTLY,
        "pages go to login by script, calls answer 200 with is_login false",
        account=302,
    ),
    _fault(
        Point.SESSION,
        Play.HUMAN_CHECK,
        "pages redirect to /verify/captcha, calls answer 90309999 with is_login true",
        account=303,
        name="human_check",
    ),
    _fault(
        Point.SESSION,
        Play.FROZEN,
        "the form is disabled, calls answer GraphQL's own errors",
        account=6,
        name="account_frozen",
    ),
    _fault(Point.OPEN_API, Play.BAD_SIGNATURE, "error 10020, invalid signature"),
    _fault(Point.OPEN_API, Play.RATE_LIMIT, "error 10030, rate limit"),
    _fault(Point.OPEN_API, Play.NO_ACCESS, "error 10035, no access to the API"),
    _fault(Point.OPEN_API, Play.BROKEN_500, "status 500"),
    _fault(Point.OPEN_API, Play.SLOW, "no answer in any reasonable time"),
    _fault(Point.ESTIMATE, Play.BROKEN_500, "status 500", item=301),
    _fault(Point.ESTIMATE, Play.HTML, "an HTML page with status 200", item=302),
    _fault(Point.ESTIMATE, Play.SLOW, "no answer in any reasonable time", item=303),
)

BY_NAME: Final = {fault.name: fault for fault in FAULTS}
_BY_ITEM: Final = {(fault.point, fault.item): fault for fault in FAULTS if fault.item}
_BY_ACCOUNT: Final = {(fault.point, fault.account): fault for fault in FAULTS if fault.account}


@dataclass
class Armed:
    """A fault that was switched on. `left` None is for ever, `account` None is everybody."""

    fault: Fault
    left: int | None
    account: str | None


class Switchboard:
    """Which fault bites now."""

    def __init__(self) -> None:
        self._armed: list[Armed] = []

    @property
    def armed(self) -> tuple[Armed, ...]:
        """What is switched on, oldest first."""
        return tuple(self._armed)

    def arm(self, name: str, *, times: int | None = None, account: str | None = None) -> None:
        """Switch `name` on. Raises `Invalid` for an unknown name and for too many at once."""
        if name not in BY_NAME:
            raise Invalid(f"fault: there is no {name!r}; one of {', '.join(sorted(BY_NAME))}")
        if times is not None and times < 1:
            raise Invalid("times: must be 1 or more, or null for every time")
        if len(self._armed) >= ARMED_AT_ONCE:
            raise Invalid(f"fault: {ARMED_AT_ONCE} are switched on already; DELETE them first")
        self._armed.append(Armed(BY_NAME[name], times, account))

    def clear(self) -> None:
        """Switch everything off. Magic numbers stay what they are."""
        self._armed.clear()

    def due(
        self, point: Point, *, account: str | None = None, items: Iterable[int] = ()
    ) -> Fault | None:
        """The fault that bites at `point` now; one of its times is used up by asking."""
        return (
            self._switched_on(point, account)
            or _BY_ACCOUNT.get((point, account or ""))
            or next((_BY_ITEM[point, item] for item in items if (point, item) in _BY_ITEM), None)
        )

    def _switched_on(self, point: Point, account: str | None) -> Fault | None:
        for armed in self._armed:
            if armed.fault.point is point and armed.account in (None, account):
                if armed.left is not None:
                    armed.left -= 1
                    if not armed.left:
                        self._armed.remove(armed)
                return armed.fault
        return None
