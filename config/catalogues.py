"""What cyclewatch knows before it measures anything, as data beside this module: kernels, operators, hardware."""

import functools
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import resources
from types import MappingProxyType
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


@dataclass(frozen=True, slots=True)
class OperatorShape:
    """One shape of an operator in production: who ran it, as far as it is known, and its S (0 to 1) on XPU-A."""

    number: int
    engine: str
    s: float
    shape: Mapping[str, int]
    grid: str = ""
    """The launch grid, where the catalogue tells that instead of the shape."""


@dataclass(frozen=True, slots=True)
class Median:
    """What the catalogue prints for the shape in the middle of its list, in its own words."""

    number: int
    intensity: str
    t_sol_h20: str
    t_sol_xpu_a: str
    measured: str


@dataclass(frozen=True, slots=True)
class Operator:
    """One operator of operators.toml.

    `importance` is its share of GPU time in production, 0 to 1. `default` has values of dimensions that the catalogue
    does not tell: numbers, or another dimension's name.
    """

    name: str
    catalogue_id: str
    dtype: str
    importance: float
    regime: str
    meaning: str
    dimensions: tuple[str, ...]
    default: Mapping[str, int | str]
    median: Median
    shapes: tuple[OperatorShape, ...]


@dataclass(frozen=True, slots=True)
class Hardware:
    """One GPU of hardware.toml: peaks without sparsity, by the type of the factors (for example "bf16")."""

    name: str
    vendor: str
    devices: tuple[str, ...]
    flops: Mapping[str, float]
    """FLOP/s."""
    bandwidth: float
    """Bytes a second."""
    source: str


@dataclass(frozen=True, slots=True)
class ReportName:
    """One entry of report_metrics.toml: a quantity of ours, for names that reports of others use.

    `pattern` fits the whole name in small letters; `on` is "gpu", "host" or "" for either; a value times `scale` is in
    the quantity's unit.
    """

    pattern: str
    quantity: str
    on: str = ""
    scale: float = 1.0
    labels: Mapping[str, str] = field(default_factory=dict, hash=False)


@functools.cache
def report_metrics() -> tuple[ReportName, ...]:
    """What the metrics of suspicion reports are here, in order; the first that fits holds."""
    return tuple(ReportName(**table) for table in _read("report_metrics.toml")["metric"])


@functools.cache
def report_functions() -> tuple[ReportName, ...]:
    """What the shares of time of their functions are here, in order; the first that fits holds."""
    return tuple(ReportName(**table) for table in _read("report_metrics.toml")["function"])


@functools.cache
def kernel_rules() -> tuple[KernelRule, ...]:
    """The rules of kernel_families.toml, in their order."""
    return tuple(KernelRule(**_with_tuples(table)) for table in _read("kernel_families.toml")["rule"])


@functools.cache
def operators() -> Mapping[str, Operator]:
    """The operators of operators.toml by name, in the order of importance."""
    return MappingProxyType({table["name"]: _operator(table) for table in _read("operators.toml")["operator"]})


@functools.cache
def hardware() -> Mapping[str, Hardware]:
    """The GPUs of hardware.toml by name; a device belongs to the first that fits its name."""
    return MappingProxyType({table["name"]: _hardware(table) for table in _read("hardware.toml")["hardware"]})


def _operator(table: dict[str, Any]) -> Operator:
    parts = {
        "default": MappingProxyType(table.get("default", {})),
        "median": Median(**table["median"]),
        "shapes": tuple(
            OperatorShape(**{**shape, "shape": MappingProxyType(shape["shape"])}) for shape in table["shapes"]
        ),
    }
    return Operator(**_with_tuples({**table, **parts}))


def _hardware(table: dict[str, Any]) -> Hardware:
    return Hardware(
        name=table["name"],
        vendor=table["vendor"],
        devices=tuple(table["devices"]),
        flops=MappingProxyType({dtype: peak * 1e12 for dtype, peak in table["tflops"].items()}),
        bandwidth=table["bandwidth_tb_s"] * 1e12,
        source=table["source"],
    )


def _with_tuples(table: dict[str, Any]) -> dict[str, Any]:
    """The table with lists as tuples, so that what is cached cannot be changed."""
    return {key: tuple(value) if isinstance(value, list) else value for key, value in table.items()}


def _read(name: str) -> dict[str, Any]:
    return tomllib.loads(resources.files(__package__).joinpath(name).read_text(encoding="utf-8"))
