"""Where a secret is: settings name it, and never hold it.

`credential:NAME` is a file in systemd's `$CREDENTIALS_DIRECTORY`, `file:/PATH` any file, `env:NAME` a variable of the
environment.
"""

import re

_REFERENCE = re.compile(r"credential:[A-Za-z0-9_.-]+|file:/[^\x00]+|env:[A-Za-z_][A-Za-z0-9_]*")
MEND = 'write it into a file and say {key} = "file:/PATH", "credential:NAME" or "env:NAME"'


def is_reference(text: str) -> bool:
    """Whether `text` names where a secret is, rather than being one, or an address."""
    return _REFERENCE.fullmatch(text) is not None


def wrong_variable(reference: str) -> str:
    """What is wrong where `reference` is a variable that would be taken for a setting; otherwise empty."""
    if reference.startswith("env:CYCLEWATCH_"):
        return "variables named CYCLEWATCH_... are settings: give the secret's variable another name"
    return ""
