"""A name that people can read: the kernel without namespaces, or what a wrapper's template argument says it does."""

import re

from cyclewatch.detectors.kernels.identity import NormalForm

_LONGEST = 60
_WORD = re.compile(r"(?:[A-Za-z_]\w*::)*([A-Za-z_]\w*)")

_WRAPPERS = frozenset({"device_kernel", "Kernel", "Kernel2", "kentry", "kernel_entry", "trampoline_kernel", "kernel"})
"""Kernels that only run their template argument."""

_LOOPS = re.compile(r"elementwise_kernel|reduce_kernel|_gather_kernel|multi_tensor_apply|scatter_gather")
"""Kernels that are loops around the functor in their template arguments."""

_NOT_TELLING = re.compile(
    r"""(?x) ^(?:
      bool|char|short|int|long|unsigned|float|double|void|true|false|half|__half|__nv_bfloat16|__hip_bfloat16|BFloat16|Half
    | std|at|native|c10|cute|C|tuple|array|OpaqueType|enable_sm\w+|lambda|operator|memory
    | gpu_kernel_impl\w*|gpu_index_kernel|opmath_\w+|internal\w*|_internal
    | BinaryFunctor|[AB]UnaryFunctor|ReduceOp|func_wrapper_t|TensorListMetadata|TrivialOffsetCalculator
    | LoadWith\w+|StoreWith\w+
    | wrapped_\w+_config|default_config|target_arch|detail
    )$"""
)


def short_name(form: NormalForm) -> str:
    """The short name of a kernel; several kernels can share one."""
    last = form.head.rpartition("::")[2] or form.head
    arguments = form.key.partition("<")[2]
    inner = _telling(arguments) if last in _WRAPPERS or _LOOPS.search(last) else ""
    if inner and last in _WRAPPERS:
        last = inner
    elif inner:
        last = f"{last}<{inner}>"
    return last if len(last) <= _LONGEST else last[: _LONGEST - 1] + "…"


def _telling(arguments: str) -> str:
    """The first word that is neither a common type nor a helper of the loop."""
    words = (found[1] for found in _WORD.finditer(arguments[:2000]))
    return next((word for word in words if not _NOT_TELLING.match(word)), "")
