"""The forward-pass collector: a source of cycles for servers that have no plugin.

SGLang started with `--enable-forward-pass-metrics` publishes one message for each forward pass, on a socket for each
data-parallel group. It tells the time of the pass on the device alone: a slower host does not show. Neither the stages
of the scheduler, nor its CPU time, nor CUDA graphs and the acceptance of drafts are in it.
"""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import numpy as np

from cyclewatch.collectors.base import Now
from cyclewatch.collectors.discovery import Discovery
from cyclewatch.collectors.quantities import Quantity
from cyclewatch.collectors.records import (
    RECORD,
    CycleBatch,
    Failure,
    ForwardMode,
    NoData,
    RecordKind,
    Records,
    RingCounters,
    RingIdentity,
    Sample,
)
from cyclewatch.config.settings import ForwardPass

if TYPE_CHECKING:
    from cyclewatch.collectors.forward_pass_messages import Message

SOCKETS_MAX = 64
SILENT_NS = 60 * 10**9
"""A publisher that has been silent for this long has ended: an idle one gives a sign of life every second."""

SETTLE_NS = 10 * 10**9
"""How long nothing is taken from a publisher that began anew: passes of two starts must never meet in a window."""

_SHORTEST_S = 1e-9
_LOOK_NS = 10 * 10**9
_LOST_MAX = 10**9
_SCHEME = "ipc://"


class Subscription(Protocol):
    """A subscription to one publisher; see `forward_pass_messages.Subscriber`."""

    def messages(self) -> "Iterator[Message | None]":
        """What has come in since the last call; None for what could not be understood."""
        ...

    def close(self) -> None:
        """End it."""
        ...


def subscribe(address: str) -> Subscription:
    """Subscribe to the publisher at a ZMQ address.

    Raises:
        ModuleNotFoundError: pyzmq is not installed.
        OSError: not an address.
    """
    from cyclewatch.collectors.forward_pass_messages import Subscriber  # noqa: PLC0415 (pyzmq is optional)

    return Subscriber(address)


@dataclass
class _Publisher:
    """What is remembered of one socket."""

    subscription: Subscription
    ring: RingIdentity
    next_counter: int | None = None
    heard_ns: int = 0
    settled_ns: int = 0


class ForwardPassCollector:
    """Subscribes to every server that publishes and has no ring; a ring knows more.

    The sockets of a server are its address with a dot and the number of the data-parallel group behind it; they are
    looked for every ten seconds.
    """

    name = "forward_pass"
    quantities: tuple[Quantity, ...] = ()

    def __init__(
        self, settings: ForwardPass, discovery: Discovery, subscribe: Callable[[str], Subscription] = subscribe
    ) -> None:
        self.interval_s = settings.interval_s
        self._discovery = discovery
        self._subscribe = subscribe
        self._publishers: dict[tuple[str, str], _Publisher] = {}
        self._looked_ns: int | None = None
        self._missing: list[Sample] = []

    def collect(self, now: Now) -> Iterator[Sample]:
        """Passes of every publisher since the last call."""
        with_ring = {process.target for process in self._discovery.schedulers()}
        addresses = {
            target: address
            for target, address in self._discovery.forward_pass_addresses().items()
            if target not in with_ring
        }
        for key in [key for key in self._publishers if key[0] not in addresses]:
            yield _batch(key[0], self._publishers[key], _records([], now), now, alive=False)
            self._publishers.pop(key).subscription.close()
        if not addresses:
            yield NoData("no server without a ring is known to publish forward-pass metrics")
            return
        if self._looked_ns is None or not 0 <= now.monotonic_ns - self._looked_ns < _LOOK_NS:
            self._looked_ns = now.monotonic_ns
            self._missing = [
                sample for target, address in addresses.items() for sample in self._look(target, address, now)
            ]
        yield from self._missing
        for (target, _), publisher in self._publishers.items():
            yield from _receive(target, publisher, now)

    def close(self) -> None:
        """End all subscriptions."""
        for publisher in self._publishers.values():
            publisher.subscription.close()
        self._publishers = {}
        self._looked_ns = None

    def _look(self, target: str, address: str, now: Now) -> Iterator[Sample]:
        """Subscribe to the sockets of a server that are new."""
        if not address.startswith(_SCHEME):
            yield Failure(target, f"{address}: forward-pass metrics come over ipc:// only: correct the address")
            return
        sockets = _sockets(Path(address.removeprefix(_SCHEME)))
        if not sockets:
            yield NoData(
                f"{target}: no socket {address}.0 here: was SGLang started with --enable-forward-pass-metrics "
                "and --forward-pass-metrics-ipc-name?"
            )
        for group, path in sockets:
            if (target, path) in self._publishers or len(self._publishers) >= SOCKETS_MAX:
                continue
            try:
                subscription = self._subscribe(f"{_SCHEME}{path}")
            except ModuleNotFoundError:
                yield Failure(target, "forward-pass metrics need pyzmq: pip install 'cyclewatch[fpm]'")
                return
            except OSError as error:
                yield Failure(target, f"{path}: cannot be subscribed to: {error.strerror}")
                continue
            self._publishers[target, path] = _Publisher(subscription, _identity(target, group, now))


def _sockets(base: Path) -> list[tuple[int, str]]:
    """Data-parallel groups that have a socket, and its path."""
    name = re.compile(re.escape(base.name) + r"\.([0-9]{1,4})")
    try:
        found = [(name.fullmatch(path.name), path) for path in base.parent.iterdir()]
    except OSError:
        return []
    return sorted((int(match[1]), str(path)) for match, path in found if match is not None)


def _identity(target: str, group: int, now: Now) -> RingIdentity:
    """Who publishes, as far as a message tells. Times are placed by the clocks of this moment."""
    return RingIdentity(
        key=f"forward-{target}-dp{group}",
        pid=0,
        parent_pid=0,
        parent_start_ticks=0,
        tp_rank=None,
        pp_rank=None,
        dp_rank=group,
        synchronous=False,
        sglang_version="",
        plugin_version="",
        hooks_missing=(),
        monotonic_ns=now.monotonic_ns,
        wall_ns=now.wall_ns,
        server={},
        device_only=True,
    )


def _receive(target: str, publisher: _Publisher, now: Now) -> Iterator[CycleBatch]:
    """What has come from one publisher; nothing is told of one that has never been heard."""
    passes: list[Message] = []
    lost = refused = 0
    for message in publisher.subscription.messages():
        if message is None:
            refused += 1
            continue
        publisher.heard_ns = now.monotonic_ns
        expected = message.counter_id if publisher.next_counter is None else publisher.next_counter
        publisher.next_counter = message.counter_id + 1
        if not 0 <= message.counter_id - expected <= _LOST_MAX:
            publisher.settled_ns = now.monotonic_ns + SETTLE_NS
            passes.clear()
            lost = 0
        else:
            lost += message.counter_id - expected
        if message.wall_time >= _SHORTEST_S and now.monotonic_ns >= publisher.settled_ns:
            passes.append(message)
    if publisher.next_counter is not None or refused:
        alive = publisher.settled_ns <= now.monotonic_ns < publisher.heard_ns + SILENT_NS
        yield _batch(target, publisher, _records(passes, now), now, alive=alive, lost=lost, refused=refused)


def _batch(
    target: str,
    publisher: _Publisher,
    records: Records,
    now: Now,
    *,
    alive: bool,
    lost: int = 0,
    refused: int = 0,
) -> CycleBatch:
    written = publisher.next_counter or 0
    return CycleBatch(
        target=target,
        ring=publisher.ring,
        counters=RingCounters(written=written, heartbeat_ns=publisher.heard_ns),
        records=records,
        next_sequence=written + 1,
        lost=lost,
        torn=refused,
        alive=alive,
        complete_ns=now.monotonic_ns,  # what comes from now on, ends from now on
        over=not alive,
    )


def _records(messages: "list[Message]", now: Now) -> Records:
    """Messages as the records of a ring.

    All of them ended now: a message has no time, and a window is longer than the time between two looks. The whole of a
    pass is the device's (stage `wait`); KV tokens are those of the sequences after the pass.
    """
    records = np.zeros(len(messages), RECORD)
    for record, message in zip(records, messages, strict=True):
        scheduled, queued = message.scheduled_requests, message.queued_requests
        record["sequence"] = record["sequence_end"] = message.counter_id + 1
        record["cycle_ns"] = record["wait_ns"] = round(message.wall_time * 1e9)
        record["mode"] = record["launched_mode"] = _mode(scheduled.num_prefill_requests, scheduled.num_decode_requests)
        record["batch_size"] = scheduled.num_prefill_requests + scheduled.num_decode_requests
        record["new_tokens"] = scheduled.sum_prefill_tokens
        record["kv_tokens"] = (
            scheduled.sum_prefill_kv_tokens + scheduled.sum_prefill_tokens + scheduled.sum_decode_kv_tokens
        )
        record["queue_length"] = min(queued.num_prefill_requests + queued.num_decode_requests, 2**32 - 1)
    records["end_ns"] = now.monotonic_ns
    records["kind"] = RecordKind.CYCLE
    records["on_cpu_ns"] = -1
    return records


def _mode(prefills: int, decodes: int) -> ForwardMode:
    if prefills and decodes:
        return ForwardMode.MIXED
    if prefills:
        return ForwardMode.EXTEND
    return ForwardMode.DECODE if decodes else ForwardMode.IDLE
