"""Whether profiles are taken at all. Only a person switches it on again."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass
class Switch:
    """On, or off for a reason since an instant (UTC nanoseconds)."""

    on: bool = True
    reason: str = ""
    since_ns: int = 0

    def turn(self, *, on: bool, reason: str, at_ns: int) -> None:
        """Turn it; the reason of what is off already stays."""
        if on != self.on:
            self.on, self.reason, self.since_ns = on, reason, at_ns

    def state(self) -> dict[str, Any]:
        """All that `restored` needs, as JSON values."""
        return {"on": self.on, "reason": self.reason, "since_ns": self.since_ns}


def restored(state: Mapping[str, Any]) -> Switch:
    """The switch as it was stored; on, where nothing was."""
    return Switch(
        on=bool(state.get("on", True)), reason=str(state.get("reason", "")), since_ns=int(state.get("since_ns", 0))
    )
