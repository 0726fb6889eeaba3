"""Input and output of `smartlinkd convert`, without a daemon."""

from __future__ import annotations

import io
import json
import resource
from pathlib import Path

import pytest

from smartlinkd.client import ClientError
from smartlinkd.commands.convert import read_csv
from smartlinkd.commands.convert_output import (
    Format,
    PartFile,
    Result,
    Source,
    Writer,
    write_output,
)
from smartlinkd.conversion.schemas import FailureEntry, SuccessEntry
from smartlinkd.marketplace.products import ProductData

GOOD = SuccessEntry(
    short_link="https://s.example/1",
    long_link="https://long.example/1",
    product=ProductData(name="=Áo, thun", price=1000, commission=50, commission_rate="5%"),
)
BAD = FailureEntry(fail_code=10)
PLAIN = Source((), [("https://a.example/1",), ("https://a.example/2",)])
RESULTS = [Result(PLAIN.rows[0], PLAIN.links[0], GOOD), Result(PLAIN.rows[1], PLAIN.links[1], BAD)]


@pytest.mark.parametrize("separator", [",", ";", "\t"])
def test_csv_with_any_separator_is_read(separator: str) -> None:
    source = read_csv(f"id{separator}Link\r\n1{separator}a\r\n2{separator}b\r\n", None)
    assert (source.header, source.links) == (("id", "Link"), ["a", "b"])


def test_csv_cell_may_hold_separators_and_lines() -> None:
    assert read_csv('name,link\n"a,\nb",x\n', "link").rows == [["a,\nb", "x"]]


@pytest.mark.parametrize(
    ("text", "column", "fault"),
    [
        ("", None, "is empty"),
        ("id,name\n1,2\n", None, "no column with a known name; it has 'id', 'name'"),
        ("id,link\n1,2\n", "url", "no column 'url'"),
        ("id,link\n1\n", None, "row 2 of the CSV file has 1 cells, and its first row 2"),
        ('id,link\n1,"a', None, "is no CSV"),
    ],
)
def test_wrong_csv_is_refused(text: str, column: str | None, fault: str) -> None:
    with pytest.raises(ClientError, match=fault):
        read_csv(text, column)


def output_of(format_: Format, source: Source, results: list[Result]) -> str:
    out = io.StringIO()
    writer = Writer(out, format_, source)
    for result in results:
        writer.write(result)
    writer.end()
    return out.getvalue()


def test_csv_keeps_own_columns_and_makes_no_formula() -> None:
    source = Source(("shortLink", "link"), [["own", "https://a.example/1"]], 1)
    text = output_of("csv", source, [Result(source.rows[0], source.links[0], GOOD)])
    head, row = text.splitlines()
    assert head.startswith("shortLink,link,shortLink (smartlinkd),longLink,productName")
    assert row.startswith("own,https://a.example/1,https://s.example/1,https://long.example/1,")
    assert ',"\'=Áo, thun",1000,50,5%,0' in row


def test_json_is_one_array() -> None:
    found = json.loads(output_of("json", PLAIN, RESULTS))
    assert [each["link"] for each in found] == PLAIN.links
    assert found[0]["product"]["name"] == "=Áo, thun"
    assert found[1]["failCode"] == 10


def test_text_has_the_link_itself_where_none_was_made() -> None:
    assert output_of("text", PLAIN, RESULTS) == "https://s.example/1\nhttps://a.example/2\n"


def test_table_keeps_short_links_whole_on_a_narrow_terminal(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    text = output_of("table", PLAIN, RESULTS)
    assert "https://s.example/1" in text
    assert "failCode 10" in text
    assert max(map(len, text.splitlines())) <= 60


def test_without_a_result_nothing_is_written() -> None:
    assert output_of("json", PLAIN, []) + output_of("csv", PLAIN, []) == ""


def test_part_file_goes_on_after_the_last_whole_line(tmp_path: Path) -> None:
    part = PartFile(tmp_path / "out.csv", PLAIN, ["a"])
    assert part.open() == []
    part.write(RESULTS[0])
    part.close(keep=True)
    with part.path.open("a") as file:
        file.write('{"error":true,"fa')  # a kill while writing
    again = PartFile(tmp_path / "out.csv", PLAIN, ["a"])
    assert again.open() == [GOOD]
    again.write(RESULTS[1])
    again.close(keep=False)
    assert list(tmp_path.iterdir()) == []


def test_part_file_keeps_its_results_when_nothing_can_be_written(tmp_path: Path) -> None:
    part = PartFile(tmp_path / "out.csv", PLAIN, [])
    part.open()
    part.write(RESULTS[0])
    part.close(keep=True)
    done = part.path.read_bytes()
    again = PartFile(tmp_path / "out.csv", PLAIN, [])
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10, limits[1]))
    try:
        assert again.open() == [GOOD]
        with pytest.raises(ClientError, match="File too large"):
            again.write(RESULTS[1])
        again.close(keep=True)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert part.path.read_bytes() == done


def test_part_file_of_another_input_is_refused(tmp_path: Path) -> None:
    part = PartFile(tmp_path / "out.csv", PLAIN, ["a"])
    part.open()
    part.close(keep=True)
    with pytest.raises(ClientError, match="of another input; delete it"):
        PartFile(tmp_path / "out.csv", PLAIN, ["b"]).open()


def test_output_is_replaced_as_a_whole(tmp_path: Path) -> None:
    output = tmp_path / "out.csv"
    output.write_text("old")
    write_output(output, "csv", PLAIN, RESULTS)
    text = output.read_text(encoding="utf-8")
    assert text.startswith("\ufefflink,shortLink,")
    assert list(tmp_path.iterdir()) == [output]


@pytest.mark.parametrize("format_", ["csv", "json", "text"])
def test_link_that_is_not_utf_8_is_written_with_question_marks(
    tmp_path: Path, format_: Format
) -> None:
    output, link = tmp_path / "out", "https://a.example/\udcff"
    source = Source((), [(link,)])
    write_output(output, format_, source, [Result(source.rows[0], link, BAD)])
    assert "https://a.example/?" in output.read_text(encoding="utf-8")
    assert list(tmp_path.iterdir()) == [output]


def test_output_in_a_missing_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ClientError, match="No such file"):
        write_output(tmp_path / "none" / "out.csv", "csv", PLAIN, RESULTS)
