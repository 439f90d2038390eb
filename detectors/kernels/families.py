"""What a kernel is for, who ships it and what launches it, by rules that are data (config/kernel_families.toml)."""

import functools
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import StrEnum

from cyclewatch.config.catalogues import KernelRule, kernel_rules
from cyclewatch.detectors.kernels.gemm import Gemm, describe
from cyclewatch.detectors.kernels.identity import MAX_REMEMBERED, NormalForm, normal_form
from cyclewatch.detectors.kernels.needed_words import needed_words
from cyclewatch.detectors.kernels.short_name import short_name


class Family(StrEnum):
    """What a kernel's time counts as."""

    GEMM = "gemm"
    ATTENTION = "attention"
    NORM = "norm"
    ACTIVATION = "activation"
    ROTARY = "rotary"
    KV_CACHE = "kv_cache"
    SAMPLING = "sampling"
    MOE = "moe"
    COMMUNICATION = "communication"
    QUANTIZATION = "quantization"
    EMBEDDING = "embedding"
    ELEMENTWISE = "elementwise"
    REDUCTION = "reduction"
    INDEX = "index"
    SCAN = "scan"
    MEMCPY = "memcpy"
    MEMSET = "memset"
    CPU_OP = "cpu_op"
    OTHER = "other"


@dataclass(frozen=True, slots=True)
class KernelIdentity:
    """What a kernel is. Texts are "" and `split_k` is None where its name does not tell.

    `key` is equal for two spellings of one kernel, `group` for kernels that one call of `launch_api` starts together.
    `operator` is the operator of the catalogue that the kernel comes closest to; `tile` is "MxNxK" or "MxN".
    `truncated`: the name was cut, and `key` is only where the whole key begins.
    """

    name: str
    key: str
    short: str
    family: Family
    operator: str = ""
    library: str = ""
    source: str = ""
    launch_api: str = ""
    group: str = ""
    tile: str = ""
    split_k: bool | None = None
    truncated: bool = False


_BY_KIND = {"memcpy": Family.MEMCPY, "memset": Family.MEMSET, "cpu_op": Family.CPU_OP}
_WITH_TILES = frozenset({Family.GEMM, Family.MOE})
_MAX_SEARCHED = 4096
"""Characters of a normal form that rules look at; what tells stands at the beginning."""

_SHOWN = 200
"""Characters of a name that is no kernel's."""


def classify(name: str, kind: str = "kernel") -> KernelIdentity:
    """What the kernel (or copy, fill, CPU operator: `kind` as in `KernelKind`) of this name is.

    Any text is a name; where no rule fits, the family is `Family.OTHER`.
    """
    return _remembered(name, kind) if len(name) <= MAX_REMEMBERED else _identity(name, kind)


def _identity(name: str, kind: str) -> KernelIdentity:
    if family := _BY_KIND.get(kind):
        text = " ".join(name[:_SHOWN].split())
        return KernelIdentity(name, text, text, family)
    form = normal_form(name)
    rule = _rule(form)
    gemm = describe(form.key[:_MAX_SEARCHED]) if rule.family in _WITH_TILES else None
    return KernelIdentity(
        name=name,
        key=form.key,
        short=short_name(form),
        family=Family(rule.family),
        operator=rule.operator,
        library=rule.library,
        source=rule.source,
        launch_api=rule.launch_api,
        group="" if _needs_no_reduction(rule, gemm) else rule.group,
        tile=gemm.tile if gemm else "",
        split_k=gemm.split_k if gemm else None,
        truncated=form.truncated,
    )


_remembered = functools.lru_cache(maxsize=8192)(_identity)


def _needs_no_reduction(rule: KernelRule, gemm: Gemm | None) -> bool:
    """Whether this is a product in the group of split ones whose name does not say that it is split."""
    return rule.group.endswith("_split_k") and gemm is not None and not gemm.split_k


@dataclass(frozen=True, slots=True)
class _Compiled:
    rule: KernelRule
    words: frozenset[str]
    """One of them stands in every text that the pattern fits."""
    search: Callable[[str], object] | None


@functools.cache
def _compiled() -> tuple[_Compiled, ...]:
    return tuple(
        _Compiled(rule, needed_words(rule.pattern), re.compile(rule.pattern).search if rule.pattern else None)
        for rule in kernel_rules()
    )


def _rule(form: NormalForm) -> KernelRule:
    """The first rule that fits. Written out, since it is most of what it takes to know a kernel."""
    head, key = form.head[:_MAX_SEARCHED].lower(), form.key[:_MAX_SEARCHED].lower()
    for one in _compiled():
        rule, search = one.rule, one.search
        if rule.head and not _one_in(rule.head, head):
            continue
        if rule.contains and not _one_in(rule.contains, key):
            continue
        if search is None or ((not one.words or _one_in(one.words, key)) and search(key) is not None):
            return rule
    return KernelRule(Family.OTHER)


def _one_in(words: Iterable[str], text: str) -> bool:
    for word in words:  # noqa: SIM110 (a generator takes three times as long)
        if word in text:
            return True
    return False
