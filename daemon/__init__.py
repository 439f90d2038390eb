"""The daemon: schedule, pipeline, store, web endpoints, command line."""

if not __name__.startswith("cyclewatch."):
    raise ImportError(f"import cyclewatch.{__name__}, not {__name__}: the folder is part of the package cyclewatch")
