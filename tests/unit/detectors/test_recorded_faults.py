"""Real faults of a real SGLang, as the daemon saw them: the right cause comes first.

`tests/fixtures/faults/README.md` says how they were recorded.
"""

from pathlib import Path

import pytest

from cyclewatch.detectors.attribution import causes, split
from recorded_faults import RecordedFault, load, save

FOLDER = Path(__file__).parents[2] / "fixtures" / "faults"
PATHS = sorted(FOLDER.glob("*.json"))
BYTES_MAX = 100_000


@pytest.fixture(name="fault", params=PATHS, ids=[path.stem for path in PATHS])
def _fault(request: pytest.FixtureRequest) -> RecordedFault:
    return load(request.param)


def test_the_fault_is_the_first_cause(fault: RecordedFault) -> None:
    evidence = fault.evidence
    found = causes(evidence, split(evidence.before, evidence.after))
    assert found[0].kind in fault.expected, [(one.kind, one.share, one.evidence) for one in found]


def test_the_split_shows_the_effect(fault: RecordedFault) -> None:
    """About as much longer as the cycles became in truth, which were measured apart from the daemon."""
    parts = split(fault.evidence.before, fault.evidence.after)
    before_us, after_us = sum(part.before_us for part in parts), sum(part.after_us for part in parts)
    assert after_us / before_us - 1 == pytest.approx(fault.provenance["effect"], rel=0.5)


def test_a_recording_says_where_it_comes_from_and_stays_small(fault: RecordedFault, tmp_path: Path) -> None:
    """Written again it is the same file."""
    assert {"injected", "effect", "sglang", "date", "machine"} <= set(fault.provenance)
    path = tmp_path / "again.json"
    save(path, fault.evidence, fault.expected, fault.provenance)
    recorded = (FOLDER / f"{fault.name}.json").read_bytes()
    assert path.read_bytes() == recorded
    assert len(recorded) <= BYTES_MAX
