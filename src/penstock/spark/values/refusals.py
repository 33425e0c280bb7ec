"""What is refused when a decoder is asked for, on the driver, before any row is read."""

from penstock.client.errors import ClientError


class DecodeRefused(ClientError, ValueError):
    """A format, schema, column or option that can't be used; the text is one sentence."""
