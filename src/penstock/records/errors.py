"""What is wrong with bytes that claim to be records."""


class CorruptBatch(ValueError):
    """The bytes are not a valid batch; the message says what is wrong with them."""
