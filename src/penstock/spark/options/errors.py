"""The one way in which options are refused."""

from penstock.client.errors import ClientError


class OptionError(ClientError, ValueError):
    """An option can't be honoured; the text is one sentence that names it."""
