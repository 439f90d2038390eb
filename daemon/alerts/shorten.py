"""Texts made to fit: services refuse what is too long, and take some characters for commands."""

from collections.abc import Callable

from cyclewatch.daemon.printable import printable

ELLIPSIS = "…"


def length(text: str) -> int:
    """Length in UTF-16 units, as JavaScript counts: never less than in code points, so right for either count."""
    return len(text) + sum(one > "\uffff" for one in text)


def shortened(text: str, most: int, escape: Callable[[str], str] = printable) -> str:
    """`text`, character by character through `escape`, and cut to `most` UTF-16 units, never within an escape."""
    parts = [escape(one) for one in text[:most]]  # an escape is never shorter than what it stands for
    if len(text) <= most and sum(map(length, parts)) <= most:
        return "".join(parts)
    room = most - length(ELLIPSIS)
    kept = []
    for part in parts:
        room -= length(part)
        if room < 0:
            break
        kept.append(part)
    return "".join(kept) + ELLIPSIS


def backslashed(characters: str) -> Callable[[str], str]:
    """An escape that puts a backslash before each of `characters`, as Markdown wants."""
    return lambda one: f"\\{one}" if one in characters else one
