"""Who asks: the kernel's word on the sender of a datagram, held against what the datagram claims."""

from collections.abc import Callable, Collection
from dataclasses import dataclass, replace

from cyclewatch.collectors.kineto.protocol import ContextMessage, RequestMessage

SILENT_NS = 60 * 10**9
"""A process that has not asked for this long has ended, or asks somebody else: libkineto polls every 5 s."""

PROCESSES_MAX = 1024


@dataclass(frozen=True)
class Credentials:
    """The sender of a datagram as the kernel names it, in the daemon's own pid namespace."""

    pid: int
    user: int


@dataclass(frozen=True)
class KinetoProcess:
    """A process that can be asked for a profile. Times are monotonic nanoseconds.

    `pid` is its number here, `own_pid` the one in its own pid namespace. `free` is false while it records a profile,
    ours or somebody else's.
    """

    pid: int
    own_pid: int
    user: int
    free: bool
    first_seen_ns: int
    last_seen_ns: int


class RefusedError(Exception):
    """A datagram gets no answer: of what kind, from a bounded set, and a sentence."""

    def __init__(self, kind: str, text: str) -> None:
        super().__init__(text)
        self.kind = kind


class Peers:
    """The processes that asked in the last minute.

    `users` may ask; `numbers` gives the numbers that a process has in the pid namespaces it is in, its own last.
    """

    def __init__(self, users: Collection[int], numbers: Callable[[int], tuple[int, ...]]) -> None:
        self._users = users
        self._numbers = numbers
        self._known: dict[int, KinetoProcess] = {}

    def admit(self, sender: Credentials | None, message: ContextMessage | RequestMessage, now_ns: int) -> KinetoProcess:
        """Take a message; gives the process that sent it.

        Raises:
            RefusedError: unknown sender, a user that may not ask, or a process that claims to be another one.
        """
        if sender is None or sender.pid <= 0:
            raise RefusedError(
                "unknown_sender",
                "a process in a pid namespace that cannot be seen from here: run cyclewatch in the host's (hostPID)",
            )
        if sender.user not in self._users:
            raise RefusedError(
                "user", f"process {sender.pid} is of user {sender.user}: if it may ask, add it to profiling.users"
            )
        claimed = message.pid if isinstance(message, ContextMessage) else message.pids[0]
        if claimed != sender.pid and (claimed,) != self._numbers(sender.pid)[-1:]:
            raise RefusedError("claim", f"process {sender.pid} claims to be process {claimed}")
        self._forget(now_ns)
        before = self._known.get(sender.pid)
        if before is None or before.own_pid != claimed:
            if len(self._known) >= PROCESSES_MAX:
                raise RefusedError("too_many", f"more than {PROCESSES_MAX} processes ask")
            before = KinetoProcess(sender.pid, claimed, sender.user, free=False, first_seen_ns=now_ns, last_seen_ns=0)
        free = message.free if isinstance(message, RequestMessage) else before.free
        process = replace(before, free=free, last_seen_ns=now_ns)
        self._known[sender.pid] = process
        return process

    def known(self, now_ns: int) -> tuple[KinetoProcess, ...]:
        """The processes that asked in the last minute, in order of their pids."""
        self._forget(now_ns)
        return tuple(self._known[pid] for pid in sorted(self._known))

    def _forget(self, now_ns: int) -> None:
        self._known = {pid: one for pid, one in self._known.items() if now_ns - one.last_seen_ns < SILENT_NS}
