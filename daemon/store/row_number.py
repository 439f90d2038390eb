"""The numbers by which people name rows."""

LARGEST = 2**63 - 1
"""The largest whole number that a database takes."""


def may_be(number: int) -> bool:
    """Whether a row may have this number: no database can be asked for a larger one."""
    return 0 < number <= LARGEST
