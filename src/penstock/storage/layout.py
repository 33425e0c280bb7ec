"""The names of the files in a partition's directory.

00000000000000004711.log         a segment: batches from offset 4711 on
00000000000000004711.index       where some of its batches lie (can be lost)
00000000000000004711.timeindex   how late the records before them are (can be lost)
checkpoint                       what is known to be safe (see checkpoint.py)
compaction                       a finished compaction that is being swapped in
reset                            an empty log that takes the place of this one
*.cleaned *.deleted *.tmp        left behind by a crash; recovery finishes or removes them
"""

from functools import lru_cache
from pathlib import Path

CHECKPOINT = "checkpoint"
COMPACTION = "compaction"
RESET = "reset"

SEGMENT_SUFFIX = ".log"
INDEX_SUFFIX = ".index"
TIME_INDEX_SUFFIX = ".timeindex"
CLEANED_SUFFIX = ".cleaned"
DELETED_SUFFIX = ".deleted"

_DIGITS = 20
# A log is asked for the paths of its last segments again and again, and they take long to make.
_PATHS_KEPT_MAX = 4096


@lru_cache(maxsize=_PATHS_KEPT_MAX)
def segment_path(directory: Path, base_offset: int, suffix: str = SEGMENT_SUFFIX) -> Path:
    return directory / f"{base_offset:0{_DIGITS}d}{suffix}"


def base_offset_of(name: str, suffix: str = SEGMENT_SUFFIX) -> int | None:
    """The base offset in a file's name; None if the name is of another kind."""
    digits = name.removesuffix(suffix)
    if len(digits) != _DIGITS or digits == name or not digits.isdecimal():
        return None
    return int(digits)


def by_suffix(names: list[str]) -> dict[str, list[int]]:
    """The base offsets in the names of a directory's files, by what follows them; in the order of
    the names."""
    found: dict[str, list[int]] = {}
    for name in names:
        suffix = name[_DIGITS:]
        digits = name[:_DIGITS]
        if len(digits) == _DIGITS and suffix and digits.isdecimal():
            found.setdefault(suffix, []).append(int(digits))
    return found


def base_offsets(names: list[str], suffix: str = SEGMENT_SUFFIX) -> list[int]:
    found = (base_offset_of(name, suffix) for name in names)
    return sorted(base for base in found if base is not None)
