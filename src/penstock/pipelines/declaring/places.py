"""Where in the user's file a word of ours was used."""

import os
import sys
from pathlib import Path
from types import FrameType

from penstock.pipelines.specification.problems import Place

HERE = str(Path(__file__).parent) + os.sep


def place_of_caller() -> Place:
    """The line of the nearest caller that is not one of the words themselves."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and frame.f_code.co_filename.startswith(HERE):
        frame = frame.f_back
    assert frame is not None, "the words are called from a file"
    return Place(frame.f_code.co_filename, frame.f_lineno)
