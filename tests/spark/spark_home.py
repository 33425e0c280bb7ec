"""Spark's home for the tests: pyspark's own folder without the archive of its Python sources.

Spark puts `python/lib/pyspark.zip` of its home before everything else that its Python processes may
import. Python keeps no compiled code for what is in an archive, so each of them compiles pyspark
again: most of the time that it needs to start. Without the archive they import pyspark from where
it is installed, which is the same code. The tests of an installed wheel and of a program without
any preparation keep the home that users have.
"""

import tempfile
import zlib
from pathlib import Path

import pyspark

BUILD = Path(__file__).resolve().parents[2] / "build"
PACKAGE = Path(pyspark.__file__).resolve().parent
# Another pyspark, or the same one in another environment, has another home.
HOME = BUILD / f"spark-{pyspark.__version__}-{zlib.crc32(str(PACKAGE).encode()):08x}"
# The folder of the archive.
LEFT_OUT = "python"


def prepare() -> Path:
    """See to it that the home is there; whoever is first makes it for all."""
    if not HOME.exists():
        BUILD.mkdir(exist_ok=True)
        with tempfile.TemporaryDirectory(dir=BUILD) as folder:
            made = Path(folder) / "home"
            made.mkdir()
            for path in PACKAGE.iterdir():
                if path.name != LEFT_OUT:
                    (made / path.name).symlink_to(path)
            try:
                made.rename(HOME)
            except OSError:
                assert HOME.exists(), "another worker was faster"
    return HOME
