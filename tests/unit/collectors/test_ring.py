import json
import os
import subprocess
import sys
import time
import tracemalloc
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import psutil
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import cyclewatch_sglang as plugin
import rings
from cyclewatch.collectors import ring as reader_module
from cyclewatch.collectors.records import RECORD, CycleFlag, ForwardMode, RecordKind
from cyclewatch.collectors.ring import RingError, RingReader
from rings import PlainRing

BODIES = st.binary(min_size=rings.PAYLOAD.size, max_size=rings.PAYLOAD.size)
SOUND_BODIES = BODIES.map(lambda body: body[:78] + b"\0\0" + body[80:])
"""Arbitrary but for the reserved field."""


@pytest.fixture(name="ring")
def _ring(tmp_path: Path) -> Iterator[PlainRing]:
    ring = PlainRing(tmp_path, 64)
    yield ring
    ring.close()


@pytest.fixture(name="reader")
def _reader(ring: PlainRing) -> Iterator[RingReader]:
    reader = RingReader(ring.path)
    yield reader
    reader.close()


class Account:
    """What a reader gave in all, over any number of looks."""

    def __init__(self, reader: RingReader) -> None:
        self.reader = reader
        self.sequences: list[int] = []
        self.payloads: dict[int, bytes] = {}
        self.lost = self.torn = 0

    def look(self) -> None:
        reading = self.reader.read()
        self.lost += reading.lost
        self.torn += reading.torn
        self.sequences += [int(number) for number in reading.records["sequence"]]
        self.payloads |= {int(one["sequence"]): one.tobytes()[8:116] for one in reading.records}

    @property
    def total(self) -> int:
        return len(self.sequences) + self.lost + self.torn


def fill(ring: PlainRing, count: int) -> None:
    for _ in range(count):
        ring.write()


def test_the_newest_record_is_given_at_the_second_look(ring: PlainRing, reader: RingReader) -> None:
    """One record behind the writer, so that one being written is not taken for a torn one."""
    fill(ring, 3)
    assert list(reader.read().records["sequence"]) == [1, 2]
    assert list(reader.read().records["sequence"]) == [3]
    assert not len(reader.read().records)


def test_a_record_keeps_every_field(ring: PlainRing, reader: RingReader) -> None:
    """Each field of the payload arrives under its own name."""
    values = {name: index + 1 for index, name in enumerate(rings.PAYLOAD_FIELDS)}
    ring.write(rings.payload(**values))
    reader.read()
    (got,) = reader.read().records
    assert {name: int(got[name]) for name in rings.PAYLOAD_FIELDS} == values


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    capacity=st.integers(2, 200),
    steps=st.lists(st.integers(-1, 450), max_size=20),
    seed=st.randoms(use_true_random=False),
)
def test_every_record_is_read_lost_or_torn(tmp_path: Path, capacity: int, steps: list[int], seed: object) -> None:
    """Whatever the pace: what is read is what was written, in order, and the account adds up. -1 damages a slot."""
    random = np.random.default_rng(seed.getrandbits(32))  # type: ignore[attr-defined]
    ring = PlainRing(tmp_path, capacity)
    account = Account(RingReader(ring.path))
    written: dict[int, bytes] = {}
    for step in steps:
        if step < 0 and ring.written:
            ring.damage(ring.written, random.bytes(rings.RECORD_BYTES))
        for _ in range(step):
            body = random.bytes(rings.PAYLOAD.size)
            ring.write(body)
            written[ring.written] = body
        account.look()
    ring.write(bytes(rings.PAYLOAD.size))  # past a damaged last record
    written[ring.written] = bytes(rings.PAYLOAD.size)
    account.look()
    account.look()
    account.reader.close()
    ring.close()
    assert account.sequences == sorted(set(account.sequences))
    assert all(written[number] == body for number, body in account.payloads.items())
    assert account.total == ring.written
    assert ring.written in account.payloads


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(SOUND_BODIES, min_size=1, max_size=150), st.integers(64, 200))
def test_what_the_plugin_writes_is_what_is_read(tmp_path: Path, bodies: list[bytes], capacity: int) -> None:
    """Arbitrary payloads through the real writer."""
    (tmp_path / "rings").mkdir(exist_ok=True)
    writer = plugin.RingWriter.create(tmp_path / "rings", rings.identity(), capacity, memory_only=False)
    account = Account(RingReader(Path(writer.path)))
    for body in bodies:
        writer.write_payload(body)
        account.look()
    account.look()
    writer.close()
    account.reader.close()
    assert [account.payloads[number] for number in account.sequences] == bodies
    assert (account.lost, account.torn) == (0, 0)


RACING_WRITER = """
import json, sys, time
import cyclewatch_sglang as plugin
writer = plugin.RingWriter.create(sys.argv[1], json.loads(sys.argv[2]), 64, memory_only=False)
for number in range(20_000):
    writer.write_payload(bytes.fromhex(sys.argv[3]))
    if number % 20 == 0:
        time.sleep(0.0002)
"""


def test_a_reader_that_races_a_writer_gives_nothing_torn(tmp_path: Path) -> None:
    """A real one in a process of its own, a hundred times as fast as a scheduler, in the smallest ring.

    On a busy machine it may pass a slot twice while that is looked at: counted as torn, and never given.
    """
    command = [sys.executable, "-c", RACING_WRITER, str(tmp_path), json.dumps(rings.identity()), rings.payload().hex()]
    environment = {**os.environ, "PYTHONPATH": str(Path(plugin.__file__).parent)}
    with subprocess.Popen(command, env=environment) as writer:
        path = tmp_path / rings.ring_name(rings.identity())
        while not path.exists():
            assert writer.poll() is None
            time.sleep(0.001)
        account = Account(RingReader(path, 1))
        before = account.reader.next_sequence - 1
        while writer.poll() is None:
            account.look()
    for _ in range(3):
        account.look()
    account.reader.close()
    assert account.torn < 20
    assert set(account.payloads.values()) == {rings.payload()}
    assert before + account.total == 20_000
    assert account.sequences == sorted(set(account.sequences))


def test_a_reader_that_was_lapped_goes_on_with_what_is_left(ring: PlainRing, reader: RingReader) -> None:
    """Three times around between two looks: the latest records, the others counted as lost."""
    account = Account(reader)
    fill(ring, 10)
    account.look()
    fill(ring, 3 * 64)
    account.look()
    account.look()
    assert account.sequences[-1] == ring.written
    assert account.torn == 0
    assert account.total == ring.written
    assert len(account.sequences) > 60


def test_records_overwritten_while_others_wait_are_lost_and_no_others(ring: PlainRing, reader: RingReader) -> None:
    """The writer is five records ahead of a full ring: just those five are lost."""
    account = Account(reader)
    fill(ring, 64 + 5)
    account.look()
    account.look()
    assert (account.lost, account.sequences) == (5, list(range(6, 70)))


@pytest.mark.parametrize("place", [1, 2, 40, 63, 64])
def test_a_torn_record_is_counted_and_not_delivered(ring: PlainRing, reader: RingReader, place: int) -> None:
    """At any place, the last slot before the wrap too."""
    account = Account(reader)
    fill(ring, place)
    ring.damage(place)
    account.look()
    fill(ring, 20)
    account.look()
    account.look()
    assert account.torn == 1
    assert place not in account.sequences
    assert account.total == place + 20


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(rings.record(5, rings.payload(), crc=1), id="check"),
        pytest.param(rings.record(5, rings.payload(), sequence_end=4), id="sequences"),
        pytest.param(rings.record(4, rings.payload()), id="another sequence"),
        pytest.param(bytes(128), id="zeros"),
    ],
)
def test_a_half_written_record_is_torn(ring: PlainRing, reader: RingReader, data: bytes) -> None:
    """Old and new parts in one slot, a wrong check, or nothing."""
    account = Account(reader)
    fill(ring, 10)
    ring.damage(5, data)
    account.look()
    account.look()
    assert (account.torn, account.lost, len(account.sequences)) == (1, 0, 9)


def test_a_record_that_a_look_caught_half_written_is_read_once_it_is_whole(ring: PlainRing, reader: RingReader) -> None:
    """The newest record is no judgement yet."""
    account = Account(reader)
    fill(ring, 4)
    whole = rings.record(5, rings.payload())
    ring.put(5, whole[:60])
    account.look()
    ring.put(5, whole)
    account.look()
    account.look()
    assert account.sequences == [1, 2, 3, 4, 5]
    assert account.torn == 0


def test_the_writer_going_past_during_a_look_makes_nothing_torn(
    ring: PlainRing, reader: RingReader, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A slot copied just before it was written, the next one just after: the first is whole by then."""
    fill(ring, 6)
    real = os.pread
    stale = bytearray(real(ring.fd, 64 * 128, 4096))
    stale[3 * 128 : 4 * 128] = bytes(128)
    answers = iter([bytes(stale)])
    monkeypatch.setattr("os.pread", lambda *call: next(answers, None) or real(*call))
    reading = reader.read()
    assert (reading.torn, list(reading.records["sequence"])) == (0, [1, 2, 3, 4, 5])


@pytest.mark.parametrize("sequence", [2**62 + 1, 2**64 - 1, 64 * 10**6 + 2])
def test_records_with_absurd_sequences_stop_nothing(tmp_path: Path, sequence: int) -> None:
    """Right checks on numbers that no writer has reached yet."""
    ring = PlainRing(tmp_path, 64)
    ring.put(sequence, rings.record(sequence, rings.payload()))
    account = Account(RingReader(ring.path))
    fill(ring, 200)
    for _ in range(3):
        account.look()
    account.reader.close()
    ring.close()
    assert account.total <= ring.written or sequence < 2**62


@pytest.mark.parametrize("shift", [2**63, 2**40 + 7], ids=["absurd", "in another's place"])
def test_forged_records_do_not_keep_the_reader_busy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, shift: int
) -> None:
    """Sound but for their sequences: they are passed by, and the ring is not looked through for each."""
    ring = PlainRing(tmp_path, 4096)
    reader = RingReader(ring.path)
    for place in range(1, 4097):
        ring.put(place, rings.record(place + shift, rings.payload()))
    looked, real = [], os.pread

    def pread(fd: int, length: int, offset: int) -> bytes:
        looked.append(length)
        return real(fd, length, offset)

    monkeypatch.setattr("os.pread", pread)
    for _ in range(3):
        assert len(reader.read().records) == 0
    reader.close()
    ring.close()
    assert sum(looked) < 3 * 4096 * rings.RECORD_BYTES


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data(), capacity=st.integers(2, 20))
def test_garbage_with_plausible_sequences_never_comes_through(
    tmp_path: Path, data: st.DataObject, capacity: int
) -> None:
    """Slots of any content around the right numbers: no exception, nothing delivered but whole records."""
    ring = PlainRing(tmp_path, capacity)
    account = Account(RingReader(ring.path))
    for _ in range(data.draw(st.integers(1, 30))):
        sequence = data.draw(st.integers(0, 2 * capacity))
        body = data.draw(BODIES)
        slot = rings.record(sequence, body, crc=data.draw(st.none() | st.integers(0, 2**32 - 1)))
        ring.put(data.draw(st.integers(1, capacity)), slot)
        account.look()
    account.reader.close()
    ring.close()
    assert account.sequences == sorted(set(account.sequences))


@pytest.mark.parametrize("stop", [1, 30, 64, 90, 200])
def test_a_new_reader_goes_on_where_the_old_one_stopped(ring: PlainRing, stop: int) -> None:
    """Nothing twice, nothing missed."""
    fill(ring, stop)
    first = RingReader(ring.path, 1)
    first.read()
    place = first.next_sequence
    first.close()
    fill(ring, 30)
    second = RingReader(ring.path, place)
    account = Account(second)
    account.look()
    account.look()
    second.close()
    assert account.sequences == list(range(place, ring.written + 1))


def test_a_place_beyond_the_newest_record_is_of_another_file(ring: PlainRing) -> None:
    """A ring of the same name after a reboot is read from its beginning."""
    fill(ring, 10)
    reader = RingReader(ring.path, 5000)
    assert list(reader.read().records["sequence"]) == list(range(1, 10))
    reader.close()


def test_a_ring_longer_than_a_look_is_read_in_one_call(tmp_path: Path) -> None:
    """After a long absence the daemon catches up at once."""
    ring = PlainRing(tmp_path, 6000)
    fill(ring, 5900)
    reader = RingReader(ring.path)
    assert list(reader.read().records["sequence"]) == list(range(1, 5900))
    reader.close()
    ring.close()


def test_a_look_is_bounded(tmp_path: Path) -> None:
    """About `limit` records at most, and the rest at the next look."""
    ring = PlainRing(tmp_path, 4000)
    fill(ring, 3500)
    account = Account(RingReader(ring.path))
    assert len(account.reader.read(limit=100).records) < 1100
    account.look()
    assert account.reader.next_sequence == 3500
    account.reader.close()
    ring.close()


def test_counters_are_read_and_damaged_ones_are_none(ring: PlainRing, reader: RingReader) -> None:
    """Each field under its own name."""
    values = {name: index + 1 for index, name in enumerate(rings.COUNTER_FIELDS)}
    ring.write_counters(**values)
    counters = reader.counters()
    assert counters is not None
    assert vars(counters) == values
    os.pwrite(ring.fd, b"\xff", 3072)
    assert reader.counters() is None


def refusal(path: Path) -> str:
    """The one sentence with which a file is refused."""
    with pytest.raises(RingError) as caught:
        RingReader(path)
    assert str(path) in str(caught.value)
    return str(caught.value)


GOOD = json.dumps(rings.identity()).encode()


@pytest.mark.parametrize(
    ("content", "said"),
    [
        pytest.param(b"", "0 bytes, shorter than a ring's header", id="empty"),
        pytest.param(rings.header(GOOD, 64)[:4095], "4095 bytes, shorter", id="cut header"),
        pytest.param(b"\x7fELF".ljust(8192, b"\0"), "not a ring", id="foreign"),
        pytest.param(rings.header(GOOD, 64, version=0), "ring format 0, this daemon reads 1", id="older"),
        pytest.param(rings.header(GOOD, 64, version=2), "install the same release", id="newer"),
        pytest.param(rings.header(GOOD, 64, crc=7), "the header's check is wrong", id="header check"),
        pytest.param(rings.header(GOOD, 64, text_crc=7), "the identity's check is wrong", id="identity check"),
        pytest.param(rings.header(GOOD, 64, record_bytes=64), "records of 64 bytes", id="record size"),
        pytest.param(rings.header(GOOD, 64, header_bytes=512), "header of 512", id="header size"),
        *(
            pytest.param(rings.header(GOOD, capacity), f"capacity of {capacity} records is absurd", id=f"{capacity}")
            for capacity in (0, 1, 2**20 + 1, 2**40, 2**64 - 1)
        ),
        pytest.param(rings.header(GOOD, 64, length=3001), "identity of 3001 bytes is too long", id="long"),
        pytest.param(rings.header(GOOD, 64, length=2**32 - 1), "is too long", id="longest"),
        pytest.param(rings.header(b"not json", 64), "identity is not JSON", id="no JSON"),
        pytest.param(rings.header(b"\xff\xfe", 64), "identity is not JSON", id="no UTF-8"),
        pytest.param(rings.header(b"[" * 3000, 64), "identity is not JSON", id="deep"),
        pytest.param(rings.header(b'{"pid": "\\ud800"}', 64), "identity is not JSON", id="half a character"),
        pytest.param(rings.header(b'{"pid": NaN}', 64), "identity is not JSON", id="not a number"),
        pytest.param(rings.header(b"[1]", 64), "not a JSON object", id="a list"),
        pytest.param(rings.header(b"{}", 64), "identity field pid is None", id="nothing"),
        pytest.param(rings.header(json.dumps(rings.identity(pid=True)).encode(), 64), "field pid", id="true"),
        pytest.param(rings.header(json.dumps(rings.identity(wall_ns=2**63)).encode(), 64), "wall_ns", id="too large"),
        pytest.param(rings.header(json.dumps(rings.identity(pid=-1)).encode(), 64), "field pid", id="negative"),
        pytest.param(rings.header(json.dumps(rings.identity(tp_rank="0")).encode(), 64), "tp_rank", id="rank"),
    ],
)
def test_what_is_no_ring_is_refused_with_its_name(tmp_path: Path, content: bytes, said: str) -> None:
    """The file and what is wrong with it."""
    path = tmp_path / "1-2-3.ring"
    path.write_bytes(content)
    assert said in refusal(path)


def test_a_file_of_another_name_is_no_ring(tmp_path: Path) -> None:
    """The name is the key in the store and in metrics: it must be numbers."""
    path = tmp_path / "x\udcff|y.ring"
    path.write_bytes(rings.header(GOOD, 64))
    assert "not named <pid namespace>" in refusal(path)


@pytest.mark.parametrize("hooks_missing", [7, "run_batch", {"a": 1}, None])
def test_strange_types_in_the_identity_count_as_absent(tmp_path: Path, hooks_missing: object) -> None:
    """Another release may say more than this one understands."""
    path = tmp_path / "1-2-3.ring"
    text = json.dumps(rings.identity(hooks_missing=hooks_missing, server=[1])).encode()
    path.write_bytes(rings.header(text, 64))
    reader = RingReader(path)
    reader.close()
    assert reader.identity.hooks_missing == ()
    assert reader.identity.server == {}


def test_a_link_is_not_followed(tmp_path: Path, ring: PlainRing) -> None:
    """Whoever may write the directory must not make the daemon read elsewhere."""
    (tmp_path / "1-2-3.ring").symlink_to(ring.path)
    with pytest.raises(OSError, match="symbolic links"):
        RingReader(tmp_path / "1-2-3.ring")


@pytest.mark.timeout(5)
def test_a_pipe_does_not_block(tmp_path: Path) -> None:
    """Opening one for reading would wait for a writer."""
    os.mkfifo(tmp_path / "1-2-3.ring")
    with pytest.raises(OSError, match="seek"):
        RingReader(tmp_path / "1-2-3.ring")


def test_a_file_cut_off_is_seen_and_heals_as_the_writer_goes_on(ring: PlainRing, reader: RingReader) -> None:
    """No exception, what is missing is lost, and after one time around all is well again."""
    account = Account(reader)
    fill(ring, 30)
    account.look()
    os.truncate(ring.path, 4096 + 10 * 128 + 50)
    assert reader.truncated()
    account.look()
    for _ in range(4):
        fill(ring, 32)
        account.look()
    account.look()
    assert not reader.truncated()
    assert account.total == ring.written
    assert account.sequences[-1] == ring.written


def test_a_deleted_file_is_known_as_such(ring: PlainRing, reader: RingReader) -> None:
    """It still can be read: the last records are in it."""
    fill(ring, 5)
    ring.path.unlink()
    assert reader.unlinked()
    assert len(reader.read().records) == 4


def test_a_short_file_that_claims_a_million_records_takes_no_memory(tmp_path: Path) -> None:
    """2^20 records would be 128 MB."""
    path = tmp_path / "1-2-3.ring"
    path.write_bytes(rings.header(GOOD, 2**20) + b"".join(rings.record(number, rings.payload()) for number in (1, 2)))
    tracemalloc.start()
    try:
        reader = RingReader(path)
        reader.read()
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    reader.close()
    assert peak < 4 * 2**20


def test_a_refused_file_is_closed(tmp_path: Path) -> None:
    """No descriptor is left behind, however often one looks."""
    path = tmp_path / "1-2-3.ring"
    path.write_bytes(rings.header(GOOD, 0))
    before = psutil.Process().num_fds()
    for _ in range(20):
        refusal(path)
    assert psutil.Process().num_fds() == before


# The layout stands three times: in the plugin, in the reader, and in this oracle. They must be the same.


def test_plugin_and_reader_have_the_same_layout() -> None:
    """Sizes, offsets and order of the fields."""
    assert RECORD.itemsize == plugin.RECORD_BYTES == rings.RECORD_BYTES
    assert plugin.PAYLOAD.size == plugin.PAYLOAD_BYTES == rings.PAYLOAD.size
    assert plugin.PAYLOAD.format.strip("<") == rings.PAYLOAD.format.strip("<")
    assert RECORD.names == ("sequence", *plugin.PAYLOAD_FIELDS, "sequence_end", "crc")
    assert plugin.PAYLOAD_FIELDS == rings.PAYLOAD_FIELDS
    for index, name in enumerate(plugin.PAYLOAD_FIELDS):
        one = plugin.PAYLOAD.pack(*(1 if number == index else 0 for number in range(len(plugin.PAYLOAD_FIELDS))))
        kind, offset, *_ = RECORD.fields[name]  # type: ignore[index]
        assert np.frombuffer(one, kind, count=1, offset=offset - 8)[0] == 1, name
        assert sum(one) == 1, name


@pytest.mark.parametrize(
    ("of_plugin", "of_reader"),
    [
        ("MAGIC", "MAGIC"),
        ("FORMAT_VERSION", "FORMAT_VERSION"),
        ("HEADER_BYTES", "HEADER_BYTES"),
        ("RECORD_BYTES", "RECORD_BYTES"),
        ("IDENTITY_OFFSET", "IDENTITY_OFFSET"),
        ("IDENTITY_BYTES_MAX", "IDENTITY_BYTES_MAX"),
        ("COUNTERS_OFFSET", "COUNTERS_OFFSET"),
        ("CAPACITY_MAX", "CAPACITY_MAX"),
    ],
)
def test_plugin_and_reader_have_the_same_constants(of_plugin: str, of_reader: str) -> None:
    assert getattr(plugin, of_plugin) == getattr(reader_module, of_reader)


def test_plugin_and_reader_have_the_same_kinds_modes_and_flags() -> None:
    """The numbers in a record mean the same on both sides."""
    kinds = (plugin.CYCLE, plugin.FLAGGED, plugin.STALL, plugin.GARBAGE_COLLECTION)
    assert kinds == tuple(RecordKind)
    of_sglang = {"DRAFT_EXTEND_V2": "DRAFT_EXTEND", "DLLM_EXTEND": "DIFFUSION_EXTEND"}
    assert {ForwardMode[of_sglang.get(name, name)].value for name in plugin.MODES} == set(plugin.MODES.values())
    assert all(ForwardMode[of_sglang.get(name, name)] == number for name, number in plugin.MODES.items())
    assert (plugin.MODE_NONE, plugin.MODE_OTHER) == (ForwardMode.NONE, ForwardMode.OTHER)
    assert set(ForwardMode) == {*plugin.MODES.values(), plugin.MODE_NONE, plugin.MODE_OTHER}
    assert all(getattr(plugin, flag.name or "") == flag for flag in CycleFlag)


def test_the_plugins_file_is_what_the_format_says(tmp_path: Path) -> None:
    """Byte for byte the same as one written from the documentation alone."""
    values = rings.identity()
    ours = PlainRing(tmp_path, 64, values)
    (tmp_path / "other").mkdir()
    theirs = plugin.RingWriter.create(tmp_path / "other", values, 64, memory_only=False)
    for number in range(70):
        body = rings.payload(end_ns=number)
        ours.write(body)
        theirs.write_payload(body)
    ours.write_counters(failures=3, heartbeat_ns=9, paused=1)
    theirs.write_counters(failures=3, heartbeat_ns=9, paused=True)
    ours.close()
    theirs.close()
    assert Path(theirs.path).name == ours.path.name
    assert Path(theirs.path).read_bytes() == ours.path.read_bytes()
