"""Log lines on stderr: text, in colours on a terminal, or JSON where a machine reads them."""

import json
import logging
import sys
from datetime import UTC, datetime
from typing import TextIO

_TEXT_FORMAT = "%(asctime)s %(levelname)-7s %(name)s: %(message)s"
_COLOURS = {
    logging.WARNING: "\x1b[33m",
    logging.ERROR: "\x1b[31m",
    logging.CRITICAL: "\x1b[31;1m",
}
_RESET = "\x1b[0m"


class _TextFormatter(logging.Formatter):
    def __init__(self, *, coloured: bool) -> None:
        super().__init__(_TEXT_FORMAT, datefmt="%H:%M:%S")
        self._coloured = coloured

    def format(self, record: logging.LogRecord) -> str:
        line = super().format(record)
        colour = _COLOURS.get(record.levelno) if self._coloured else None
        return f"{colour}{line}{_RESET}" if colour else line


class _JsonFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        line = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line, ensure_ascii=False)


def set_up_logs(*, log_format: str, level: str, stream: TextIO | None = None) -> None:
    """Send the `penstock` loggers to `stream`."""
    target = stream or sys.stderr
    on_terminal = target.isatty()
    handler = logging.StreamHandler(target)
    if log_format == "json":
        handler.setFormatter(_JsonFormatter())
    else:
        handler.setFormatter(_TextFormatter(coloured=on_terminal))
    root = logging.getLogger("penstock")
    root.handlers = [handler]
    root.setLevel(level.upper())
    root.propagate = False
