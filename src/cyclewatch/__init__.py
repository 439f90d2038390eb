"""cyclewatch: a continuous performance-regression daemon for SGLang inference nodes."""

from importlib.metadata import version

__version__ = version("cyclewatch")
