"""Python files for the tests of this folder."""

from pathlib import Path
from textwrap import dedent

from penstock.pipelines.declaring.reading import read_python
from penstock.pipelines.specification.model import Pipeline

IMPORT = "from penstock import pipelines as dp\n"
# A source and a flow, so that a file is a pipeline whatever else it says; they take lines 2 to 6.
SMALLEST = """\
dp.create_source("readings", topic="readings")
dp.create_sink("screen", "console")
@dp.append_flow(target="screen")
def shown(readings):
    return readings
"""


def declared(
    folder: Path,
    text: str,
    *,
    name: str = "iot.py",
    given: dict[str, str] | None = None,
    environment: dict[str, str] | None = None,
) -> Pipeline:
    """The pipeline of a file that begins with the import; the text begins in its second line."""
    path = folder / name
    path.write_text(IMPORT + dedent(text))
    return read_python(path, given or {}, environment or {})
