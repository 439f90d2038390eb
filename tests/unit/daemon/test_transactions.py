from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from cyclewatch.daemon.store import models
from cyclewatch.daemon.store.unit import Unit
from units import RUN
from watched import Watched

TOLD = replace(RUN, started_at_ns=5, last_seen_ns=10, environment={"driver": "580"})


@pytest.mark.parametrize("units", [1, 2])
def test_a_run_told_of_again_keeps_its_beginning_and_what_it_ran_on(tmp_path: Path, address: str, units: int) -> None:
    """With every ring of its server in one unit, or in one after the other."""
    runs = [TOLD, replace(TOLD, started_at_ns=7, last_seen_ns=20, environment={}), replace(RUN, key="other")]
    with closing(Watched(tmp_path, address=address)) as watched:
        for part in [runs] if units == 1 else [runs[:1], runs[1:]]:
            watched.writer.write(Unit(0, runs=part))
        rows = watched.rows(models.RunRow)
    stored = {row.key: (row.started_at_ns, row.last_seen_ns, row.environment) for row in rows}
    assert stored[RUN.key] == (5, 20, {"driver": "580"})
    assert stored.keys() == {RUN.key, "other"}
