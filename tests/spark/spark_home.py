"""Spark's home for the tests: the one that a local pipeline has, made once for all of them.

The tests of an installed wheel and of a program without any preparation keep the home that users
have.
"""

import zlib
from pathlib import Path

import pyspark

from penstock.spark.home import make_home

BUILD = Path(__file__).resolve().parents[2] / "build"
PACKAGE = Path(pyspark.__file__).resolve().parent
# Another pyspark, or the same one in another environment, has another home.
HOME = BUILD / f"spark-{pyspark.__version__}-{zlib.crc32(str(PACKAGE).encode()):08x}"


def prepare() -> Path:
    return make_home(HOME)
