"""What a DataFrame can have that no topic can take, each in one sentence."""


class InputError(ValueError):
    """A column or a row can't be written; the text is one sentence for the user."""
