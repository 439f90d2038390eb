"""Text that others wrote, made fit to be shown."""

SHOWN_MAX = 40
"""Most characters of a cell in a message."""


def printable(text: str, most: int | None = None) -> str:
    """`text` without characters that could disturb a terminal, and not longer than `most` (None: any length)."""
    if most is not None and len(text) > most:
        text = f"{text[:most]}…"
    return "".join(one if one.isprintable() else one.encode("unicode_escape").decode() for one in text)


def shown(cell: object) -> str:
    """A cell in quotes."""
    return f"'{printable(str(cell), SHOWN_MAX)}'"
