"""structlog: one line an event, for a person or as JSON; an entry with fields where systemd's journal reads it."""

import logging
import os
import sys
from typing import Any

import structlog

from cyclewatch.config.settings import Log
from cyclewatch.daemon.journal import Journal, entry, leads_to_journal


def configure_logging(settings: Log) -> None:
    """Send the daemon's events, and warnings of the libraries it stands on, to standard error or to the journal."""
    level = logging.getLevelNamesMapping()[settings.level.upper()]
    if settings.format == "console" and leads_to_journal(sys.stderr, os.environ):
        handler = _to_journal(level)
    else:
        handler = _to_standard_error(settings, level)
    logging.basicConfig(level=max(level, logging.WARNING), handlers=[handler], force=True)


def _to_standard_error(settings: Log, level: int) -> logging.Handler:
    shared: list[Any] = [
        structlog.contextvars.merge_contextvars,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]
    if settings.format == "json":
        # Without local variables: they may hold a password.
        tracebacks = structlog.tracebacks.ExceptionDictTransformer(show_locals=False)
        last: list[Any] = [structlog.processors.ExceptionRenderer(tracebacks), structlog.processors.JSONRenderer()]
    else:
        last = [
            structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty(), exception_formatter=structlog.dev.plain_traceback)
        ]
    structlog.configure(
        processors=[*shared, *last],
        wrapper_class=structlog.make_filtering_bound_logger(level),
        logger_factory=structlog.WriteLoggerFactory(sys.stderr),
        cache_logger_on_first_use=False,
    )
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=shared,
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, *last],
        )
    )
    return handler


def _to_journal(level: int) -> logging.Handler:
    """Without times: the journal has its own."""
    journal = Journal(sys.stderr)
    structlog.configure(
        processors=[structlog.contextvars.merge_contextvars, structlog.processors.format_exc_info],
        wrapper_class=structlog.make_filtering_bound_logger(level),
        logger_factory=lambda *_: _JournalLogger(journal),
        cache_logger_on_first_use=False,
    )
    return _JournalHandler(journal)


class _JournalLogger:
    """What structlog hands finished events to."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal

    def debug(self, **event: object) -> None:
        self._journal.write(entry("debug", event))

    def info(self, **event: object) -> None:
        self._journal.write(entry("info", event))

    def warning(self, **event: object) -> None:
        self._journal.write(entry("warning", event))

    def error(self, **event: object) -> None:
        self._journal.write(entry("error", event))

    def critical(self, **event: object) -> None:
        self._journal.write(entry("critical", event))


class _JournalHandler(logging.Handler):
    """Warnings of libraries, which log by the standard library."""

    def __init__(self, journal: Journal) -> None:
        super().__init__()
        self._journal = journal

    def emit(self, record: logging.LogRecord) -> None:
        """Hand over one record, with its traceback."""
        self._journal.write(entry(record.levelname.lower(), {"event": self.format(record), "logger": record.name}))
