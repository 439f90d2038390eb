"""Recorded NVML answers become these samples, and no others.

After a change that is meant: `CYCLEWATCH_WRITE_GOLDEN=1 pytest tests/unit/collectors/gpu`, and look at the difference.
"""

import os
from pathlib import Path

import pytest

from cyclewatch.collectors.gpu.quantities import QUANTITIES, STEADY
from nvml_lab import NAMES, lab, recording, told

GOLDEN = Path(__file__).parent / "golden"
TURNS = 17
"""Of two seconds: three slow loops and two looks at the processes."""


@pytest.mark.parametrize("name", NAMES)
def test_a_recording_gives_what_is_written_down(name: str) -> None:
    """Samples of every turn, and what each GPU can tell."""
    lines = []
    with lab(name) as one:
        for turn in range(TURNS):
            one.turn()
            lines += [f"{2 * turn:2} s  {line}" for line in told(one.samples, one.outcome)]
        for gpu, known in one.collector.capabilities().items():
            lines += [f"{gpu}  {call}: {support}" for call, support in known.items()]
    path = GOLDEN / f"{name}.txt"
    content = "\n".join(lines) + "\n"
    if os.environ.get("CYCLEWATCH_WRITE_GOLDEN"):
        path.parent.mkdir(exist_ok=True)
        path.write_text(content)
    assert content == path.read_text()


@pytest.mark.parametrize("name", NAMES)
def test_a_recording_says_where_it_is_from(name: str) -> None:
    assert {"chip", "driver", "date", "how"} <= recording(name).provenance.keys()


def test_every_reading_is_in_some_recording() -> None:
    """Else nothing would show that it works; those of a server's processes have tests of their own."""
    seen = set()
    for path in GOLDEN.glob("*.txt"):
        seen |= {word.split("{")[0] for word in path.read_text().split() if word.startswith("gpu.")}
    assert seen == {one.name for one in QUANTITIES} - {"gpu.process_memory_bytes", "gpu.process_sm_ratio"}
    assert seen >= STEADY
