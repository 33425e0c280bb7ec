"""What is refused when a decoder is asked for, on the driver, before any row is read."""

from penstock.model.errors import Explained


class DecodeRefused(Explained, ValueError):
    """A format, schema, column or option that can't be used; the text is one sentence."""
