"""What cyclewatch knows before it measures anything, as data beside this module: kernels, operators, hardware."""

import functools
import tomllib
from dataclasses import dataclass
from importlib import resources
from typing import Any


@dataclass(frozen=True, slots=True)
class KernelRule:
    """One rule of kernel_families.toml: which names it fits, and what they are. Texts are "" where nothing is told."""

    family: str
    library: str = ""
    source: str = ""
    launch_api: str = ""
    group: str = ""
    operator: str = ""
    head: tuple[str, ...] = ()
    contains: tuple[str, ...] = ()
    pattern: str = ""


@functools.cache
def kernel_rules() -> tuple[KernelRule, ...]:
    """The rules of kernel_families.toml, in their order."""
    return tuple(KernelRule(**_with_tuples(table)) for table in _read("kernel_families.toml")["rule"])


def _with_tuples(table: dict[str, Any]) -> dict[str, Any]:
    """The table with lists as tuples, so that what is cached cannot be changed."""
    return {key: tuple(value) if isinstance(value, list) else value for key, value in table.items()}


def _read(name: str) -> dict[str, Any]:
    return tomllib.loads(resources.files(__package__).joinpath(name).read_text(encoding="utf-8"))
