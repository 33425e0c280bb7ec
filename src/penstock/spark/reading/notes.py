"""What a user should know about the options of a query, reported once."""

import logging
from collections.abc import Iterable

logger = logging.getLogger("penstock.spark")


def log_notes(notes: Iterable[str]) -> None:
    for note in notes:
        logger.warning("%s", note)
