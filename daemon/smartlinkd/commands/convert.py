"""`smartlinkd convert`: any number of links, from arguments, a file, a CSV column or a text.

Links go to the daemon in pieces of 15, and results come out in the order of the input. Exit code 0:
all links were converted, 3: some, 1: none.
"""

from __future__ import annotations

import argparse
import csv
import io
import json
import sys
from pathlib import Path
from typing import Final

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from smartlinkd.client import ClientError, Smartlinkd
from smartlinkd.commands.codes import FAILED, GOOD, SOME_FAILED, say
from smartlinkd.commands.convert_output import (
    Format,
    PartFile,
    Result,
    Source,
    Writer,
    write_output,
)
from smartlinkd.commands.server import require_server
from smartlinkd.conversion.schemas import MAX_LINKS, FailureEntry, SuccessEntry

MAX_FILE: Final = 64 * 1024 * 1024
"""Bytes of the input."""
STANDARD_INPUT: Final = "-"
LINK_NAMES: Final = ("link", "url", "links", "urls", "product_link", "productlink")
"""Names of the CSV column that is taken if `--column` names none."""


def main(chosen: argparse.Namespace) -> int:
    """Convert what the arguments name. Return the exit code.

    Raises:
        ClientError: the input or the server cannot be used.
    """
    if chosen.text:
        return _convert_text(chosen)
    source = _read_source(chosen)
    if not source.rows:
        raise ClientError("there is no link to convert; give links, or --file")
    run = _Run(source, chosen)
    with require_server(chosen).open() as daemon:
        return run.convert(daemon)


class _Run:
    """One conversion of a source, with its output."""

    def __init__(self, source: Source, chosen: argparse.Namespace) -> None:
        self._source = source
        self._sub_ids: list[str] = chosen.sub_ids
        self._skip: int = chosen.skip
        self._output: Path | None = chosen.output
        self._format = _format(chosen, source)
        self._results: list[Result] = []

    def convert(self, daemon: Smartlinkd) -> int:
        """Convert all links. What is done is kept when it ends early. Return the exit code."""
        sink = self._open_sink()
        is_done = False
        try:
            self._convert_rest(daemon, sink)
            if self._output is not None:
                write_output(self._output, self._format, self._source, self._results)
            is_done = True
        except KeyboardInterrupt:
            self._say_how_to_go_on("stopped")
        except ClientError as error:
            if not self._results:
                raise
            self._say_how_to_go_on(str(error))
        finally:
            if isinstance(sink, PartFile):
                sink.close(keep=not is_done and bool(self._results))
            else:
                sink.end()
        return self._exit_code(is_done=is_done)

    def _open_sink(self) -> PartFile | Writer:
        """Return the part file, whose results are added, or a writer to standard output."""
        if self._output is None:
            is_continued = self._skip > 0
            return Writer(sys.stdout, self._format, self._source, is_continued=is_continued)
        part = PartFile(self._output, self._source, self._sub_ids, skip=self._skip)
        for entry in part.open():
            self._add(entry)
        if self._results:
            say(f"{len(self._results)} results are in {part.path}; going on after them")
        return part

    def _convert_rest(self, daemon: Smartlinkd, sink: PartFile | Writer) -> None:
        links = self._source.links
        console = Console(stderr=True)
        with Progress(
            TextColumn("converting"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeRemainingColumn(),
            console=console,
            transient=True,
            disable=not console.is_terminal or len(links) <= MAX_LINKS,
        ) as progress:
            begin = self._skip + len(self._results)
            task = progress.add_task("", total=len(links), completed=begin)
            for _, entry in daemon.convert(links[begin:], self._sub_ids):
                sink.write(self._add(entry))
                progress.advance(task)

    def _add(self, entry: SuccessEntry | FailureEntry) -> Result:
        number = self._skip + len(self._results)
        result = Result(self._source.rows[number], self._source.links[number], entry)
        self._results.append(result)
        return result

    def _say_how_to_go_on(self, why: str) -> None:
        done, total = self._skip + len(self._results), len(self._source.rows)
        say(why)
        if self._output is not None:
            say(f"{done} of {total} are done and kept; to go on, run the same command again")
        else:
            say(f"{done} of {total} are done; to go on after them, add --skip {done}")

    def _exit_code(self, *, is_done: bool) -> int:
        converted = sum(result.is_converted for result in self._results)
        if not converted:
            return FAILED
        return GOOD if is_done and converted == len(self._results) else SOME_FAILED


def _convert_text(chosen: argparse.Namespace) -> int:
    """Print the text with its links replaced."""
    text = "\n".join(chosen.links) if chosen.links else _read_file(chosen)
    with require_server(chosen).open() as daemon:
        found = daemon.extract(text)
        links = list(dict.fromkeys(each.link for each in found))
        entries = dict(daemon.convert(links, chosen.sub_ids))
    pieces, end = [], 0
    for each in found:
        entry = entries[each.link]
        pieces.append(text[end : each.start])
        pieces.append(entry.short_link if isinstance(entry, SuccessEntry) else each.link)
        end = each.end
    replaced = "".join([*pieces, text[end:]])
    if chosen.json or chosen.format == "json":
        mapping = {link: entry.model_dump(mode="json") for link, entry in entries.items()}
        print(json.dumps({"text": replaced, "mapping": mapping}, ensure_ascii=False, indent=2))
    else:
        sys.stdout.write(replaced if replaced.endswith("\n") else f"{replaced}\n")
    failed = [link for link, entry in entries.items() if isinstance(entry, FailureEntry)]
    for link in failed:
        say(f"not converted: {link}")
    if failed and len(failed) == len(entries):
        return FAILED
    return SOME_FAILED if failed else GOOD


def _format(chosen: argparse.Namespace, source: Source) -> Format:
    """Return the format that was asked for, else the one that fits the output."""
    format_: Format | None = "json" if chosen.json else chosen.format
    if format_ is not None:
        return format_
    if source.header or (chosen.output is not None and chosen.output.suffix.lower() == ".csv"):
        return "csv"
    if chosen.output is not None:
        return "json" if chosen.output.suffix.lower() == ".json" else "text"
    return "table" if sys.stdout.isatty() else "text"


def _read_source(chosen: argparse.Namespace) -> Source:
    """Return the links of the arguments, else of the file or standard input.

    Raises:
        ClientError: they cannot be read, or both links and a file are named.
    """
    if chosen.links:
        if chosen.file is not None or chosen.column is not None:
            raise ClientError("links and --file were both given; give one of them")
        return Source((), [(link,) for link in chosen.links])
    text = _read_file(chosen)
    is_csv = chosen.column is not None or Path(chosen.file or "").suffix.lower() == ".csv"
    if not is_csv:
        lines = (line.strip() for line in text.splitlines())
        return Source((), [(line,) for line in lines if line])
    return read_csv(text, chosen.column)


def read_csv(text: str, column: str | None) -> Source:
    """Return the rows of a CSV file, and which column has the links.

    Args:
        column: its name; None takes one of `LINK_NAMES`.

    Raises:
        ClientError: the text is no CSV or empty, rows differ in length, or the column is missing.
    """
    first = text.partition("\n")[0]
    separator = max((",", ";", "\t"), key=first.count)
    try:
        rows = [
            row
            for row in csv.reader(io.StringIO(text, newline=""), delimiter=separator, strict=True)
            if row
        ]
    except csv.Error as error:
        raise ClientError(f"the file is no CSV: {error}; save it as CSV (UTF-8) again") from None
    if not rows:
        raise ClientError("the CSV file is empty; its first line has to name the columns")
    header, *rows = rows
    names = [name.strip().lower() for name in header]
    wanted = [column.strip().lower()] if column is not None else LINK_NAMES
    place = next((names.index(name) for name in wanted if name in names), None)
    if place is None:
        missing = f"no column {column!r}" if column is not None else "no column with a known name"
        raise ClientError(
            f"the CSV file has {missing}; it has {', '.join(map(repr, header))[:500]}: "
            "name one with --column"
        )
    for number, row in enumerate(rows, start=2):
        if len(row) != len(header):
            raise ClientError(
                f"row {number} of the CSV file has {len(row)} cells, and its first row "
                f"{len(header)}; mend the row, or save the file as CSV again"
            )
    return Source(tuple(header), rows, place)


def _read_file(chosen: argparse.Namespace) -> str:
    """Return the text of `--file`, or of standard input for `-` or if it is no terminal.

    Raises:
        ClientError: it cannot be read, is not UTF-8, or too large.
    """
    if chosen.file is None and sys.stdin.isatty():
        raise ClientError("there is no link to convert; give links, or --file")
    name = chosen.file or STANDARD_INPUT
    try:
        if name == STANDARD_INPUT:
            content = sys.stdin.buffer.read(MAX_FILE + 1)
        else:
            with Path(name).open("rb") as file:
                content = file.read(MAX_FILE + 1)
    except OSError as error:
        raise ClientError(f"--file: {name}: {error.strerror}") from None
    if len(content) > MAX_FILE:
        raise ClientError(f"--file: {name} has more than {MAX_FILE // 2**20} MiB; split it")
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise ClientError(f"--file: {name} is not UTF-8; save it as CSV UTF-8 or as text") from None
