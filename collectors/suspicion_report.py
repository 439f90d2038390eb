"""Reads reports that compare two runs in Markdown: cycles of both, and a table of functions by their suspicion score.

Such a report has a summary (`Total Cycles`, `Avg Cycle Time (us)`), the cycles by rank of their time, and a table with
a row for each function, metric and device. Runs, metrics and figures may be any; so may the order of the columns. The
text is a stranger's: it has bounds, and what does not fit is left out and counted.
"""

import codecs
import math
import re
from pathlib import Path

from cyclewatch.collectors.markdown_tables import Table, tables
from cyclewatch.collectors.profiles.records import ProfileError
from cyclewatch.collectors.profiles.unpack import Limits, unpacked
from cyclewatch.collectors.suspicion_records import Change, Side, SuspicionReport, SuspicionRow

MAX_BYTES = 32 << 20
"""The longest seen has 0.4 MB."""

MAX_ROWS = 100_000
MAX_NAME_CHARS = 65_536

_UNITS_US = {"ns": 1e-3, "us": 1.0, "µs": 1.0, "ms": 1e3, "s": 1e6}
_UNIT = re.compile(r"\((ns|us|µs|ms|s)\)")
_NAMED = re.compile(r"(?:beta|mu)[_ ]+(.+?)(?:\(%\))?")
_TIME_OF = re.compile(r"(.+?)\s*Time\s*\(\w+\)")


class SuspicionReportError(ValueError):
    """The file is no such report; the message is one sentence that names the file, the reason and the mend."""


def looks_like_suspicion_report(head: bytes) -> bool:
    """Whether a file that begins so is worth reading as one: Markdown, which no profile is."""
    return head.removeprefix(codecs.BOM_UTF8).lstrip()[:1] in {b"#", b"|"} or b"Suspicion Score" in head


def read_suspicion_report(path: Path) -> SuspicionReport:
    """The report in a file, packed with gzip or zstd or not.

    Raises:
        SuspicionReportError: it cannot be read, is too large, or has no table of functions by suspicion.
    """
    name = "".join(character if character.isprintable() else "?" for character in str(path))
    try:
        with unpacked(path, Limits(unpacked_bytes=MAX_BYTES)) as chunks:
            data = b"".join(chunks)
        return parse_suspicion_report(_text(data))
    except (ProfileError, SuspicionReportError) as error:
        raise SuspicionReportError(f"{name}: {error}") from None


def _text(data: bytes) -> str:
    try:
        text = data.removeprefix(codecs.BOM_UTF8).decode()
    except UnicodeDecodeError:
        text = "\0"
    if "\0" in text:
        raise SuspicionReportError("not a text in UTF-8: give a report in Markdown")
    return text


def parse_suspicion_report(text: str) -> SuspicionReport:
    """The report in a text.

    Raises:
        SuspicionReportError: it has no table of functions by suspicion, or nothing in it can be read.
    """
    found = list(tables(text))
    detail = next((table for table in found if _is_detail(table)), None)
    if detail is None:
        raise SuspicionReportError(
            "no table with the columns Function Name, Metric Name, Device and Suspicion Score: give a whole report"
        )
    rows, unread = _rows(detail)
    if not rows:
        raise SuspicionReportError("its table of functions has no row with numbers: was the report cut off?")
    warnings = []
    if unread:
        warnings.append(f"rows of its table that cannot be read, and were left out: {unread}")
    if len(rows) == MAX_ROWS:
        warnings.append(f"only the first {MAX_ROWS:,} rows of its table were read")
    title = next((line.lstrip("# ").strip() for line in text.splitlines() if line.startswith("# ")), "")
    before, after = _sides(found, _names(detail))
    return SuspicionReport(title, before, after, tuple(rows), tuple(warnings))


def _is_detail(table: Table) -> bool:
    roles = {_role(column) for column in table.columns}
    return {"function", "metric", "device", "score", "beta"} <= roles


def _role(column: str) -> str:
    """What a column of the detailed table holds, whatever the runs are called."""
    text = column.replace("β", "beta").replace("μ", "mu").replace("µ", "mu").replace("Δ", "delta ").lower()
    fixed = {"function": "function", "metric": "metric", "device": "device", "suspicion": "score", "score": "score"}
    first = re.split(r"[\s_(]", text.strip(), maxsplit=1)[0]
    if first in fixed:
        return fixed[first]
    if first in {"beta", "mu"}:
        return first
    of = "beta" if "beta" in text else "log_mu" if "log" in text and "mu" in text else "mu" if "mu" in text else ""
    tests = (("delta", "delta"), ("z", "z"), ("u-test", "u_p"), ("p-value", "p"), ("p", "p"))
    test = next((role for word, role in tests if first == word or first.startswith(f"{word}-")), "")
    return f"{test} {of}" if test and of else ""


def _names(detail: Table) -> tuple[str, str]:
    """What the detailed table calls the two runs, in the order of its columns."""
    names = []
    for column in detail.columns:
        if _role(column) == "beta":
            match = _NAMED.fullmatch(column.replace("β", "beta").strip())
            names.append(match.group(1).strip() if match else column)
    return (names[0], names[1]) if len(names) > 1 else ("before", "after")


def _rows(table: Table) -> tuple[list[SuspicionRow], int]:
    places: dict[str, list[int]] = {}
    for place, column in enumerate(table.columns):
        places.setdefault(_role(column), []).append(place)
    rows: list[SuspicionRow] = []
    unread = table.misfits
    for cells in table.rows[:MAX_ROWS]:
        row = _row(cells, places)
        if row is None:
            unread += 1
        else:
            rows.append(row)
    return rows, unread


def _row(cells: tuple[str, ...], places: dict[str, list[int]]) -> SuspicionRow | None:
    def cell(role: str, number: int = 0) -> float:
        where = places.get(role, [])
        return _number(cells[where[number]]) if number < len(where) else math.nan

    def change(of: str) -> Change:
        before, after, delta = cell(of, 0), cell(of, 1), cell(f"delta {of}")
        delta = after - before if math.isnan(delta) else delta
        return Change(before, after, delta, cell(f"z {of}"), cell(f"p {of}"), cell(f"u_p {of}"))

    function, metric, device = (cells[places[role][0]] for role in ("function", "metric", "device"))
    beta, mu = change("beta"), change("mu")
    if not function or not (math.isfinite(beta.delta) or math.isfinite(mu.delta)):
        return None
    name = function[:MAX_NAME_CHARS].strip("`")
    return SuspicionRow(name, metric.strip("`"), device, cell("score"), beta, mu, cell("z log_mu"))


def _sides(found: list[Table], names: tuple[str, str]) -> tuple[Side, Side]:
    """What the summary and the table of cycles say of both runs."""
    counts: list[float] = [math.nan, math.nan]
    means: list[float] = [math.nan, math.nan]
    times: list[list[float]] = [[], []]
    for table in found:
        if table.columns[0].lower() == "metric" and len(table.columns) > 2:  # noqa: PLR2004 (two runs)
            names = (table.columns[1], table.columns[2])
            for label, *cells in table.rows:
                word = label.lower()
                if "cycle" in word and "time" in word:
                    means = [_number(one) * _unit_us(label) for one in cells[:2]]
                elif "cycle" in word:
                    counts = [_number(one) for one in cells[:2]]
        elif "rank" in table.columns[0].lower():
            columns = [place for place, name in enumerate(table.columns) if _TIME_OF.fullmatch(name)]
            for side, place in enumerate(columns[:2]):
                factor = _unit_us(table.columns[place])
                times[side] = [time for row in table.rows if math.isfinite(time := _number(row[place]) * factor)]
    before, after = (
        Side(name, _count(count, listed), _mean(mean, listed), tuple(listed))
        for name, count, mean, listed in zip(names, counts, means, times, strict=True)
    )
    return before, after


def _count(count: float, listed: list[float]) -> int | None:
    if math.isfinite(count) and 0 <= count < 2**53:  # beyond it a float is no count
        return int(count)
    return len(listed) or None


def _mean(mean: float, listed: list[float]) -> float | None:
    if math.isfinite(mean) and mean > 0:
        return mean
    return sum(listed) / len(listed) if listed else None


def _unit_us(label: str) -> float:
    match = _UNIT.search(label.replace("μ", "µ"))
    return _UNITS_US[match.group(1)] if match else 1.0


def _number(cell: str) -> float:
    """A number with commas or a percent sign; NaN for what is none."""
    try:
        return float(cell.strip("*` ").replace(",", "").removesuffix("%"))
    except ValueError:
        return math.nan
