"""What an archive can't do, each in one sentence."""

from penstock.model.errors import Explained


class ArchiveRefused(Explained):
    """The archive can't take or give this; the text is one sentence that names the thing."""
