"""Series that people hand in as files: CSV or JSON. What is wrong is named with its line and its mend.

Files are strangers: they may be endless, binary, or made to do harm. CSV is read line by line into packed arrays, and
everything has a bound.
"""

import csv
import io
import json
import math
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, TextIO

from cyclewatch.daemon.printable import SHOWN_MAX, printable, shown
from cyclewatch.daemon.series_rows import Rows, Series, SeriesFileError, Time
from cyclewatch.detectors.change_points.covariates import FEATURES

MAX_BYTES = 512 << 20
MAX_JSON_BYTES = 64 << 20
"""JSON is read in one piece, and hostile JSON takes thirty times its size in memory."""

MAX_ROWS = 10_000_000
MAX_LINE = 1 << 20

STANDARD_INPUT = "-"

_COLUMNS = ("time", "value", "phase", *FEATURES)
_MISSING = frozenset({"", "null", "none", "na", "n/a", "-"})
_NAMED_MAX = 3
_BOM = b"\xef\xbb\xbf"


def read_series_file(path: Path) -> Series:
    """The series in a file.

    Raises:
        SeriesFileError: it cannot be read, is too large, or is no series.
    """
    name = printable(str(path))
    try:
        with path.open("rb") as stream:
            size = path.stat().st_size
            if size > MAX_BYTES:
                raise SeriesFileError(f"{name}: {_too_large(MAX_BYTES)}")
            return read_series(stream, name)
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise SeriesFileError(
            f"{name}: cannot be read: {reason}; name a CSV or JSON file, or - for standard input"
        ) from None


def read_series(stream: BinaryIO, name: str) -> Series:
    """The series in a stream of bytes; `name` is what messages call it.

    Raises:
        SeriesFileError: it is too large, or no series.
    """
    with _buffered(stream) as buffered, _named(name):
        head = buffered.peek(1 << 13)[: 1 << 13]
        if not head:
            raise SeriesFileError("is empty: give at least one value")
        if b"\0" in head:
            raise SeriesFileError("is binary, or text in UTF-16: give CSV or JSON in UTF-8")
        first = head.removeprefix(_BOM).lstrip()[:1]
        if first == b"[":
            raise SeriesFileError('is a JSON list: wrap it, as in {"values": [1.0, 2.0]}')
        return _read_json(buffered) if first == b"{" else _read_csv(buffered)


@contextmanager
def _buffered(stream: BinaryIO) -> Iterator[io.BufferedReader]:
    raw: Any = stream  # any readable stream will do, a buffered one too
    buffered = io.BufferedReader(raw, 1 << 16)
    try:
        yield buffered
    finally:
        buffered.detach()  # its owner closes it


@contextmanager
def _named(name: str) -> Iterator[None]:
    try:
        yield
    except SeriesFileError as error:
        raise SeriesFileError(f"{name}: {error}") from None


def _too_large(limit: int) -> str:
    return f"larger than {limit >> 20} MB: give a part of it, or means of several rows each"


def _too_many_rows() -> str:
    return f"more than {MAX_ROWS:,} rows: give a part of it, or means of several rows each"


def _lines(text: TextIO) -> Iterator[str]:
    size = number = 0
    while line := text.readline(MAX_LINE):
        number += 1
        size += len(line)
        if len(line) >= MAX_LINE:
            raise SeriesFileError(f"line {number}: longer than {MAX_LINE:,} characters: is this a CSV file?")
        if size > MAX_BYTES:
            raise SeriesFileError(_too_large(MAX_BYTES))
        if number > MAX_ROWS + 1:
            raise SeriesFileError(_too_many_rows())
        yield line


def _read_csv(stream: io.BufferedReader) -> Series:
    text = io.TextIOWrapper(stream, "utf-8-sig", errors="replace", newline=None)
    reader = csv.reader(_lines(text))
    warnings: list[str] = []
    try:
        first = next((row for row in reader if row), None)
        if first is None:
            raise SeriesFileError("is empty: give at least one value")
        names, is_header = _header(first, reader.line_num)
        ignored = [name for name in names if name not in _COLUMNS]
        if ignored:
            warnings.append(_ignored("column", ignored))
        rows = Rows(names)
        if not is_header:
            _add_row(rows, names, first, reader.line_num)
        blanks = 0
        for row in reader:
            if not row or (len(row) < len(names) and not row[0].strip()):
                blanks += 1
                continue
            if len(names) == 1:  # a line without anything is a missing value
                rows.numbers["value"].extend([math.nan] * blanks)
            blanks = 0
            _add_row(rows, names, row, reader.line_num)
    except csv.Error as error:
        raise SeriesFileError(f"line {reader.line_num}: {error}: is a quote not closed?") from None
    finally:
        text.detach()
    if len(rows.numbers["value"]) > MAX_ROWS:
        raise SeriesFileError(_too_many_rows())
    return rows.series(warnings)


def _header(first: list[str], line: int) -> tuple[list[str], bool]:
    """Names of the columns, and whether the first row says them."""
    names = [cell.strip().casefold() for cell in first]
    if "value" in names:
        twice = next((name for name in _COLUMNS if names.count(name) > 1), None)
        if twice:
            raise SeriesFileError(f"line {line}: two columns are named {twice}: rename one")
        return names, True
    if not all(cell.isprintable() and "�" not in cell for cell in names):
        raise SeriesFileError(f"line {line}: no text: give CSV or JSON in UTF-8")
    if len(names) == 1 and (";" in names[0] or "\t" in names[0]):
        raise SeriesFileError(f"line {line}: no comma: divide columns by commas, and write decimals with a point")
    if len(names) <= 2 and _cell(names[-1]) is not None and not set(names) & set(_COLUMNS):  # noqa: PLR2004
        return (["value"] if len(names) == 1 else ["time", "value"]), False
    if len(names) > 2 and all(_cell(name) is not None for name in names[1:]):  # noqa: PLR2004
        raise SeriesFileError(f"line {line}: {len(names)} columns without names: begin with a line as time,value,phase")
    there = ", ".join(printable(cell.strip(), SHOWN_MAX) for cell in first[:_NAMED_MAX])
    raise SeriesFileError(f"line {line}: no column is named value (there are: {there}): name one so")


def _add_row(rows: Rows, names: list[str], row: list[str], line: int) -> None:
    if len(row) != len(names):
        more = len(row) > len(names)
        mend = "is there a comma inside a number?" if more else "leave cells empty, but keep their commas"
        raise SeriesFileError(f"line {line}: {_columns(len(row))} where there should be {len(names)}: {mend}")
    for name, cell in zip(names, row, strict=True):
        if name in rows.numbers:
            number = _cell(cell)
            if number is None:
                raise SeriesFileError(f"line {line}: {name} {shown(cell)} is no number: mend it or leave it empty")
            rows.numbers[name].append(number)
        elif name == "time":
            rows.add_time(cell)
        elif name == "phase":
            rows.add_phase(cell)


def _columns(count: int) -> str:
    return f"{count} column" + ("s" if count != 1 else "")


def _cell(text: str) -> float | None:
    """A number; NaN for a missing one, None for what is none."""
    try:
        return float(text)
    except ValueError:
        return math.nan if text.strip().casefold() in _MISSING else None


def _ignored(kind: str, names: list[str]) -> str:
    named = ", ".join(shown(name) for name in names[:_NAMED_MAX])
    more = f" and {len(names) - _NAMED_MAX} more" if len(names) > _NAMED_MAX else ""
    return f"ignored {kind}{'s' if len(names) > 1 else ''} {named}{more}: known are {', '.join(_COLUMNS)}"


def _read_json(stream: io.BufferedReader) -> Series:
    data = stream.read(MAX_JSON_BYTES + 1)
    if len(data) > MAX_JSON_BYTES:
        raise SeriesFileError(f"JSON larger than {MAX_JSON_BYTES >> 20} MB: give it as CSV")
    try:
        document = json.loads(data.decode("utf-8-sig"))
    except UnicodeDecodeError:
        raise SeriesFileError("not in UTF-8: give CSV or JSON in UTF-8") from None
    except json.JSONDecodeError as error:
        mend = "give one object a file" if error.msg == "Extra data" else "mend it there"
        raise SeriesFileError(f"line {error.lineno}: not JSON: {error.msg.lower()}; {mend}") from None
    except (ValueError, RecursionError):
        raise SeriesFileError(
            "not JSON that can be used: a number is too long, or lists are nested too deeply"
        ) from None
    columns = {("value" if name == "values" else name): given for name, given in document.items() if name != "value"}
    return _series_of(columns)


def _series_of(columns: dict[str, Any]) -> Series:
    known = [name for name in _COLUMNS if columns.get(name) is not None]
    _check_lengths({("values" if name == "value" else name): columns[name] for name in known})
    ignored = [name for name in columns if name not in (*_COLUMNS, "name")]
    warnings = [_ignored("key", ignored)] if ignored else []
    rows = Rows(known)
    for name, numbers in rows.numbers.items():
        key = "values" if name == "value" else name
        numbers.extend(_entry(one, f"{key}[{row}]") for row, one in enumerate(columns[name]))
    if rows.times is not None:
        rows.take_times([_given_time(one) for one in columns["time"]])
    for row, one in enumerate(columns["phase"] if rows.has_phases else ()):
        if not isinstance(one, str | int | None):
            raise SeriesFileError(f"phase[{row}]: {_json_kind(one)} is no text: name the kind of work, as decode")
        rows.add_phase("" if one is None else str(one))
    return rows.series(warnings)


def _check_lengths(columns: dict[str, Any]) -> None:
    if "values" not in columns:
        raise SeriesFileError('no "values": give an object as {"values": [1.0, 2.0]}')
    for name, entries in columns.items():
        if not isinstance(entries, list):
            raise SeriesFileError(f'"{name}" is no list: give one entry for each value')
    n = len(columns["values"])
    if n > MAX_ROWS:
        raise SeriesFileError(_too_many_rows())
    for name, entries in columns.items():
        if len(entries) != n:
            raise SeriesFileError(f'"{name}" has {len(entries)} entries, but there are {n} values: make them equal')


def _entry(one: object, where: str) -> float:
    if one is None:
        return math.nan
    if isinstance(one, bool) or not isinstance(one, int | float):
        raise SeriesFileError(f"{where}: {_json_kind(one)} is no number: mend it, or give null")
    try:
        return float(one)
    except OverflowError:
        return math.inf


def _given_time(one: object) -> Time:
    if one is None or isinstance(one, str) or (isinstance(one, int) and not isinstance(one, bool)):
        return one
    return one if isinstance(one, float) and math.isfinite(one) else _json_kind(one)


def _json_kind(one: object) -> str:
    """A JSON value for people; never the inside of lists, which may be deep."""
    if isinstance(one, str):
        return shown(one)
    if isinstance(one, dict | list):
        return "an object" if isinstance(one, dict) else "a list"
    return str(one).lower()
