"""The history of converted links: listed, summed by day, downloaded as CSV, deleted."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Sequence
from datetime import UTC, date, datetime
from functools import partial
from typing import Annotated, Final

from pydantic import ConfigDict, Field, PlainValidator, field_validator
from quart import Response
from quart.wrappers.response import IterableBody

from smartlinkd.api.auth_guards import Client, Guards, Visitor
from smartlinkd.api.operations import Api
from smartlinkd.api.schemas import DoneResponse, HistoryEntry, HistoryResponse
from smartlinkd.errors import Invalid, NotFound
from smartlinkd.history import spreadsheet
from smartlinkd.history.actor import History
from smartlinkd.history.model import Entry, Filters, milliseconds
from smartlinkd.history.search import fold
from smartlinkd.marketplace.products import ProductData
from smartlinkd.threads import on_thread
from smartlinkd.wire import Body, In, Parameters

MAX_PAGE: Final = 200
MAX_QUERY: Final = 200
CSV_ROWS: Final = 500
"""Entries that are read at once for the CSV file."""
CSV_SECONDS: Final = 600.0
"""For sending the whole CSV file."""
DELETE_SECONDS: Final = 120.0
_DAY_MS: Final = 24 * 60 * 60 * 1000
_LARGEST_ID: Final = 2**53
_WANTED: Final = (
    "must be a date (2026-05-04) or a time (2026-05-04T03:02:01Z); a + in an address is written %2B"
)


def _moment(given: str, *, is_end: bool) -> int:
    """Return milliseconds since 1970. A date is its first moment in UTC; as an end, the next day's.

    Raises `ValueError`.
    """
    try:
        moment = datetime.fromisoformat(given)
    except ValueError:
        raise ValueError(_WANTED) from None
    is_date = len(given) <= len("2026-05-04")  # a time needs more
    whole_day = _DAY_MS if is_date and is_end else 0
    return milliseconds(moment if moment.tzinfo else moment.replace(tzinfo=UTC)) + whole_day


def _bound(*, is_end: bool) -> PlainValidator:
    read: Callable[[str], int] = partial(_moment, is_end=is_end)
    return PlainValidator(read, json_schema_input_type=str)


class Filtered(Parameters):
    q: Annotated[
        str,
        In("query"),
        Field(
            max_length=MAX_QUERY,
            description="words that are part of the product's name, the link, the short link or a "
            "sub-id; case and diacritics do not count",
        ),
    ] = ""
    sub_id: Annotated[
        str,
        In("query"),
        Field(alias="subId", max_length=MAX_QUERY, description="one of the sub-ids, as a whole"),
    ] = ""
    since: Annotated[
        Annotated[int, _bound(is_end=False)] | None,
        In("query"),
        Field(
            alias="from",
            description="the first moment: an ISO 8601 date, or a time; UTC unless it says another "
            "offset",
        ),
    ] = None
    until: Annotated[
        Annotated[int, _bound(is_end=True)] | None,
        In("query"),
        Field(
            alias="to",
            description="the end: a date, that day included, or a time, that moment excluded",
        ),
    ] = None

    def filters(self) -> Filters:
        return Filters(self.q, self.sub_id, self.since, self.until)


class Deleted(Filtered):
    # A misspelt or empty filter must not delete everything.
    model_config = ConfigDict(extra="forbid")

    @field_validator("q", "sub_id")
    @classmethod
    def _finds_something(cls, given: str) -> str:
        if not fold(given):
            raise ValueError("must have a word to look for; leave it out to delete without it")
        return given


class Listed(Filtered):
    limit: Annotated[
        int, In("query"), Field(ge=1, le=MAX_PAGE, description="how many at the most")
    ] = 50
    cursor: Annotated[
        str | None,
        In("query"),
        Field(description="the `nextCursor` of the answer before, for the next older ones"),
    ] = None


class DaysAsked(Filtered):
    utc_offset: Annotated[
        int,
        In("query"),
        Field(
            alias="utcOffset",
            ge=-14 * 60,
            le=14 * 60,
            description="by how many minutes the clock that days go by is ahead of UTC",
        ),
    ] = 0


class OneEntry(Parameters):
    id: Annotated[str, In("path")]


class HistoryDay(Body):
    day: Annotated[date, Field(description="ISO 8601 date")]
    links: int
    commission: Annotated[int, Field(description="estimated, of one sale of each link")]


class DaysResponse(DoneResponse):
    days: Annotated[
        list[HistoryDay], Field(description="oldest first, without those that have no link")
    ]


class DeletedResponse(DoneResponse):
    deleted: Annotated[int, Field(description="how many entries that was")]


def add(api: Api, guards: Guards, history: History) -> None:
    """Add these operations to `api`."""
    may_read = guards.scoped("history")

    @api.operation("GET", "/api/history", access=may_read, asks=Listed, ok=HistoryResponse)
    async def history_entries(_: Client, asked: Listed) -> HistoryResponse:
        """List converted links, the newest first."""
        before = _read_cursor(asked.cursor) if asked.cursor is not None else None
        found = await history.page(asked.filters(), limit=asked.limit + 1, before=before)
        entries = found[: asked.limit]
        return HistoryResponse(
            entries=[_shape(entry) for entry in entries],
            next_cursor=str(entries[-1].id) if len(found) > asked.limit else None,
        )

    @api.operation(
        "GET",
        "/api/history.csv",
        access=may_read,
        asks=Filtered,
        ok=Response,
        media="text/csv",
    )
    async def history_csv(_: Client, asked: Filtered) -> Response:
        """Download converted links as CSV, the newest first.

        UTF-8 with a byte order mark, lines as in RFC 4180. Where a spreadsheet would take a text
        for a formula, an apostrophe is before it.
        """
        filters = asked.filters()
        first = await history.page(filters, limit=CSV_ROWS)
        body = IterableBody(_csv(history, filters, first))
        response = Response(body, content_type="text/csv; charset=utf-8")
        response.headers["Content-Disposition"] = 'attachment; filename="history.csv"'
        response.timeout = CSV_SECONDS
        return response

    @api.operation("GET", "/api/history-days", access=may_read, asks=DaysAsked, ok=DaysResponse)
    async def history_days(_: Client, asked: DaysAsked) -> DaysResponse:
        """Sum converted links by day, for a plot."""
        found = await history.days(asked.filters(), utc_offset_min=asked.utc_offset)
        return DaysResponse.model_validate({"days": found}, from_attributes=True)

    @api.operation(
        "DELETE",
        "/api/history",
        access=guards.session,
        asks=Deleted,
        ok=DeletedResponse,
        seconds=DELETE_SECONDS,
    )
    async def delete_history(_: Visitor, asked: Deleted) -> DeletedResponse:
        """Delete converted links from the history: all, or those that fit. The links go on working.

        A 503 may come when some of them are deleted already; ask again for the rest.
        """
        return DeletedResponse(deleted=await history.delete(asked.filters()))

    @api.operation(
        "DELETE",
        "/api/history/{id}",
        access=guards.session,
        asks=OneEntry,
        ok=DoneResponse,
        errors=(404,),
    )
    async def delete_history_entry(_: Visitor, asked: OneEntry) -> DoneResponse:
        """Delete one converted link from the history. The link goes on working."""
        number = _number(asked.id)
        if number is None:
            raise NotFound("the history has no entry with this id; take one from /api/history")
        await history.delete_one(number)
        return DoneResponse()


def _shape(entry: Entry) -> HistoryEntry:
    product = entry.product
    return HistoryEntry(
        id=str(entry.id),
        at=entry.at,
        link=entry.link,
        short_link=entry.short_link,
        long_link=entry.long_link,
        sub_ids=list(entry.sub_ids),
        product=ProductData.model_validate_json(product) if product is not None else None,
        client=entry.client,
    )


def _read_cursor(cursor: str) -> int:
    number = _number(cursor)
    if number is None:
        raise Invalid("cursor: was not given out here; take the nextCursor of the answer before")
    return number


def _number(text: str) -> int | None:
    is_plain = text.isascii() and text.isdigit() and len(text) <= len(str(_LARGEST_ID))
    return int(text) if is_plain else None


async def _csv(
    history: History, filters: Filters, page: Sequence[Entry]
) -> AsyncGenerator[bytes, None]:
    """Yield the lines of the file, read as the client takes them. `page` are the first entries."""
    yield spreadsheet.head().encode()
    while page:
        yield (await on_thread(spreadsheet.lines, page)).encode()
        page = await history.page(filters, limit=CSV_ROWS, before=page[-1].id)
