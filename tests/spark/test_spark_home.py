"""Proves that Spark's Python processes import pyspark from where Python keeps compiled code.

They would work with the archive in Spark's own home too, and each would start half a second later.
"""

import pyspark
from pyspark.sql import SparkSession


def module_of_worker(_: int) -> str:
    import pyspark

    return pyspark.__file__


def test_workers_import_the_installed_pyspark(spark: SparkSession) -> None:
    assert spark.sparkContext.parallelize([0], 1).map(module_of_worker).first() == pyspark.__file__
