"""What waits on disk: whole, in order, bounded, whatever happens to the process or to the disk."""

import math
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cyclewatch.daemon.store.spool import Spool
from cyclewatch.daemon.store.unit import StoredSample, Unit
from cyclewatch.daemon.store.unit_bytes import unit_from_bytes, unit_to_bytes
from units import REGRESSION, profile, stored, unit

ROOM = 2**26


class Spools:
    """Spools that are closed in the end; each call is another start of the daemon."""

    def __init__(self) -> None:
        self._made: list[Spool] = []

    def __call__(self, directory: Path, max_bytes: int = ROOM) -> Spool:
        self._made.append(Spool(directory, max_bytes))
        return self._made[-1]

    def close(self) -> None:
        for spool in self._made:
            spool.close()


@pytest.fixture(name="start")
def _start() -> Iterator[Spools]:
    spools = Spools()
    yield spools
    spools.close()


def told(spool: Spool) -> list[int]:
    """The times of all units, in order; takes them out."""
    found = []
    while not spool.empty:
        found += [one.at_ns for one in spool.oldest()]
        spool.done()
    return found


def small(at_ns: int, **parts: Any) -> Unit:
    return Unit(at_ns, states={"x": {"number": at_ns}}, **parts)


def test_a_unit_comes_back_as_it_was() -> None:
    """Every part of it, with its types; what is no number too."""
    whole = unit(3, profiles=[profile(), profile("p2", kernels=None, ended_at_ns=None)])
    back = unit_from_bytes(unit_to_bytes(whole))
    for name in vars(whole):
        if name != "windows":
            assert getattr(back, name) == getattr(whole, name), name
            assert repr(getattr(back, name)) == repr(getattr(whole, name)), name
    (window,), (expected,) = back.windows, whole.windows
    assert math.isnan(window.cell.on_cpu_ratio)
    assert replace(window, cell=replace(window.cell, on_cpu_ratio=0.0)) == replace(
        expected, cell=replace(expected.cell, on_cpu_ratio=0.0)
    )


def test_units_come_back_in_order_also_after_a_restart(tmp_path: Path, start: Spools) -> None:
    first = start(tmp_path / "spool")
    for number in range(5):
        first.append(small(number))
    second = start(tmp_path / "spool")
    assert (second.empty, second.size_bytes) == (False, first.size_bytes)
    for number in range(5, 9):
        second.append(small(number))
    assert told(start(tmp_path / "spool")) == list(range(9))
    assert list((tmp_path / "spool").iterdir()) == []


def test_nobody_else_may_read_it(tmp_path: Path, start: Spools) -> None:
    start(tmp_path / "spool").append(small(1))
    assert (tmp_path / "spool").stat().st_mode & 0o077 == 0
    assert all(path.stat().st_mode & 0o077 == 0 for path in (tmp_path / "spool").iterdir())


def test_wherever_a_write_was_cut_off_all_before_it_is_there(tmp_path: Path, start: Spools) -> None:
    """Killed, or without electricity: at every byte of the last record."""
    spool = start(tmp_path / "spool")
    spool.append(small(1))
    whole = spool.size_bytes
    spool.append(small(2))
    (path,) = (tmp_path / "spool").iterdir()
    content = path.read_bytes()
    for length in range(whole, len(content)):
        path.write_bytes(content[:length])
        again = start(tmp_path / "spool")
        again.append(small(3))
        assert told(again) == [1, 3], length


@given(st.binary(max_size=200), st.integers(0, 2**32 - 1))
def test_strange_files_are_left_out(tmp_path_factory: pytest.TempPathFactory, content: bytes, where: int) -> None:
    """Noise, and noise within what was written; neither stops the daemon."""
    start, directory = Spools(), tmp_path_factory.mktemp("spool")
    (directory / "00000001.units").write_bytes(content)
    (directory / "notes.txt").write_text("not ours")
    spool = start(directory)
    spool.append(small(5))
    path = directory / "00000002.units"
    damaged = bytearray(path.read_bytes())
    damaged[where % len(damaged)] ^= 0xFF
    path.write_bytes(damaged)
    spool.append(small(6))
    assert told(start(directory)) in ([], [6])
    start.close()


def test_beyond_its_size_measurements_go_and_findings_stay(tmp_path: Path, start: Spools) -> None:
    """The oldest first, counted; the last states are those of the last unit."""
    noise = [[str(number * 7919 % 1000003) for number in range(start, start + 20_000)] for start in range(3)]
    spool = start(tmp_path / "spool", 2**24)
    for number in range(400):
        samples = [StoredSample("server", "x", (), number, 1.0)]
        found = [stored(replace(REGRESSION, key=f"r{number}"))] if number % 100 == 0 else []
        spool.append(
            Unit(number, samples=samples, regressions=found, states={"s": {"n": number, "bulk": noise[number % 3]}})
        )
        assert spool.size_bytes < 2**24 + 2**22 + 2**20
    assert spool.dropped > 0
    units = []
    while not spool.empty:
        units += list(spool.oldest())
        spool.done()
    assert [one.regression.key for each in units for one in each.regressions] == ["r0", "r100", "r200", "r300"]
    kept = [one.at_ns for each in units for one in each.samples]
    assert kept == list(range(400 - len(kept), 400))
    assert len(kept) == 400 - spool.dropped
    assert units[-1].states["s"]["n"] == 399
    assert [each.at_ns for each in units] == sorted(each.at_ns for each in units)


def test_a_full_disk_costs_the_unit_that_did_not_fit_and_no_other(
    tmp_path: Path, start: Spools, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Half a record on disk does not hide those behind it."""
    spool = start(tmp_path / "spool")
    spool.append(small(1))

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("os.fsync", full)
        with pytest.raises(OSError, match="No space"):
            spool.append(small(2))
    spool.append(small(3))
    found = told(start(tmp_path / "spool"))
    assert found in ([1, 3], [1, 2, 3])
