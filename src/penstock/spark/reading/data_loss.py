"""Records that are gone before the query has read them: an end with a sentence, or a warning."""

import logging

from penstock.client.errors import ClientError

logger = logging.getLogger(__name__)


class DataLost(ClientError):
    """Records that a query had yet to read are gone, and it is set to fail then."""


def report_loss(what: str, *, fail: bool) -> None:
    """`what` is a sentence without its full stop that says which records are missing."""
    if fail:
        raise DataLost(f"{what}; with the option failOnDataLoss=false the query would continue.")
    logger.warning("%s; the query continues, because the option failOnDataLoss is false.", what)
