"""The first line of every file that `cyclewatch install` writes: by it, an edited file is known."""

import hashlib
import re

_LINE = "# Written by `cyclewatch install`, which leaves it alone once it is edited; checksum {}\n"
_SEALED = re.compile(re.escape(_LINE).replace(r"\{\}", "([0-9a-f]{64})"))


def sealed(body: str) -> str:
    """`body` with its seal before it."""
    return _LINE.format(_checksum(body)) + body


def is_untouched(text: str) -> bool:
    """Whether a file is as some release of cyclewatch wrote it."""
    seal = _SEALED.match(text)
    return seal is not None and seal.group(1) == _checksum(text[seal.end() :])


def unsealed(text: str) -> str:
    """A file without its seal, if it has one."""
    return _SEALED.sub("", text, count=1)


def _checksum(body: str) -> str:
    return hashlib.sha256(body.encode()).hexdigest()
