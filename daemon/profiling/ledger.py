"""What was taken in the last day, and what that means for the next profile."""

import math
from collections.abc import Iterable
from dataclasses import dataclass

from cyclewatch.daemon.profiling.decide import DAY_S
from cyclewatch.daemon.store.profile_records import ProfileState


@dataclass(frozen=True)
class Entry:
    """One attempt at a profile. UTC nanoseconds; `ended_ns` is None while it goes on."""

    key: str
    target: str
    rank: str
    fingerprint: str
    state: ProfileState
    began_ns: int
    ended_ns: int | None


@dataclass(frozen=True)
class Account:
    """What counts for the next profile of a rank; see `Candidate`."""

    age_s: float
    target_age_s: float
    spent_s: float


class Ledger:
    """The attempts of `keep_s` seconds, or of a day, by their keys."""

    def __init__(self, keep_s: float, entries: Iterable[Entry]) -> None:
        self._keep_ns = int(max(keep_s, DAY_S) * 1e9)
        self._entries = {entry.key: entry for entry in entries}

    def note(self, entry: Entry) -> None:
        """Take an attempt, or what became of it."""
        self._entries[entry.key] = entry
        oldest_ns = entry.began_ns - self._keep_ns
        self._entries = {key: one for key, one in self._entries.items() if one.began_ns >= oldest_ns}

    def account(self, target: str, rank: str, fingerprint: str, now_ns: int) -> Account:
        """How it stands for one rank."""
        of_target = [one for one in self._entries.values() if one.target == target]
        kept = [
            one.began_ns
            for one in of_target
            if (one.rank, one.fingerprint, one.state) == (rank, fingerprint, ProfileState.KEPT)
        ]
        spent_ns = sum(
            max(0, (one.ended_ns or one.began_ns) - one.began_ns)
            for one in of_target
            if one.began_ns > now_ns - DAY_S * 1e9
        )
        return Account(
            age_s=_age_s(kept, now_ns),
            target_age_s=_age_s((one.began_ns for one in of_target), now_ns),
            spent_s=spent_ns / 1e9,
        )


def _age_s(times_ns: Iterable[int], now_ns: int) -> float:
    newest_ns = max(times_ns, default=None)
    return math.inf if newest_ns is None else max(0.0, (now_ns - newest_ns) / 1e9)
