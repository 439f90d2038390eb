"""The ring as it lies on tmpfs, read by a small reader made from docs/ring-format.md alone."""

import errno
import grp
import json
import os
import shutil
import stat
import struct
import subprocess
import tempfile
import zlib
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import cyclewatch_sglang as plugin
from fake_device import Clock, Scheduler, decode, hook

SHARED_MEMORY = Path("/dev/shm")
PAYLOAD = struct.Struct("<QQQQQQQQqBBBBHHIIQIII")
LIMITS = {"Q": (0, 2**64 - 1), "q": (-(2**63), 2**63 - 1), "B": (0, 255), "H": (0, 2**16 - 1), "I": (0, 2**32 - 1)}
CODES = "QQQQQQQQqBBBBHIIQIII"  # without the reserved field
records = st.tuples(*(st.integers(*LIMITS[code]) for code in CODES))


@pytest.fixture(name="directory")
def _directory() -> Iterator[Path]:
    """A directory on tmpfs."""
    if not SHARED_MEMORY.is_dir():
        pytest.skip("no /dev/shm: rings cannot be tried here")
    with tempfile.TemporaryDirectory(prefix="cw-test-", dir=SHARED_MEMORY) as directory:
        yield Path(directory)


@pytest.fixture(name="small_tmpfs")
def _small_tmpfs(tmp_path: Path) -> Iterator[Path]:
    """A tmpfs with room for one ring of 64 records, its name with a space."""
    place = tmp_path / "small tmpfs"
    place.mkdir()
    mount = shutil.which("mount")
    if os.geteuid() or mount is None:
        pytest.skip("NOT TRIED: a full tmpfs; mounting a small one needs root")
    mounted = subprocess.run([mount, "-t", "tmpfs", "-o", "size=12k", "tmpfs", place], check=False, capture_output=True)
    if mounted.returncode:
        pytest.skip(f"NOT TRIED: a full tmpfs; mount failed: {mounted.stderr.decode().strip()}")
    try:
        yield place
    finally:
        subprocess.run(["umount", "--lazy", place], check=True)


def identity(**changes: object) -> dict[str, Any]:
    return {"pid_namespace": 4026531836, "pid": 17, "start_ticks": 4711, **changes}


def read_header(path: Path) -> tuple[dict[str, Any], int]:
    """Identity and capacity, checked as a reader must."""
    header = path.read_bytes()[:4096]
    magic, version, header_bytes, record_bytes, length, capacity, text_crc, crc = struct.unpack_from(
        "<8sIIIIQII", header
    )
    assert (magic, version, header_bytes, record_bytes) == (b"CYCWATCH", 1, 4096, 128)
    assert zlib.crc32(header[:36]) == crc
    assert length <= 3000
    text = header[40 : 40 + length]
    assert zlib.crc32(text) == text_crc
    values: dict[str, Any] = json.loads(text)
    return values, capacity


def read_counters(path: Path) -> tuple[int, ...]:
    block = path.read_bytes()[3072 : 3072 + 64]
    *values, reserved, crc = struct.unpack("<QQQQQQIIII", block)
    assert (reserved, crc) == (0, zlib.crc32(block[:60]))
    return tuple(values)


def read_records(path: Path) -> dict[int, tuple[int, ...]]:
    """Payloads by sequence, of those slots only that a reader may trust."""
    _, capacity = read_header(path)
    data = path.read_bytes()[4096:]
    found = {}
    for slot in range(min(capacity, len(data) // 128)):
        record = data[slot * 128 : slot * 128 + 128]
        (first,), (last, crc) = struct.unpack_from("<Q", record), struct.unpack_from("<QI", record, 116)
        if first and first == last and zlib.crc32(record[:124]) == crc and (first - 1) % capacity == slot:
            found[first] = PAYLOAD.unpack_from(record, 8)
    return found


def with_reserved(record: tuple[int, ...]) -> tuple[int, ...]:
    return (*record[:14], 0, *record[14:])


# The format


def test_layout_is_that_of_the_contract() -> None:
    """The writer's field names and sizes are those of docs/ring-format.md, row by row."""
    text = (Path(__file__).parents[3] / "docs/ring-format.md").read_text(encoding="utf-8")
    table = text.partition("| type | field | meaning |")[2].partition("\n\n")[0]
    rows = [[cell.strip() for cell in line.split("|")[1:3]] for line in table.strip().splitlines()[1:]]
    sizes = {"u64": "Q", "i64": "q", "u32": "I", "u16": "H", "u8": "B"}
    assert tuple(name for _, name in rows) == plugin.PAYLOAD_FIELDS
    assert "<" + "".join(sizes[size] for size, _ in rows) == plugin.PAYLOAD.format == PAYLOAD.format
    assert plugin.PAYLOAD.size == plugin.PAYLOAD_BYTES == 108


def test_file(directory: Path) -> None:
    """Name, size, mode and header are those of the contract, and no temporary file is left."""
    ring = plugin.RingWriter.create(directory, identity(server={"port": 30000}), 100)
    (path,) = directory.iterdir()
    assert Path(ring.path) == path
    assert path.name == "4026531836-17-4711.ring"
    assert path.stat().st_size == 4096 + 100 * 128
    assert path.stat().st_blocks * 512 >= path.stat().st_size  # nothing is left to be found when it is full
    assert stat.S_IMODE(path.stat().st_mode) == 0o640
    assert read_header(path) == (identity(server={"port": 30000}), 100)
    assert read_counters(path) == (0,) * 8
    assert read_records(path) == {}


@pytest.mark.parametrize(("asked", "given_"), [(0, 64), (65, 65), (10**9, 1 << 20)])
def test_capacity_is_held_between_its_limits(directory: Path, asked: int, given_: int) -> None:
    """A ring is never absurdly small or large."""
    if given_ > 65 and shutil.disk_usage(directory).free < 2 * given_ * 128:
        pytest.skip("no room in /dev/shm for the largest ring")
    ring = plugin.RingWriter.create(directory, identity(), asked)
    assert read_header(Path(ring.path))[1] == given_


def test_ring_of_the_same_process_is_replaced(directory: Path) -> None:
    """A leftover, also of a temporary file, is in nobody's way."""
    first = plugin.RingWriter.create(directory, identity(), 64)
    first.write(1, 2)
    Path(f"{first.path}.tmp").write_text("leftover")
    second = plugin.RingWriter.create(directory, identity(), 64)
    assert [path.name for path in directory.iterdir()] == [Path(second.path).name]
    assert read_records(Path(second.path)) == {}


def test_too_many_server_arguments_are_cut(directory: Path) -> None:
    """The identity has 3000 bytes: of the server's arguments the last ones go first."""
    server = {f"argument_{index:03}": "x" * 40 for index in range(100)}
    ring = plugin.RingWriter.create(directory, identity(server=server), 64)
    kept = read_header(Path(ring.path))[0]["server"]
    assert 0 < len(kept) < 100
    assert list(kept) == list(server)[: len(kept)]


def test_identity_too_long_is_refused(directory: Path) -> None:
    """What cannot be cut is refused, and leaves no file."""
    with pytest.raises(ValueError, match="3000"):
        plugin.RingWriter.create(directory, identity(hooks_missing=["x" * 4000]), 64)
    assert list(directory.iterdir()) == []


def test_group(directory: Path) -> None:
    """The group that may read is set by name; one that does not exist is refused."""
    own = os.getegid()
    ring = plugin.RingWriter.create(directory, identity(), 64, group=grp.getgrgid(own).gr_name)
    assert Path(ring.path).stat().st_gid == own
    with pytest.raises(ValueError, match="no group nobody-has-this-group"):
        plugin.RingWriter.create(directory, identity(), 64, group="nobody-has-this-group")
    assert len(list(directory.iterdir())) == 1


def test_counters(directory: Path) -> None:
    """The counters are those of the contract, in its order."""
    ring = plugin.RingWriter.create(directory, identity(), 64)
    ring.write(1, 2)
    ring.write_counters(
        failures=2, unmatched=3, heartbeat_ns=4, stalled_since_ns=5, gc_dropped=6, disabled=1, paused=True
    )
    assert read_counters(Path(ring.path)) == (1, 2, 3, 4, 5, 6, 1, 1)


# Records


@settings(max_examples=60, deadline=None)
@given(st.lists(records, max_size=200))
def test_what_is_written_is_read(written: list[tuple[int, ...]]) -> None:
    """Every number comes back, and of more records than the ring holds the newest."""
    with tempfile.TemporaryDirectory(prefix="cw-test-", dir=SHARED_MEMORY) as directory:
        ring = plugin.RingWriter.create(directory, identity(), 64)
        for record in written:
            ring.write(*record)
        expected = {index: with_reserved(record) for index, record in enumerate(written, 1)}
        newest = dict(list(expected.items())[-64:])
        assert read_records(Path(ring.path)) == newest
        assert ring.written == len(written)


@settings(max_examples=60, deadline=None)
@given(st.binary(min_size=108, max_size=108))
def test_payload_is_written_as_it_is(payload: bytes) -> None:
    """A recorded payload is played back byte by byte, but for what is reserved."""
    with tempfile.TemporaryDirectory(prefix="cw-test-", dir=SHARED_MEMORY) as directory:
        ring = plugin.RingWriter.create(directory, identity(), 64)
        ring.write_payload(payload)
        fields = list(PAYLOAD.unpack(payload))
        fields[14] = 0
        assert read_records(Path(ring.path)) == {1: tuple(fields)}


def test_record_by_names(directory: Path) -> None:
    """A record may be given by the names of its fields; what is absent is zero, CPU time unknown."""
    ring = plugin.RingWriter.create(directory, identity(), 64)
    ring.write(end_ns=5, cycle_ns=4, kind=plugin.STALL, queue_length=3)
    record = dict(zip(plugin.PAYLOAD_FIELDS, read_records(Path(ring.path))[1], strict=True))
    assert {name: value for name, value in record.items() if value} == {
        "end_ns": 5,
        "cycle_ns": 4,
        "on_cpu_ns": -1,
        "kind": 3,
        "queue_length": 3,
    }


@settings(max_examples=100, deadline=None)
@given(st.integers(0, 63), st.integers(0, 127), st.binary(min_size=1, max_size=64))
def test_torn_record_is_seen(slot: int, offset: int, garbage: bytes) -> None:
    """Whatever bytes are overwritten: no damaged record passes for a sound one, and no sound one is lost."""
    with tempfile.TemporaryDirectory(prefix="cw-test-", dir=SHARED_MEMORY) as directory:
        ring = plugin.RingWriter.create(directory, identity(), 64)
        for index in range(100):
            ring.write(10**12 + index, 10**7 + index)
        path = Path(ring.path)
        sound = read_records(path)
        at = 4096 + slot * 128 + offset
        before = path.read_bytes()
        fd = os.open(path, os.O_WRONLY)
        os.pwrite(fd, garbage, at)
        os.ftruncate(fd, len(before))
        os.close(fd)
        after = path.read_bytes()
        touched = {at // 128 for at in range(4096, len(before)) if before[at] != after[at]}
        damaged = {sequence for sequence in sound if (4096 + (sequence - 1) % 64 * 128) // 128 in touched}
        assert read_records(path) == {s: record for s, record in sound.items() if s not in damaged}


def test_half_a_record_at_the_seam_is_seen(directory: Path) -> None:
    """A record of which the first half is new and the second still the one of a lap before is no record."""
    ring = plugin.RingWriter.create(directory, identity(), 64)
    for index in range(65):
        ring.write(index, index)
    path = Path(ring.path)
    new = path.read_bytes()[4096 : 4096 + 128]
    old = struct.pack("<Q", 1) + PAYLOAD.pack(*[0] * 8, -1, 1, *[0] * 11) + struct.pack("<Q", 1)
    old += struct.pack("<I", zlib.crc32(old))
    for cut in range(8, 120):
        fd = os.open(path, os.O_WRONLY)
        os.pwrite(fd, new[:cut] + old[cut:], 4096)
        os.close(fd)
        assert 65 not in read_records(path)
        assert 1 not in read_records(path)


@pytest.mark.parametrize("fields", [{"end_ns": -1}, {"cycle_ns": 2**64}, {"kind": 256}, {"flags": 1 << 16}])
def test_number_out_of_range_is_refused(directory: Path, fields: dict[str, int]) -> None:
    """What does not fit a field is an error, and the record's place stays free for the next."""
    ring = plugin.RingWriter.create(directory, identity(), 64)
    with pytest.raises(struct.error):
        ring.write(**{"end_ns": 1, "cycle_ns": 1, **fields})
    ring.write(7, 8)
    assert list(read_records(Path(ring.path))) == [1]


# What may happen to the file


def test_truncated_file(directory: Path) -> None:
    """A file cut off under the writer is written on: no signal, no exception."""
    ring = plugin.RingWriter.create(directory, identity(), 64)
    for index in range(200):
        if index == 100:
            os.truncate(ring.path, 0)
        ring.write(index, index)
    ring.write_counters(heartbeat_ns=1)
    assert ring.written == 200


def test_deleted_file(directory: Path) -> None:
    """A file deleted under the writer is written on, seen by nobody."""
    ring = plugin.RingWriter.create(directory, identity(), 64)
    Path(ring.path).unlink()
    ring.write(1, 1)
    ring.write_counters()
    assert list(directory.iterdir()) == []


def test_closed_ring_is_not_somebody_elses_file(directory: Path) -> None:
    """After the end the number of the file may be another file's: it is not written to."""
    ring = plugin.RingWriter.create(directory, identity(), 64)
    ring.close()
    with (directory / "other").open("w+b") as other:
        with pytest.raises(OSError, match="Bad file descriptor"):
            ring.write(1, 1)
        with pytest.raises(OSError, match="Bad file descriptor"):
            ring.write_counters()
        assert other.read() == b""
    ring.close()


def test_full_tmpfs(small_tmpfs: Path) -> None:
    """On a full tmpfs a write fails, and says so; a server it is part of goes on, and the hooks give up."""
    clock = Clock()
    hooks = plugin.Hooks(lambda _: plugin.RingWriter.create(small_tmpfs, identity(), 64), clock, clock)
    scheduler = hook(type("Scheduler", (Scheduler,), {}), hooks)(clock, [decode()] * 300, overlap=True)
    scheduler.process_input_requests([])
    assert hooks.ring is not None
    os.truncate(hooks.ring.path, 4096)
    with suppress(OSError), (small_tmpfs / "filler").open("wb", buffering=0) as filler:
        while filler.write(bytes(4096)):
            pass
    scheduler.event_loop_overlap()
    assert len(scheduler.processed) == 300
    assert hooks.disabled == plugin.DISABLED_BY_RING
    assert read_counters(next(small_tmpfs.glob("*.ring")))[6] == plugin.DISABLED_BY_RING


def test_tmpfs_without_room_for_the_ring(small_tmpfs: Path) -> None:
    """A ring that does not fit is not begun: the room is taken before it is there."""
    with pytest.raises(OSError, match="No space") as raised:
        plugin.RingWriter.create(small_tmpfs, identity(), 16384)
    assert raised.value.errno == errno.ENOSPC
    assert list(small_tmpfs.iterdir()) == []


def test_directory_must_be_in_memory(directory: Path) -> None:
    """A directory that is not on tmpfs is refused by name; the kind of the file system is that of the deepest mount."""
    with pytest.raises(ValueError, match="/proc is on proc, not on tmpfs"):
        plugin.RingWriter.create("/proc", identity())
    assert plugin._file_system(directory) == "tmpfs"
    assert plugin._file_system("/proc/self/fd") == "proc"


MOUNTS = """\
22 1 0:20 / / rw - ext4 /dev/root rw
25 22 0:5 / /dev rw shared:2 - devtmpfs udev rw
26 25 0:22 / /dev/shm rw shared:3 - tmpfs tmpfs rw
40 22 0:40 / /mnt/with\\040space rw - tmpfs tmpfs rw
41 22 0:41 / /srv rw - tmpfs tmpfs rw
42 22 0:42 / /srv rw - xfs /dev/sdb rw
43 22 0:43 / /tmp rw master:1 propagate_from:2 - ramfs none rw
"""


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/home/rings", "ext4"),
        ("/dev", "devtmpfs"),
        ("/dev/shm", "tmpfs"),
        ("/dev/shm/rings", "tmpfs"),
        ("/dev/shmx", "devtmpfs"),
        ("/mnt/with space/rings", "tmpfs"),
        ("/srv/rings", "xfs"),
        ("/tmp/rings", "ramfs"),
    ],
)
def test_file_system_from_the_mounts(path: str, kind: str, tmp_path: Path) -> None:
    """The deepest mount above a path counts, and of several in one place the last."""
    (tmp_path / "mountinfo").write_text(MOUNTS)
    assert plugin._file_system(path, str(tmp_path / "mountinfo")) == kind


def test_symbolic_link_to_a_disk(directory: Path) -> None:
    """A link on tmpfs that leads to a disk is a disk."""
    (directory / "link").symlink_to("/proc")
    with pytest.raises(ValueError, match="not on tmpfs"):
        plugin.RingWriter.create(directory / "link", identity())
