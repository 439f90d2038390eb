"""What the name of a matrix product tells of how it is computed: tile, split-K, types, layout."""

import re
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Gemm:
    """How one kernel computes a matrix product, as far as its name tells.

    `tile` is what one block of threads computes at a time, "MxNxK" or "MxN" where the depth is not told. `split_k` is
    None where the name says nothing: cuBLAS before nvjet splits without telling. `dtype` is the type of the factors,
    both with an "x" between where they differ; `layout` the order of A and B, as "TN" (and of the product, "TNT").
    """

    tile: str = ""
    split_k: bool | None = None
    dtype: str = ""
    layout: str = ""


_NVJET = re.compile(
    r"nvjet_(?:sm\d+_)?(?P<types>[a-z]{3,6})_(?P<mn>\d+x\d+)_(?P<k>\d+)x\d+_\d+x\d++(?P<rest>\w*?)(?:_(?P<layout>[NT]{3}))?$"
)
_NVJET_TYPES = {"t": "bf16", "h": "fp16", "s": "fp32", "d": "fp64", "q": "fp8_e4m3", "r": "fp8_e5m2", "i": "int8"}
_NVJET_MIXED = 5
"""Letters of a product whose factors have a type of their own: A, B, C, computation, D; else A, computation, D."""

_XMMA = re.compile(
    r"xmma_gemm_(?P<a>[a-z]+\d+)(?P<b>[a-z]+\d+)_(?>.{0,100}?_(?P<layout>[nt]{2})_)\w{0,100}?tilesize(?P<tile>\d+x\d+x\d+)"
)
_CUTLASS_3 = re.compile(
    r"cutlass3x_sm\d+_(?:wmma_)?(?:tensorop|simt)_(?>.{0,100}?_(?P<tile>\d+x\d+x\d+)_).{0,100}?_(?P<layout>[nt]{2})[nt]?_"
)
_CUBLAS = re.compile(
    r"(?:^|_)(?P<type>[a-z]+\d{0,8})?_?(?P<op>[a-z]?\d{0,8}gemm)_(?:(?P<out>[a-z]+\d+)_)?(?P<mn>\d+x\d+)"
    r"(?:_(?P<cutlass_k>\d+)x\d+)?(?P<rest>\w*)"
)
_STAGES = re.compile(r"_stages_(\d+)x\d+")
_LAYOUT = re.compile(r"_([nt]{2})(?:_|$)")
_OPERATIONS = {"s": "fp32", "d": "fp64", "h": "fp16", "c": "complex64", "z": "complex128", "i": "int8"}
"""What the letter before "gemm" computes in, which is the type of the factors where no other is told."""

_TENSILE = re.compile(r"Cijk_(?P<a>A(?:ilk|lik))_(?P<b>B(?:ljk|jlk))_(?P<types>\w{0,100}?)_?MT(?P<tile>\d+x\d+x\d+)")
_TENSILE_TYPES = (
    ("F8", "fp8"),
    ("B8", "fp8"),
    ("I8", "int8"),
    ("BBS", "bf16"),
    ("B_BS", "bf16"),
    ("HHS", "fp16"),
    ("H_HS", "fp16"),
    ("S", "fp32"),
    ("D", "fp64"),
    ("H", "fp16"),
    ("B", "bf16"),
)
_GLOBAL_SPLIT = re.compile(r"_GSU(\d+)")

_MATMUL_OGS = re.compile(r"matmul_ogs_(?P<layout>[NT]{3})_(?P<types>[a-z\dx]+?)_(?P<tile>\d+x\d+x\d+)x(?P<split>\d+)")
_CUTE_TILE = re.compile(r"cute::tuple<cute::C<(\d+)>,cute::C<(\d+)>,cute::C<(\d+)>>")
_CUTE_SMALLEST = 8
"""Tuples of three are tiles and clusters of blocks; no cluster has this many along each side, and no tile fewer."""

_IGEMM = re.compile(r"igemm_(?:fwd|bwd|wrw)_\w{1,100}?_(?P<type>fp16|bf16|fp32)_\w{0,100}?bt(?P<tile>\d+x\d+x\d+)")
_TYPE_NAMES = {"f16": "fp16", "f32": "fp32", "f64": "fp64", "i8": "int8", "e4m3": "fp8_e4m3", "e5m2": "fp8_e5m2"}
_TYPE_NAMES |= {name: name for name in ("bf16", "fp16", "fp32", "fp64")}


def describe(key: str) -> Gemm | None:
    """What the normal form `key` of a kernel's name tells; None where it is not a form that is known."""
    for read in (_nvjet, _tensile, _xmma, _matmul_ogs, _igemm, _cutlass_3, _cublas, _cute):
        if found := read(key):
            return found
    return None


def _nvjet(key: str) -> Gemm | None:
    found = _NVJET.match(key)
    if not found:
        return None
    types = found["types"]
    factors = types[:2] if len(types) >= _NVJET_MIXED else types[:1]
    return Gemm(
        tile=f"{found['mn']}x{found['k']}",
        split_k="_splitK" in found["rest"],
        dtype=_pair([_NVJET_TYPES.get(letter, "") for letter in factors]),
        layout=found["layout"] or "",
    )


def _tensile(key: str) -> Gemm | None:
    found = _TENSILE.search(key)
    if not found:
        return None
    layout = ("T" if found["a"] == "Alik" else "N") + ("T" if found["b"] == "Bjlk" else "N")
    split = _GLOBAL_SPLIT.search(key)
    dtype = next((name for letters, name in _TENSILE_TYPES if found["types"].startswith(letters)), "")
    return Gemm(found["tile"], int(split[1]) > 1 if split else None, dtype, layout)


def _xmma(key: str) -> Gemm | None:
    found = _XMMA.search(key)
    if not found:
        return None
    split = True if "segment_k_on" in key or "splitK" in key else False if "segment_k_off" in key else None
    dtype = _pair([_TYPE_NAMES.get(found[one], found[one]) for one in ("a", "b")])
    return Gemm(found["tile"], split, dtype, found["layout"].upper())


def _matmul_ogs(key: str) -> Gemm | None:
    found = _MATMUL_OGS.search(key)
    if not found:
        return None
    factors = re.findall(r"mxfp4|bf16|fp16|fp8e4|fp8e5|fp32|f16|f32|u8", found["types"])[:3]
    return Gemm(found["tile"], int(found["split"]) > 1, _pair(factors[-2:]), found["layout"])


def _igemm(key: str) -> Gemm | None:
    found = _IGEMM.match(key)
    return Gemm(found["tile"], "_gkgs" in key or None, found["type"]) if found else None


def _cutlass_3(key: str) -> Gemm | None:
    found = _CUTLASS_3.search(key)
    return Gemm(found["tile"], None, "", found["layout"].upper()) if found else None


def _cublas(key: str) -> Gemm | None:
    found = _CUBLAS.search(key)
    if not found:
        return None
    stages = _STAGES.search(found["rest"])
    depth = found["cutlass_k"] or (stages[1] if stages else "")
    layout = _LAYOUT.search(found["rest"])
    letter = found["op"][0]
    dtype = _TYPE_NAMES.get(found["type"] or "", "") or _OPERATIONS.get(letter, "")
    return Gemm(
        tile=found["mn"] + (f"x{depth}" if depth else ""),
        split_k=True if "splitK" in found["rest"] else None,
        dtype=dtype,
        layout=layout[1].upper() if layout else "",
    )


def _cute(key: str) -> Gemm | None:
    for found in _CUTE_TILE.finditer(key):
        if all(int(side) >= _CUTE_SMALLEST for side in found.groups()):
            return Gemm("x".join(found.groups()))
    return None


def _pair(types: list[str]) -> str:
    """One type, or both where they differ."""
    return types[0] if len(set(types)) == 1 else "x".join(types)
