"""Spark's classes in one file, which a JVM maps into memory instead of loading them one by one.

That halves what a start of Spark costs, and the tests start it two dozen times. The file is made
once, by `python -m tests.spark.class_archive` in a JVM that notes which classes its work needs, and
is kept in the build folder. Where it is missing or does not fit, Java does without it.
"""

import fcntl
import os
import subprocess
import sys
import tempfile
import warnings
from pathlib import Path

from pyspark.sql import SparkSession

from tests.spark.spark_home import BUILD, HOME, PACKAGE

# Java takes it only for jars of the same paths, which are those of Spark's home.
ARCHIVE = BUILD / f"{HOME.name}-classes.jsa"
JARS = PACKAGE / "jars"
# On two shared cores the compiler that starts fastest wins: no query runs long enough for more.
COMPILER_FLAGS = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"
# Java warns of an archive that does not fit, and of what can't be archived, on stdout.
QUIET_FLAGS = f"{COMPILER_FLAGS} -Xlog:disable"
JVM_FLAGS = f'{QUIET_FLAGS} "-XX:SharedArchiveFile={ARCHIVE}"'
MAKE_TIMEOUT_S = 240


def prepare(java_home: Path) -> None:
    """See to it that there is an archive; anyone who comes while another makes it does without."""
    BUILD.mkdir(exist_ok=True)
    with (BUILD / "spark-classes.lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return
        if not is_current(java_home):
            make(java_home)


def is_current(java_home: Path) -> bool:
    """Java refuses an archive of jars, or of a Java, that were installed again since."""
    if not ARCHIVE.exists():
        return False
    parts = (JARS, java_home / "lib" / "modules")
    return all(ARCHIVE.stat().st_mtime > part.stat().st_ctime for part in parts if part.exists())


def make(java_home: Path) -> None:
    with tempfile.TemporaryDirectory(dir=BUILD) as folder:
        made = Path(folder) / ARCHIVE.name
        environment = os.environ | {
            "JAVA_HOME": str(java_home),
            "PYSPARK_PYTHON": sys.executable,
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_SUBMIT_OPTS": f'{QUIET_FLAGS} "-XX:ArchiveClassesAtExit={made}"',
        }
        command = [sys.executable, "-m", __name__, folder]
        with (Path(folder) / "stderr").open("w+") as stderr:
            try:
                subprocess.run(
                    command,
                    env=environment,
                    cwd=BUILD.parent,
                    stdout=stderr,
                    stderr=stderr,
                    timeout=MAKE_TIMEOUT_S,
                    check=True,
                )
                made.replace(ARCHIVE)
            except (OSError, subprocess.SubprocessError) as failure:
                stderr.seek(0)
                said = stderr.read()[-2000:]
                warnings.warn(f"Spark starts slowly here: {failure} {said}", stacklevel=1)


def work(folder: Path) -> None:
    """A little of what the tests do: queries, files, a stream that keeps state, Python."""
    spark = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.sql.shuffle.partitions", "1")
        .config("spark.sql.warehouse.dir", str(folder / "warehouse"))
        .getOrCreate()
    )
    rows = spark.createDataFrame(
        [(number, str(number)) for number in range(10)], "id INT, name STRING"
    )
    rows.groupBy("name").count().orderBy("name").collect()
    rows.write.json(str(folder / "rows"))
    rows.write.parquet(str(folder / "table"))
    spark.read.parquet(str(folder / "table")).where("id > 3").collect()
    stream = spark.readStream.schema(rows.schema).json(str(folder / "rows"))
    query = (
        stream.groupBy("name")
        .count()
        .writeStream.outputMode("complete")
        .foreachBatch(lambda frame, number: frame.collect())
        .option("checkpointLocation", str(folder / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    jvm = spark.sparkContext._gateway.proc
    spark.stop()
    # It writes the archive when it ends, which it does with its input.
    jvm.stdin.close()
    jvm.wait()


if __name__ == "__main__":
    work(Path(sys.argv[1]))
