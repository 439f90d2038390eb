import contextlib
import math
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from cyclewatch.collectors.engine_metrics import PARSER
from cyclewatch.collectors.prometheus_text import ExpositionError, Page, TextParser

FIXTURES = Path(__file__).parents[2] / "fixtures/engine"
NAMES = ["sglang:a", "sglang:a_total", "sglang:b_sum"]
# Lines are split at newlines only: the values may hold everything else that str.splitlines() takes for one.
VALUES = st.text(st.characters(codec="utf-8"), max_size=8) | st.sampled_from(['"', "\\", "\n", '\\"', "}", "{,=", "\r"])
LABELS = st.dictionaries(st.from_regex(r"[a-z_][a-z0-9]{0,5}", fullmatch=True), VALUES, max_size=4)
NUMBERS = st.floats() | st.integers(-(2**70), 2**70).map(float)
SERIES = st.tuples(st.sampled_from([*NAMES, "sglang:other", "process_a"]), LABELS, NUMBERS)


def render(series: list[tuple[str, dict[str, str], float]]) -> str:
    lines = ["# HELP sglang:a Something with a { in it", "# TYPE sglang:a gauge", ""]
    for name, labels, value in series:
        escaped = [
            (key, text.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")) for key, text in labels.items()
        ]
        inside = ",".join(f'{key}="{text}"' for key, text in escaped)
        braces = f"{{{inside}}}" if inside else ""
        number = "+Inf" if value == math.inf else "-Inf" if value == -math.inf else repr(value)
        lines.append(f"{name}{braces} {number}")
    return "\n".join([*lines, ""])


def oracle(text: str, names: list[str]) -> Page:
    page: Page = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            if sample.name in names:
                page.setdefault(sample.name, {})[tuple(sorted(sample.labels.items()))] = sample.value
    return page


def comparable(page: Page) -> dict[str, dict[tuple[tuple[str, str], ...], str]]:
    return {name: {labels: repr(value) for labels, value in values.items()} for name, values in page.items()}


@given(st.lists(SERIES))
def test_page_is_read_back(series: list[tuple[str, dict[str, str], float]]) -> None:
    expected: Page = {}
    for name, labels, value in series:
        if name in NAMES:
            expected.setdefault(name, {})[tuple(sorted(labels.items()))] = value
    assert comparable(TextParser(NAMES).parse(render(series).encode())) == comparable(expected)


@given(st.lists(SERIES))
def test_answers_are_those_of_prometheus_client(series: list[tuple[str, dict[str, str], float]]) -> None:
    text = render(series)
    assert comparable(TextParser(NAMES).parse(text.encode())) == comparable(oracle(text, NAMES))


@pytest.mark.parametrize("version", ["0.5.4", "0.5.23"])
def test_answers_on_a_real_page_are_those_of_prometheus_client(version: str) -> None:
    content = (FIXTURES / f"metrics-{version}.txt").read_bytes()
    text = content.decode()
    names = sorted({line.replace("{", " ").split()[0] for line in text.splitlines() if line.startswith("sglang:")})
    assert len(names) > 30
    assert comparable(TextParser(names).parse(content)) == comparable(oracle(text, names))


@pytest.mark.parametrize(
    "line",
    [
        'sglang:a{x="1",y="2"} 3',
        'sglang:a { x = "1" , y = "2" , } 3',
        'sglang:a{x="1",y="2"} 3 1700000000000',
        'sglang:a{y="2",x="1"}\t3.0  ',
        'sglang:a{x="1",y="2"} +3e0',
    ],
)
def test_spaces_timestamps_and_order_do_not_matter(line: str) -> None:
    assert TextParser(NAMES).parse(line.encode()) == {"sglang:a": {(("x", "1"), ("y", "2")): 3.0}}


def test_name_is_matched_whole() -> None:
    assert TextParser(["sglang:a"]).parse(b"sglang:a_total 1\nsglang:ab 2\nsglang:a:b 3\nxsglang:a 4\n") == {}


@pytest.mark.parametrize(
    "content",
    [
        b"sglang:a",
        b"sglang:a ",
        b"sglang:a one",
        b"sglang:a 1_000",
        b"sglang:a 0x10",
        b"sglang:a 1 2 3",
        "sglang:a \uff11".encode(),
        b'sglang:a{x="s3cret" 1',
        b'sglang:a{x="s3cret} 1',
        b"sglang:a{x=s3cret} 1",
        b'sglang:a{="s3cret"} 1',
        b'sglang:a{x="1",x="s3cret"} 1',
        b'sglang:a{x="1"y="s3cret"} 1',
        b"sglang:a{,} 1",
        b"sglang:a 1\n\xff",
    ],
)
def test_malformed_page_is_refused_and_not_quoted(content: bytes) -> None:
    with pytest.raises(ExpositionError) as caught:
        TextParser(NAMES).parse(content)
    assert "s3cret" not in str(caught.value)


@given(
    st.binary()
    | st.text('sglang:ab_total{}="\\,n 0159.e+-\n', max_size=60).map(lambda text: f"sglang:a{text}".encode())
)
def test_garbage_raises_nothing_but_the_documented_error(content: bytes) -> None:
    with contextlib.suppress(ExpositionError):
        TextParser(NAMES).parse(content)


@pytest.mark.parametrize(
    "tail", ['{x="' + "\\" * 200_000, "{" + 'x="",' * 40_000, '{x="1",' * 30_000, "{" + " " * 200_000, " " * 200_000]
)
def test_hostile_line_takes_linear_time(tail: str) -> None:
    began = time.process_time()
    with contextlib.suppress(ExpositionError):
        TextParser(NAMES).parse(f"sglang:a{tail}".encode())
    assert time.process_time() - began < 2


def test_real_page_of_known_names_only() -> None:
    page = PARSER.parse((FIXTURES / "metrics-0.5.23.txt").read_bytes())
    assert sum(map(len, page.values())) == 35
