"""An import-only stand-in for SGLang's compiled kernels, whose CPU build is not published.

SGLang 0.5.4 imports these names at start-up; a plain Llama on PyTorch's own attention never calls them.
"""

from collections.abc import Callable
from typing import NoReturn

allreduce = object()
"""SGLang only looks the custom all-reduce operators up when they are called."""


def absent(name: str) -> Callable[..., NoReturn]:
    """Return a function that says it has no kernel behind it."""

    def call(*_args: object, **_kwargs: object) -> NoReturn:
        raise NotImplementedError(f"sgl_kernel.{name}: this is an import-only stand-in without compiled kernels")

    return call


fused_marlin_moe = absent("fused_marlin_moe")
