"""Patterns of names, as people write them."""

from fnmatch import fnmatchcase


def fits(name: str, pattern: str) -> bool:
    """Whether `name` is the one written, or fits a pattern as of a shell.

    The first because a name may look like a pattern: `[::1]:30000` stands for itself, not for a set of characters.
    """
    return name == pattern or fnmatchcase(name, pattern)
