import io
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cyclewatch.daemon import series_file
from cyclewatch.daemon.printable import printable
from cyclewatch.daemon.series_file import read_series, read_series_file
from cyclewatch.daemon.series_rows import Series, SeriesFileError


def read(data: str | bytes) -> Series:
    return read_series(io.BytesIO(data.encode() if isinstance(data, str) else data), "f")


def refused(data: str | bytes) -> str:
    with pytest.raises(SeriesFileError) as error:
        read(data)
    return str(error.value)


def rows_of(series: Series) -> list[float | None]:
    """Values in order of time, None where left out."""
    return [None if math.isnan(one) else float(one) for one in series.values[series.order]]


@pytest.mark.parametrize(
    "data",
    [
        "value\n1\n2\n3\n",
        "1\n2\n3",
        "Value \r\n1\r\n2\r\n3\r\n",
        "value\r1\r\n2\n3",
        b"\xef\xbb\xbfvalue\n1\n2\n3\n",
        '"value"\n"1"\n 2\n3.0e0\n\n\n',
        "10,1\n11,2\n12,3\n",
        "time,value\n\n10,1\n  \n11,2\n12,3\n",
        '{"values": [1, 2.0, 3]}',
        b'\xef\xbb\xbf {"values": [1, 2, 3], "name": "n", "time": null}',
    ],
)
def test_forms_of_the_same_series(data: str | bytes) -> None:
    """With and without a header, any line ends, blank lines, a byte order mark."""
    series = read(data)
    assert rows_of(series) == [1, 2, 3]
    assert series.warnings == ()


def test_missing_values_keep_their_index() -> None:
    """An empty line of a file with one column is one too; empty lines at the end are not."""
    series = read("value\n1\nnan\n\ninf\nNA\n6\n\n")
    assert rows_of(series) == [1, None, None, None, None, 6]
    assert series.warnings == ("4 of 6 values are empty or not finite: left out",)
    assert rows_of(read('{"values": [1, null, NaN, 1e999, 6]}')) == [1, None, None, None, 6]


def test_columns_that_are_not_known_are_ignored_and_named() -> None:
    series = read("value,a,b,c,d\n1,x,,é,2\n")
    assert rows_of(series) == [1]
    assert series.warnings[0].startswith("ignored columns 'a', 'b', 'c' and 1 more: known are time, value, ")
    assert read('{"values": [1], "vlaues": 3}').warnings[0].startswith("ignored key 'vlaues': known are")


def test_ten_thousand_columns_are_read() -> None:
    names = ",".join(f"c{number}" for number in range(10_000))
    assert rows_of(read(f"{names},value\n" + f"{'9,' * 10_000}1\n" * 3)) == [1, 1, 1]


def test_times_are_given_back_as_they_are_written() -> None:
    """Numbers as numbers, however large; text as text; nothing as None."""
    series = read("time,value\n9007199254740993,1\n1e3,2\n,3\nx,4\n1e999,5\n")
    assert [series.time(row) for row in range(5)] == [9007199254740993, 1000.0, None, "x", "1e999"]
    series = read('{"values": [1, 2, 3, 4], "time": ["a", 5, null, [[]]]}')
    assert [series.time(row) for row in range(4)] == ["a", 5, None, "a list"]
    assert read("1\n2\n").time(0) is None


@pytest.mark.parametrize(
    ("times", "order"),
    [
        (["3", "1", "2"], [1, 2, 0]),
        (["2026-01-01T00:00:02Z", "2026-01-01 00:00:01", "2026-01-01T02:00:00+02:00"], [2, 1, 0]),
        (["2", "x", "1"], [2, 0, 1]),
        (["x", "", "y"], [0, 1, 2]),
        (["5", "2026-01-01", "4"], [2, 0, 1]),
        (["9007199254740993", "9007199254740992", "9007199254740994"], [0, 1, 2]),
    ],
)
def test_rows_are_sorted_by_time(times: list[str], order: list[int]) -> None:
    """A strange time stays behind the row before; numbers too large to tell apart stay as they are."""
    text = "time,value\n" + "".join(f"{time},1\n" for time in times)
    assert read(text).order.tolist() == order
    assert read(json.dumps({"values": [1] * 3, "time": times})).order.tolist() == order


def test_what_was_done_to_times_is_said() -> None:
    series = read("time,value\n3,1\n1,2\nx,3\n1,4\n")
    assert series.order.tolist() == [2, 3, 0]
    assert series.warnings == (
        "1 of 4 times are neither numbers nor ISO 8601 like the others, the first 'x' at row 2: left where they are",
        "times go back, first at row 1: sorted by time",
        "rows left out because a later row has the same time: 1",
    )


def test_strange_times_are_not_taken_for_equal() -> None:
    assert read("time,value\n,1\n,2\n,3\n").order.tolist() == [0, 1, 2]


@given(st.lists(st.integers(-5, 5), max_size=30))
def test_the_last_row_of_each_time_is_kept_in_order(times: list[int]) -> None:
    series = read(json.dumps({"values": [1.0] * len(times), "time": times}))
    last = {time: row for row, time in enumerate(times)}
    assert series.order.tolist() == [last[time] for time in sorted(last)]


def test_covariates_are_read_by_name() -> None:
    text = "kv_tokens,phase,value,batch_size\n100,decode,1,2\n,extend,2,3\n300,,0,4\n"
    series = read(text)
    assert series.covariates is not None
    assert series.covariates.names == ("decode", "extend", "other")
    assert series.covariates.phase.tolist() == [0, 1, 2]
    assert series.covariates.load["batch_size"].tolist() == [2, 3, 4]
    assert rows_of(series) == [1, None, None]
    assert series.warnings == ("2 of 3 values are not above 0, or their load is not known: left out",)
    document = {"values": [1, 2], "phase": ["a", None], "new_tokens": [1, 2]}
    covariates = read(json.dumps(document)).covariates
    assert covariates is not None
    assert (covariates.names, list(covariates.load)) == (("a", "other"), ["new_tokens"])


@pytest.mark.parametrize(
    ("data", "sentence"),
    [
        ("", "f: is empty: give at least one value"),
        ("\n\r\n", "f: is empty: give at least one value"),
        ("value\n1\nabc\n", "f: line 3: value 'abc' is no number: mend it or leave it empty"),
        ("value\r\n1\r\n\x1b[31m\r\n", "f: line 3: value '\\x1b[31m' is no number: mend it or leave it empty"),
        ("value,batch_size\n1,x\n", "f: line 2: batch_size 'x' is no number: mend it or leave it empty"),
        (
            "time,value\n1,2\n1,2,3\n",
            "f: line 3: 3 columns where there should be 2: is there a comma inside a number?",
        ),
        (
            "time,value\n1\n",
            "f: line 2: 1 column where there should be 2: leave cells empty, but keep their commas",
        ),
        ("1,2,3\n", "f: line 1: 3 columns without names: begin with a line as time,value,phase"),
        ("a,b\n1,2\n", "f: line 1: no column is named value (there are: a, b): name one so"),
        ("value,Value\n1,2\n", "f: line 1: two columns are named value: rename one"),
        ("time;value\n", "f: line 1: no comma: divide columns by commas, and write decimals with a point"),
        (b"\x89PNG\r\n\x00\x00", "f: is binary, or text in UTF-16: give CSV or JSON in UTF-8"),
        ("value\n1\n".encode("utf-16"), "f: is binary, or text in UTF-16: give CSV or JSON in UTF-8"),
        (b"\xfe\xed\xfa\n\xce", "f: line 1: no text: give CSV or JSON in UTF-8"),
        ("[1, 2]", 'f: is a JSON list: wrap it, as in {"values": [1.0, 2.0]}'),
        ("{}", 'f: no "values": give an object as {"values": [1.0, 2.0]}'),
        ('{"values": 1}', 'f: "values" is no list: give one entry for each value'),
        ('{"values": [1, true]}', "f: values[1]: true is no number: mend it, or give null"),
        ('{"values": ["1"]}', "f: values[0]: '1' is no number: mend it, or give null"),
        ('{"values": [1], "time": []}', 'f: "time" has 0 entries, but there are 1 values: make them equal'),
        ('{"values": [1], "phase": [[]]}', "f: phase[0]: a list is no text: name the kind of work, as decode"),
        ('{"values": [1,\n}', "f: line 2: not JSON: expecting value; mend it there"),
        ('{"values": [1]}\n{}', "f: line 2: not JSON: extra data; give one object a file"),
        (b'{"values": [1], "name": "\xff"}', "f: not in UTF-8: give CSV or JSON in UTF-8"),
        (
            '{"values": ' + "[" * 100_000,
            "f: not JSON that can be used: a number is too long, or lists are nested too deeply",
        ),
    ],
)
def test_what_is_wrong_is_one_sentence_with_its_line_and_mend(data: str | bytes, sentence: str) -> None:
    assert refused(data) == sentence


def test_a_quote_that_is_not_closed_is_found() -> None:
    assert "is a quote not closed?" in refused('value,note\n1,"' + "2,3\n" * 100_000)


def test_files_have_bounds(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Before they fill the memory; endless streams as well."""
    monkeypatch.setattr(series_file, "MAX_ROWS", 3)
    assert rows_of(read("value\n1\n2\n3\n")) == [1, 2, 3]
    many = "f: more than 3 rows: give a part of it, or means of several rows each"
    assert [refused(text) for text in ("1\n2\n3\n4\n", "value\n1\n2\n3\n4\n", '{"values":[1,2,3,4]}')] == [many] * 3
    monkeypatch.setattr(series_file, "MAX_ROWS", 10**6)
    monkeypatch.setattr(series_file, "MAX_LINE", 20)
    assert refused("value," + "a" * 30) == "f: line 1: longer than 20 characters: is this a CSV file?"
    monkeypatch.setattr(series_file, "MAX_BYTES", 1 << 20)
    assert refused("1\n" * (1 << 20)) == "f: larger than 1 MB: give a part of it, or means of several rows each"
    path = tmp_path / "large.csv"
    path.write_bytes(b"1\n" * (1 << 20))
    with pytest.raises(SeriesFileError, match="larger than 1 MB"):
        read_series_file(path)
    monkeypatch.setattr(series_file, "MAX_JSON_BYTES", 1 << 20)
    assert refused('{"values": [' + " " * (1 << 20)) == "f: JSON larger than 1 MB: give it as CSV"
    phases = "".join(f"1,p{number}\n" for number in range(65))
    assert refused(f"value,phase\n{phases}") == "f: more than 64 phases: is this column the kind of work?"


@pytest.mark.parametrize(("name", "reason"), [("nothing.csv", "no such file or directory"), ("", "is a directory")])
def test_a_file_that_cannot_be_read_is_one_sentence(tmp_path: Path, name: str, reason: str) -> None:
    path = tmp_path / name
    with pytest.raises(SeriesFileError) as error:
        read_series_file(path)
    assert str(error.value) == f"{path}: cannot be read: {reason}; name a CSV or JSON file, or - for standard input"


def test_the_stream_stays_open() -> None:
    """Its owner closes it."""
    stream = io.BytesIO(b"value\n1\n")
    read_series(stream, "f")
    assert not stream.closed


@given(st.binary(max_size=200) | st.text(max_size=100).map(lambda text: text.encode("utf-8", "replace")))
def test_whatever_is_read_is_a_series_or_one_sentence(data: bytes) -> None:
    try:
        series = read(data)
    except SeriesFileError as error:
        sentence = str(error)
        assert sentence.startswith("f: ")
        assert sentence.isprintable()
    else:
        assert len(series.order) <= len(series.values)


CELLS = st.sampled_from(["1", "-2.5", "", "nan", "1e999", "x", "time", "value", "phase", '"', ",", "\n", "\r\n", "\0"])


@given(st.lists(CELLS, max_size=30))
def test_whatever_looks_like_csv_is_a_series_or_one_sentence(cells: list[str]) -> None:
    for text in ("".join(cells), "time,value\n" + ",".join(cells), "value,phase\n" + "\n".join(cells)):
        try:
            read(text)
        except SeriesFileError as error:
            assert str(error).startswith("f: ")  # noqa: PT017 (not being refused is good as well)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inside: st.lists(inside, max_size=3) | st.dictionaries(st.text(max_size=3), inside, max_size=2),
    max_leaves=8,
)
KEYS = st.sampled_from(["values", "time", "phase", "batch_size", "name", "value", "other"])


@given(st.dictionaries(KEYS, JSON, max_size=5))
def test_whatever_looks_like_json_is_a_series_or_one_sentence(document: dict[str, Any]) -> None:
    try:
        read(json.dumps(document))
    except SeriesFileError as error:
        assert str(error).startswith("f: ")  # noqa: PT017


def test_printable_text_cannot_disturb_a_terminal() -> None:
    assert printable("a\x1b[2Jb\n\udc80ü") == "a\\x1b[2Jb\\n\\udc80ü"
    assert printable("abcdef", 3) == "abc…"


def test_rows_are_packed() -> None:
    """Millions of them fit: no Python object a cell."""
    series = read(b"time,value\n" + b"".join(b"%d,1.5\n" % row for row in range(20_000)))
    assert series.values.nbytes == 160_000
    assert not isinstance(series.times, list)
    assert np.array_equal(series.order, np.arange(20_000))
