import itertools
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
import zmq
from hypothesis import given, settings
from hypothesis import strategies as st

from cyclewatch.collectors.base import Now
from cyclewatch.collectors.discovery import Discovery
from cyclewatch.collectors.forward_pass import SETTLE_NS, SILENT_NS, ForwardPassCollector, subscribe
from cyclewatch.collectors.forward_pass_messages import Message, Subscriber, decoded
from cyclewatch.collectors.records import CycleBatch, Failure, ForwardMode, NoData, RingIdentity, Sample
from cyclewatch.config.settings import ForwardPass, Target
from watched import ring_identity

SECOND = 10**9


def message(
    counter: int, wall_time: float = 0.01, *, prefills: int = 0, decodes: int = 8, **changes: Any
) -> dict[str, Any]:
    """A message as SGLang 0.5.23 makes it: every field of its structs, by name."""
    return {
        "version": 1,
        "worker_id": "",
        "dp_rank": 0,
        "counter_id": counter,
        "wall_time": wall_time,
        "scheduled_requests": {
            "num_prefill_requests": prefills,
            "sum_prefill_tokens": 100 * prefills,
            "var_prefill_length": 1.5,
            "sum_prefill_kv_tokens": 30 * prefills,
            "num_decode_requests": decodes,
            "sum_decode_kv_tokens": 500 * decodes,
            "var_decode_kv_tokens": 0.0,
        },
        "queued_requests": {
            "num_prefill_requests": 2,
            "sum_prefill_tokens": 0,
            "var_prefill_length": 0.0,
            "num_decode_requests": 1,
            "sum_decode_kv_tokens": 0,
            "var_decode_kv_tokens": 0.0,
        },
        **changes,
    }


class Fake:
    """A subscription whose messages are put into it."""

    def __init__(self) -> None:
        self.waiting: list[dict[str, Any] | None] = []
        self.closed = False

    def messages(self) -> Iterator[Message | None]:
        taken, self.waiting = self.waiting, []
        return (None if one is None else msgspec.convert(one, Message) for one in taken)

    def close(self) -> None:
        self.closed = True


class Lab:
    """The collector, with sockets that are only files."""

    def __init__(self, directory: Path, groups: int = 1, **target: Any) -> None:
        self.base = directory / "fpm"
        for group in range(groups):
            (directory / f"fpm.{group}").touch()
        address = target.pop("address", f"ipc://{self.base}")
        self.discovery = Discovery([Target(name="a", url="http://a:1", forward_pass_metrics=address)])  # type: ignore[arg-type]
        self.made: dict[str, Fake] = {}
        self.collector = ForwardPassCollector(ForwardPass(), self.discovery, self.subscribe)

    def subscribe(self, address: str) -> Fake:
        self.made[address] = Fake()
        return self.made[address]

    @property
    def fake(self) -> Fake:
        return self.made[f"ipc://{self.base}.0"]

    def collect(self, at_s: float = 1.0) -> list[Sample]:
        at_ns = int(at_s * SECOND)
        return list(self.collector.collect(Now(at_ns, 10**18 + at_ns)))

    def batch(self, at_s: float, *messages: dict[str, Any] | None) -> CycleBatch:
        self.fake.waiting.extend(messages)
        (sample,) = self.collect(at_s)
        assert isinstance(sample, CycleBatch)
        return sample


@pytest.fixture(name="lab")
def _lab(tmp_path: Path) -> Lab:
    lab = Lab(tmp_path)
    assert lab.collect() == []  # subscribed, and nothing heard yet
    return lab


def ring() -> RingIdentity:
    return ring_identity(server={"host": "a", "port": 1})


class TestCollector:
    def test_a_decode_is_a_record(self, lab: Lab) -> None:
        """What is unknown is zero, as it is in a ring; all of the time is the device's."""
        batch = lab.batch(2, message(7, 0.0125))
        (record,) = batch.records
        told = {name: int(record[name]) for name in batch.records.dtype.names or () if record[name]}
        assert told == {
            "sequence": 8,
            "sequence_end": 8,
            "end_ns": 2 * SECOND,
            "cycle_ns": 12_500_000,
            "wait_ns": 12_500_000,
            "on_cpu_ns": -1,
            "kind": 1,
            "mode": ForwardMode.DECODE,
            "launched_mode": ForwardMode.DECODE,
            "batch_size": 8,
            "kv_tokens": 4000,
            "queue_length": 3,
        }
        assert (batch.target, batch.ring.rank, batch.ring.device_only, batch.alive) == ("a", "dp0", True, True)

    @pytest.mark.parametrize(
        ("prefills", "decodes", "mode", "tokens"),
        [
            (2, 0, ForwardMode.EXTEND, (2, 200, 260)),
            (2, 3, ForwardMode.MIXED, (5, 200, 1760)),
            (0, 0, ForwardMode.IDLE, (0, 0, 0)),
        ],
    )
    def test_the_mode_is_told_by_the_requests(
        self, lab: Lab, prefills: int, decodes: int, mode: ForwardMode, tokens: tuple[int, ...]
    ) -> None:
        """KV tokens are those of the sequences when the pass is done, cached prefixes with them."""
        (record,) = lab.batch(2, message(0, prefills=prefills, decodes=decodes)).records
        assert record["mode"] == mode
        assert tuple(record[["batch_size", "new_tokens", "kv_tokens"]]) == tokens

    def test_a_sign_of_life_is_no_pass(self, lab: Lab) -> None:
        batch = lab.batch(2, message(0, 0.0, decodes=0))
        assert (len(batch.records), batch.counters.heartbeat_ns, batch.alive) == (0, 2 * SECOND, True)

    def test_messages_that_never_came_are_counted(self, lab: Lab) -> None:
        """Also those lost between two looks; what came before the subscription is not lost."""
        assert lab.batch(2, message(100), message(103)).lost == 2
        batch = lab.batch(3, message(110))
        assert (batch.lost, batch.counters.written) == (6, 111)

    def test_what_is_no_message_is_counted(self, lab: Lab) -> None:
        batch = lab.batch(2, None, message(0), None)
        assert (len(batch.records), batch.torn) == (1, 2)

    def test_a_server_that_began_anew_is_gone_for_a_while(self, lab: Lab) -> None:
        """Passes of two starts, which may be of two configurations, do not meet."""
        lab.batch(2, message(500))
        batch = lab.batch(3, message(501), message(0), message(1))
        assert (len(batch.records), batch.lost, batch.alive) == (0, 0, False)
        batch = lab.batch(4, message(2))
        assert (len(batch.records), batch.alive) == (0, False)
        batch = lab.batch(3 + SETTLE_NS / SECOND, message(3))
        assert (len(batch.records), batch.alive) == (1, True)

    def test_a_server_that_is_silent_is_gone(self, lab: Lab) -> None:
        lab.batch(2, message(0))
        assert lab.batch(1 + SILENT_NS / SECOND).alive
        assert not lab.batch(2 + SILENT_NS / SECOND).alive
        assert lab.batch(4 + SILENT_NS / SECOND, message(1)).alive

    def test_a_ring_counts_before_forward_passes(self, lab: Lab) -> None:
        """The subscription ends with the ring's first sight, and comes back with its end."""
        lab.batch(2, message(0))
        lab.discovery.note(ring())
        first, second = lab.collect(3)
        assert isinstance(first, CycleBatch)
        assert (first.alive, isinstance(second, NoData), lab.fake.closed) == (False, True, True)
        lab.discovery.forget(ring().key)
        lab.collect(20)
        assert not lab.fake.closed

    def test_every_data_parallel_group_is_a_rank(self, tmp_path: Path) -> None:
        lab = Lab(tmp_path, groups=3)
        (tmp_path / "fpm.3.lock").touch()
        (tmp_path / "fpm").touch()
        lab.collect()
        assert len(lab.made) == 3
        for fake in lab.made.values():
            fake.waiting.append(message(0))
        batches = lab.collect(2)
        assert [batch.ring.rank for batch in batches if isinstance(batch, CycleBatch)] == ["dp0", "dp1", "dp2"]
        assert len({batch.ring.key for batch in batches if isinstance(batch, CycleBatch)}) == 3

    def test_the_server_says_where_it_publishes(self, tmp_path: Path) -> None:
        """Unless it is configured."""
        lab = Lab(tmp_path, address="")
        assert all(isinstance(sample, NoData) for sample in lab.collect())
        lab.discovery.publishes("a", f"ipc://{lab.base}")
        lab.collect(2)
        assert list(lab.made) == [f"ipc://{lab.base}.0"]

    def test_sockets_that_come_later_are_found(self, tmp_path: Path) -> None:
        lab = Lab(tmp_path, groups=0)
        (sample,) = lab.collect()
        assert isinstance(sample, NoData)
        assert "--forward-pass-metrics-ipc-name" in sample.reason
        (tmp_path / "fpm.0").touch()
        lab.collect(12)
        assert len(lab.made) == 1

    def test_an_address_of_another_kind_is_refused(self, tmp_path: Path) -> None:
        lab = Lab(tmp_path, address="")
        lab.discovery.publishes("a", "tcp://10.0.0.1:5")
        (failure,) = lab.collect()
        assert isinstance(failure, Failure)
        assert "ipc://" in failure.reason

    def test_without_pyzmq_it_says_what_to_install(self, lab: Lab, tmp_path: Path) -> None:
        def missing(address: str) -> Fake:
            raise ModuleNotFoundError(address)

        collector = ForwardPassCollector(ForwardPass(), lab.discovery, missing)
        (failure,) = collector.collect(Now(0, 0))
        assert isinstance(failure, Failure)
        assert "cyclewatch[fpm]" in failure.reason


class TestSubscriber:
    @pytest.fixture(name="sockets")
    def _sockets(self, tmp_path: Path) -> Iterator[tuple["zmq.Socket[bytes]", Subscriber]]:
        context = zmq.Context()
        publisher = context.socket(zmq.PUB)
        publisher.bind(f"ipc://{tmp_path}/fpm.0")
        subscriber = subscribe(f"ipc://{tmp_path}/fpm.0")
        assert isinstance(subscriber, Subscriber)
        while not received(publisher, subscriber, [b"", b"", msgspec.msgpack.encode(message(0))]):
            pass  # the subscription has not reached the publisher
        list(subscriber.messages())
        yield publisher, subscriber
        subscriber.close()
        publisher.close(linger=0)
        context.term()

    def test_messages_come_in_their_order(self, sockets: tuple["zmq.Socket[bytes]", Subscriber]) -> None:
        publisher, subscriber = sockets
        for counter in range(50):
            send(publisher, counter)
        got = list(itertools.islice(arriving(subscriber), 50))
        assert [one.counter_id if one else None for one in got] == list(range(50))

    @pytest.mark.parametrize(
        "frames",
        [
            [b"x"],
            [b"", b"\0" * 8, b""],
            [b"", b"\0" * 8, b"\xc1" * 40],
            [b"", b"\0" * 8, msgspec.msgpack.encode([1, "", 0, 5])],
            [b"", b"\0" * 8, msgspec.msgpack.encode(message(0, version=2))],
            [b"", b"\0" * 8, msgspec.msgpack.encode(message(0, wall_time=float("nan")))],
            [b"", b"\0" * 8, msgspec.msgpack.encode(message(0, wall_time=-1.0))],
            [b"", b"\0" * 8, msgspec.msgpack.encode(message(0, counter_id=2**63))],
            [b"", b"\0" * 8, msgspec.msgpack.encode(message(0)), b"more"],
            [b"", b"\0" * 8, msgspec.msgpack.encode(message(0, worker_id="abc")).replace(b"abc", b"a\xff\xff")],
            [b"", b"\0" * 8, b"\x81\xa1x" + b"\x91" * 60_000 + b"\xc0"],
        ],
    )
    def test_what_is_no_message_is_none(
        self, sockets: tuple["zmq.Socket[bytes]", Subscriber], frames: list[bytes]
    ) -> None:
        publisher, subscriber = sockets
        publisher.send_multipart(frames)
        send(publisher, 1)
        first, second = itertools.islice(arriving(subscriber), 2)
        assert first is None
        assert second is not None

    def test_a_publisher_that_was_restarted_is_heard_again(self, tmp_path: Path) -> None:
        """The subscription is the same."""
        subscriber = Subscriber(f"ipc://{tmp_path}/fpm.0")
        context = zmq.Context()
        for _ in range(2):
            publisher = context.socket(zmq.PUB)
            publisher.bind(f"ipc://{tmp_path}/fpm.0")
            while not received(publisher, subscriber, [b"", b"", msgspec.msgpack.encode(message(0))]):
                pass
            publisher.close(linger=0)
        subscriber.close()
        context.term()

    def test_a_message_without_names_says_the_same(self) -> None:
        """Every field of version 1, in its order."""
        named = message(7, 0.0125, prefills=3)
        values = [list(value.values()) if isinstance(value, dict) else value for value in named.values()]
        one, other = decoded(msgspec.msgpack.encode(named)), decoded(msgspec.msgpack.encode(values))
        assert msgspec.to_builtins(one) == named
        assert msgspec.to_builtins(other) == values
        assert other.scheduled_requests.sum_decode_kv_tokens == one.scheduled_requests.sum_decode_kv_tokens == 4000
        for short in (values[:3], [*values[:-1], []], []):
            with pytest.raises(msgspec.MsgspecError):
                decoded(msgspec.msgpack.encode(short))

    def test_an_address_that_is_none_is_an_os_error(self) -> None:
        with pytest.raises(OSError, match=r"[Ii]nvalid|supported|long"):
            Subscriber("ipc://" + "x" * 500)


def send(publisher: "zmq.Socket[bytes]", counter: int) -> None:
    publisher.send_multipart([b"", counter.to_bytes(8, "big"), msgspec.msgpack.encode(message(counter))])


def received(publisher: "zmq.Socket[bytes]", subscriber: Subscriber, frames: list[bytes]) -> bool:
    publisher.send_multipart(frames)
    subscriber._socket.poll(50)
    return any(subscriber.messages())


def arriving(subscriber: Subscriber) -> Iterator[Message | None]:
    """Messages as they come, for ten seconds."""
    while subscriber._socket.poll(10_000):
        yield from subscriber.messages()


@given(
    st.lists(
        st.none()
        | st.builds(
            message,
            st.integers(0, 10) | st.integers(0, 2**62 - 1),
            st.floats(0, 3600),
            prefills=st.integers(0, 10**6),
            decodes=st.integers(0, 2**31 - 1),
        ),
        max_size=8,
    )
)
@settings(max_examples=50)
def test_any_messages_make_records_that_can_be_judged(messages: list[dict[str, Any] | None]) -> None:
    """Whatever the order of their counters, and however large their numbers."""
    with tempfile.TemporaryDirectory() as directory:
        lab = Lab(Path(directory))
        lab.collect()
        lab.fake.waiting = messages
        for sample in lab.collect(2):
            assert isinstance(sample, CycleBatch)
            assert sample.lost >= 0
            assert (sample.records["cycle_ns"] > 0).all()
