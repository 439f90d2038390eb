"""XID errors by number: those that tell something of a serving node, in a few words (NVIDIA's XID catalogue)."""

_KNOWN = {
    13: "graphics engine exception, mostly a fault of the application",
    31: "memory page fault, mostly a fault of the application",
    43: "a channel was stopped after a fault of the application",
    45: "channels were cleaned up after an earlier error",
    48: "double bit ECC error",
    61: "internal microcontroller breakpoint or warning",
    62: "internal microcontroller halt",
    63: "a row of the memory was remapped, or a page retired",
    64: "a row could not be remapped, or a page not retired",
    68: "video processor exception",
    69: "graphics engine class error",
    74: "NVLink error",
    79: "the GPU has fallen off the bus",
    92: "high rate of single bit ECC errors",
    94: "contained memory error",
    95: "uncontained memory error",
    109: "context switch timeout",
    119: "the GPU's system processor (GSP) does not answer",
    120: "error of the GPU's system processor (GSP)",
    140: "unrecovered ECC error",
    154: "the driver recommends a recovery action",
}


def meaning(xid: int) -> str:
    """Number and words; the number alone where it is not known here."""
    words = _KNOWN.get(xid)
    return f"XID {xid}: {words}" if words else f"XID {xid}"
