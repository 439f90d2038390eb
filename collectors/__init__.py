"""Collectors read the world (rings, /proc, HTTP) and give samples; they know only `config`."""

if not __name__.startswith("cyclewatch."):
    raise ImportError(f"import cyclewatch.{__name__}, not {__name__}: the folder is part of the package cyclewatch")
