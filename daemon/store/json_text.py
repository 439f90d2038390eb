"""What goes into columns of JSON, as text that both databases take."""

import json
import math
from collections.abc import Mapping
from typing import Any


def json_text(value: Any) -> str:  # noqa: ANN401 (anything that is JSON)
    """A value as JSON; what is no number (NaN, infinity) becomes null.

    SQLite would keep it as Python writes it, which is no JSON; PostgreSQL would refuse it, and with it the whole unit.

    Raises:
        TypeError: it is none.
    """
    try:
        return json.dumps(value, allow_nan=False)
    except ValueError:
        return json.dumps(_without_nan(value), allow_nan=False)


def as_stored(value: Any) -> Any:  # noqa: ANN401 (anything that is JSON)
    """A value as it comes back from a column of JSON: null for what is no number, texts for keys.

    Raises:
        TypeError: it is none.
    """
    return json.loads(json_text(value))


def _without_nan(value: Any) -> Any:  # noqa: ANN401
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {key: _without_nan(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [_without_nan(one) for one in value]
    return value
