"""An import-only stand-in for SGLang's compiled kernels, whose CPU build is not published.

SGLang 0.5.23 imports these eight names at start-up on a CPU; a plain Llama on PyTorch's own attention never calls them.
"""

from collections.abc import Callable
from typing import NoReturn

_NAMES = (
    "assign_draft_cache_locs_contiguous_cpu",
    "assign_extend_cache_locs_cpu",
    "assign_req_to_token_pool_cpu",
    "build_tree_kernel_efficient_cpu",
    "copy_all_layer_kv_cache_cpu",
    "fill_accept_out_cache_loc_cpu",
    "fill_bonus_tokens_cpu",
    "verify_tree_greedy_cpu",
)


def _absent(name: str) -> Callable[..., NoReturn]:
    def call(*_args: object, **_kwargs: object) -> NoReturn:
        raise NotImplementedError(f"sgl_kernel.{name}: this is an import-only stand-in without compiled kernels")

    return call


globals().update({name: _absent(name) for name in _NAMES})
__all__ = list(_NAMES)
