import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from cyclewatch.collectors.records import RECORD, joined


@given(st.lists(st.integers(0, 6), min_size=1, max_size=4), st.integers(1, 3))
def test_joined_records_are_the_parts_in_order(lengths: list[int], step: int) -> None:
    """Whole, and parts that are views of others, as the reader gives them."""
    rows = np.frombuffer(np.random.default_rng(1).bytes(32 * RECORD.itemsize), RECORD)
    parts = [rows[: length * step : step] for length in lengths]
    whole = joined(parts)
    assert whole.dtype == RECORD
    assert whole.tobytes() == np.concatenate(parts).tobytes()
