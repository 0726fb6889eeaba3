"""How `smartlinkd convert` writes its results: as they come, or a file at the end.

A file given with `--output` is replaced when all is done. Until then the results are in a file
beside it, `NAME.part`: JSON, a line each. The same command goes on after the last whole line. The
first line names the input, so that results of another one are never mixed in.
"""

from __future__ import annotations

import csv
import hashlib
import json
import os
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import BinaryIO, Final, Literal, TextIO

from pydantic import JsonValue, TypeAdapter, ValidationError
from rich.console import Console
from rich.table import Table as ScreenTable
from rich.text import Text

from smartlinkd.client import ClientError
from smartlinkd.conversion.schemas import FailureEntry, SuccessEntry
from smartlinkd.history.spreadsheet import without_formula
from smartlinkd.marketplace.products import ProductData
from smartlinkd.untrusted import blank_unprintable

Format = Literal["table", "csv", "json", "text"]
COLUMNS: Final = (
    "shortLink",
    "longLink",
    "productName",
    "price",
    "commission",
    "commissionRate",
    "failCode",
)
REASONS: Final = {
    10: "this is no product link",
    40300: "the portal's session is over, or it wants a person",
}
_ENTRY: Final = TypeAdapter[SuccessEntry | FailureEntry](SuccessEntry | FailureEntry)


@dataclass(frozen=True)
class Source:
    """The links to convert, a row each.

    Attributes:
        header: the names of a CSV file's columns; () if the input is no CSV file.
        rows: the cells of each row; of plain links the link alone.
        column: the place of the link in a row.
    """

    header: tuple[str, ...]
    rows: Sequence[Sequence[str]]
    column: int = 0

    @cached_property
    def links(self) -> list[str]:
        """The links, in order."""
        return [row[self.column].strip() for row in self.rows]


@dataclass(frozen=True)
class Result:
    """A row of the source with its entry of the daemon's answer."""

    row: Sequence[str]
    link: str
    entry: SuccessEntry | FailureEntry

    @property
    def is_converted(self) -> bool:
        return isinstance(self.entry, SuccessEntry)

    @property
    def text(self) -> str:
        """The short link, or the failCode."""
        entry = self.entry
        if isinstance(entry, SuccessEntry):
            return entry.short_link
        return f"failCode {entry.fail_code}"

    def cells(self) -> list[str]:
        """The values of `COLUMNS`."""
        entry = self.entry
        if isinstance(entry, FailureEntry):
            return ["", "", "", "", "", "", str(entry.fail_code)]
        product = entry.product or ProductData()
        numbers = (product.price, product.commission, product.commission_rate)
        return [
            entry.short_link,
            entry.long_link,
            without_formula(product.name or ""),
            *("" if number is None else str(number) for number in numbers),
            "0",
        ]

    def to_json(self) -> dict[str, JsonValue]:
        """The link and its entry, by the API's names."""
        return {"link": self.link, **self.entry.model_dump(mode="json")}


class Writer:
    """Writes results to `out` as they come; of a table, all at the end."""

    def __init__(
        self, out: TextIO, format_: Format, source: Source, *, is_continued: bool = False
    ) -> None:
        """Write nothing yet.

        Args:
            is_continued: the output goes on after an earlier one, which names the CSV's columns.
        """
        self._out = out
        self._format = format_
        self._source = source
        self._csv = csv.writer(out, lineterminator="\n" if not source.header else "\r\n")
        self._is_continued = is_continued
        self._is_begun = False
        self._kept: list[Result] = []

    def write(self, result: Result) -> None:
        """Write one result."""
        match self._format:
            case "table":
                self._kept.append(result)
            case "csv":
                if not (self._is_begun or self._is_continued):
                    names = self._source.header or ("link",)
                    self._csv.writerow([*names, *_own_names(self._source)])
                self._csv.writerow([*result.row, *result.cells()])
            case "json":
                text = json.dumps(result.to_json(), ensure_ascii=False)
                self._out.write(f"{',' if self._is_begun else '['}\n  {text}")
            case "text":
                self._out.write(f"{result.text if result.is_converted else result.link}\n")
        self._is_begun = True
        self._out.flush()

    def end(self) -> None:
        """Write what comes after the last result. Without a result nothing is written."""
        if not self._is_begun:
            return
        if self._format == "json":
            self._out.write("\n]\n")
        elif self._format == "table":
            Console(file=self._out, highlight=False).print(_screen_table(self._kept))
        self._out.flush()


class PartFile:
    """The results so far of a run with `--output`, beside the output's file."""

    def __init__(
        self, output: Path, source: Source, sub_ids: Sequence[str], *, skip: int = 0
    ) -> None:
        """Open nothing yet. `skip` is the number of links at the beginning that are left out."""
        self.path = output.with_name(f"{output.name}.part")
        links = json.dumps([source.links, list(sub_ids), skip]).encode()
        self._head = json.dumps({"input_sha256": hashlib.sha256(links).hexdigest()}).encode()
        self._file: BinaryIO | None = None

    def open(self) -> list[SuccessEntry | FailureEntry]:
        """Return the entries of an earlier run with the same input, and go on after them.

        Raises:
            ClientError: the file cannot be read or written, is damaged, or is of another input.
        """
        try:
            content = self.path.read_bytes() if self.path.exists() else b""
            size = content.rfind(b"\n") + 1
            head, *lines = content[:size].splitlines() or [self._head]
            if head != self._head:
                raise ClientError(
                    f"{self.path} has the results of another input; delete it, or give another "
                    "--output"
                )
            entries = [_ENTRY.validate_json(line) for line in lines]
            self._file = self.path.open("ab")
            # A last line that a kill has cut is written again; the others stay where they are.
            self._file.truncate(size)
            if not size:
                self._file.write(self._head + b"\n")
                self._file.flush()
        except ValidationError:
            raise ClientError(f"{self.path} is damaged; delete it to begin again") from None
        except OSError as error:
            raise _unusable(self.path, error) from None
        return entries

    def write(self, result: Result) -> None:
        """Write one result. Raises `ClientError`."""
        assert self._file is not None  # noqa: S101 - `open` was called
        try:
            self._file.write(_ENTRY.dump_json(result.entry) + b"\n")
            self._file.flush()
        except OSError as error:
            raise _unusable(self.path, error) from None

    def close(self, *, keep: bool) -> None:
        """Close the file, and delete it unless its results are wanted later."""
        if self._file is not None:
            with suppress(OSError):  # of a line that could not be written, which `write` has said
                self._file.close()
        if not keep:
            with suppress(FileNotFoundError):
                self.path.unlink()


def write_output(output: Path, format_: Format, source: Source, results: Iterable[Result]) -> None:
    """Replace a file by one with all results. Raises `ClientError`; the old file stays then."""
    # Without its mark Excel reads another encoding.
    encoding = "utf-8-sig" if format_ == "csv" else "utf-8"
    fresh = output.with_name(f".{output.name}.new")
    try:
        # A link from an argument that is not UTF-8 has half characters, which no file can hold.
        with fresh.open("w", encoding=encoding, errors="replace", newline="") as file:
            writer = Writer(file, format_, source)
            for result in results:
                writer.write(result)
            writer.end()
            os.fsync(file.fileno())
        fresh.replace(output)
    except OSError as error:
        with suppress(OSError):
            fresh.unlink()
        raise _unusable(output, error) from None


def _own_names(source: Source) -> list[str]:
    """Return the names of our columns, other than those of the input."""
    return [f"{name} (smartlinkd)" if name in source.header else name for name in COLUMNS]


def _screen_table(results: Sequence[Result]) -> ScreenTable:
    table = ScreenTable(box=None, pad_edge=False, header_style="bold")
    table.add_column("link", overflow="ellipsis", no_wrap=True, ratio=2)
    # Whole at any width: it is what a person copies.
    widest = max((len(result.text) for result in results), default=0)
    table.add_column("short link", no_wrap=True, min_width=widest)
    table.add_column("product", overflow="ellipsis", no_wrap=True, ratio=2)
    table.add_column("price", justify="right", no_wrap=True)
    table.add_column("commission", justify="right", no_wrap=True)
    for result in results:
        entry = result.entry
        link = Text(blank_unprintable(result.link.replace("\n", " ")))
        if isinstance(entry, FailureEntry):
            reason = REASONS.get(entry.fail_code, "try it again later")
            table.add_row(link, Text(result.text, style="red"), reason)
            continue
        product = entry.product or ProductData()
        table.add_row(
            link,
            Text(result.text, style="green"),
            Text(blank_unprintable(product.name or "")),
            _number(product.price),
            _number(product.commission),
        )
    return table


def _number(number: int | float | None) -> str:
    return "" if number is None else f"{number:,}"


def _unusable(path: Path, error: OSError) -> ClientError:
    return ClientError(f"{path}: {error.strerror}")
