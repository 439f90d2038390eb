"""Pure detection and attribution: arrays and records in, verdicts out; no I/O, no clock, no SQL."""

if not __name__.startswith("cyclewatch."):
    raise ImportError(f"import cyclewatch.{__name__}, not {__name__}: the folder is part of the package cyclewatch")
