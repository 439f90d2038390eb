"""What a GPU and its driver can tell: learnt from the last answer to each call and each field."""

from enum import StrEnum

from cyclewatch.collectors.gpu.door import Code


class Support(StrEnum):
    """How a call is supported."""

    YES = "supported"
    NOT_SUPPORTED = "not supported"
    MISSING_SYMBOL = "missing in this driver"
    NO_PERMISSION = "no permission"


_REFUSALS: dict[int, Support] = {
    Code.NOT_SUPPORTED: Support.NOT_SUPPORTED,
    Code.INVALID_ARGUMENT: Support.NOT_SUPPORTED,
    Code.DEPRECATED: Support.NOT_SUPPORTED,
    Code.FUNCTION_NOT_FOUND: Support.MISSING_SYMBOL,
    Code.ARGUMENT_VERSION_MISMATCH: Support.MISSING_SYMBOL,
    Code.NO_PERMISSION: Support.NO_PERMISSION,
}


def refusal(code: int) -> Support | None:
    """What a return code says of a call for good; None where it may be answered another time."""
    return _REFUSALS.get(code)


class CapabilityMap:
    """One GPU's: calls and fields by name, as they were last answered or refused."""

    def __init__(self) -> None:
        self.known: dict[str, Support] = {}

    def refused(self, call: str) -> bool:
        """Whether the last answer was a refusal."""
        return self.known.get(call, Support.YES) is not Support.YES

    def note(self, call: str, support: Support) -> None:
        """Learn how a call came out."""
        self.known[call] = support
