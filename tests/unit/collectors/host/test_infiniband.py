"""Bytes through a port, whichever of its files tell them."""

from pathlib import Path

import pytest

from cyclewatch.collectors.host.groups import Groups
from cyclewatch.collectors.host.infiniband import InfiniBand
from cyclewatch.collectors.host.source import Scene
from cyclewatch.collectors.processes import ProcessTree
from cyclewatch.collectors.records import Reading

SECOND = 10**9


def received(root: Path, *moments: dict[str, str]) -> float | None:
    """Bytes a second received through a port at the last of several looks, each with its files, ten seconds apart."""
    source = InfiniBand(root)
    scene = Scene((), ProcessTree(root), Groups((), root, root))
    found: list[Reading] = []
    for turn, files in enumerate(moments):
        for file, content in files.items():
            path = root / "class/infiniband/bnxt_re0/ports/1" / file
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(content)
        found = [one for one in source.look(scene, 10 * turn * SECOND) if isinstance(one, Reading)]
    source.close()
    values = [one.value for one in found if one.name == "host.infiniband_receive_bytes_per_s"]
    assert len(values) <= 1
    return values[0] if values else None


STANDARD, OWN = "counters/port_rcv_data", "hw_counters/rx_bytes"


@pytest.mark.parametrize(
    ("before", "after", "bytes_per_s"),
    [
        ({STANDARD: "100", OWN: "400"}, {STANDARD: "350", OWN: "1400"}, 100),
        ({STANDARD: "100"}, {STANDARD: "350"}, 100),
        ({OWN: "400"}, {OWN: "1400"}, 100),
        ({STANDARD: "N/A (no PMA)", OWN: "400"}, {OWN: "1400"}, 100),
        ({STANDARD: "100", OWN: "400"}, {STANDARD: "50", OWN: "1400"}, None),
    ],
    ids=["both", "the standard's", "the adapter's own", "the standard's is not kept", "the standard's wrapped"],
)
def test_the_bytes_of_a_port_count_once(
    tmp_path: Path, before: dict[str, str], after: dict[str, str], bytes_per_s: float | None
) -> None:
    """The standard's counter counts in words of four bytes, the adapter's own in bytes."""
    assert received(tmp_path, before, after) == bytes_per_s
