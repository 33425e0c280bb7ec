"""Bytes that lie in a file and travel to a socket without passing through Python."""

from typing import Protocol


class ReadableFile(Protocol):
    """An open file whose descriptor stays valid from `pin` until the matching `unpin`."""

    def fileno(self) -> int: ...

    def pread(self, length: int, position: int) -> bytes: ...

    def pin(self) -> object: ...

    def unpin(self) -> None: ...


class FileRange:
    """`length` bytes of a file from `position`; pinned while it exists, released once sent."""

    __slots__ = ("file", "is_cut", "length", "position")

    def __init__(
        self, file: ReadableFile, position: int, length: int, *, is_cut: bool = False
    ) -> None:
        assert position >= 0
        assert length >= 0
        file.pin()
        self.file = file
        self.position = position
        self.length = length
        # Whether more could be read behind it, beyond something that readers do not get.
        self.is_cut = is_cut

    def read(self) -> bytes:
        """The bytes themselves, for callers that must look inside or that speak TLS."""
        return self.file.pread(self.length, self.position)

    def release(self) -> None:
        self.file.unpin()

    def __len__(self) -> int:
        return self.length
