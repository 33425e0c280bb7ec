"""Spark's own Kafka connector, spark-sql-kafka, as Maven Central has it.

The version of the installed pyspark is tried first. A repository may not have it, or not its helper
that fetches security tokens, for every pyspark that PyPI has; then a published version stands in,
and whoever reports a figure names it. The jars are fetched once into the build folder and shared by
benchmarks and tests.
"""

import fcntl
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pyspark

SPARK_VERSION: str = pyspark.__version__
BUILD = Path(__file__).resolve().parent.parent / "build" / "spark-connector"
INSTALL_TIMEOUT_S = 240
# The connector's version and that of its helper; the first pair that can be had is taken.
CANDIDATES = ((SPARK_VERSION, SPARK_VERSION), ("4.2.0", "4.2.0"), ("4.2.0", "4.0.0"))
# What else the connector asks for comes with pyspark.
PROVIDED = (
    "at.yawk.lz4",
    "com.github.luben",
    "com.google.code.findbugs",
    "org.apache.hadoop",
    "org.apache.logging.log4j",
    "org.lz4",
    "org.scala-lang",
    "org.scala-lang.modules",
    "org.slf4j",
    "org.xerial.snappy",
)

POM = """\
<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>penstock.bench</groupId>
  <artifactId>spark-connector</artifactId>
  <version>1</version>
  <packaging>pom</packaging>
  <dependencies>
    <dependency>
      <groupId>org.apache.spark</groupId>
      <artifactId>spark-sql-kafka-0-10_{scala}</artifactId>
      <version>{spark}</version>
      <exclusions>{exclusions}</exclusions>
    </dependency>
    <dependency>
      <groupId>org.apache.spark</groupId>
      <artifactId>spark-token-provider-kafka-0-10_{scala}</artifactId>
      <version>{helper}</version>
      <exclusions>{exclusions}</exclusions>
    </dependency>
  </dependencies>
  <build>
    <plugins>
      <plugin>
        <groupId>org.apache.maven.plugins</groupId>
        <artifactId>maven-dependency-plugin</artifactId>
        <version>3.8.1</version>
      </plugin>
    </plugins>
  </build>
</project>
"""

# Spark's own pom asks a mirror first, which not every network lets through.
SETTINGS = """\
<settings>
  <mirrors>
    <mirror>
      <id>central</id>
      <mirrorOf>*</mirrorOf>
      <url>https://repo.maven.apache.org/maven2</url>
    </mirror>
  </mirrors>
</settings>
"""


class ConnectorMissing(Exception):
    """The jars can't be had here; the message is a sentence that says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Connector:
    version: str
    jars: tuple[Path, ...]

    @property
    def spark_jars(self) -> str:
        """As the setting `spark.jars` wants them."""
        return ",".join(map(str, self.jars))


def connector() -> Connector:
    """The connector in the version that fits best; fetched unless it lies here already."""
    folder = BUILD / SPARK_VERSION
    folder.mkdir(parents=True, exist_ok=True)
    complete = folder / "complete"
    # Several test processes may come at once, and the first one does the work for all.
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not complete.exists():
            complete.write_text(_install(folder))
    jars = tuple(sorted((folder / "jars").glob("*.jar")))
    return Connector(version=complete.read_text(), jars=jars)


def _install(folder: Path) -> str:
    """Returns the version that could be had."""
    if shutil.which("mvn") is None:
        raise ConnectorMissing("Spark's Kafka connector can't be fetched: mvn was not found.")
    said = ""
    for version, helper_version in CANDIDATES:
        outcome = _fetch(folder, version, helper_version)
        if outcome.returncode == 0:
            return version
        said = (outcome.stdout + outcome.stderr).strip()[-500:]
    raise ConnectorMissing(f"Spark's Kafka connector could not be fetched with Maven: {said}")


def _fetch(folder: Path, version: str, helper_version: str) -> "subprocess.CompletedProcess[str]":
    pom, settings, jars = folder / "pom.xml", folder / "settings.xml", folder / "jars"
    pom.write_text(_pom(version, helper_version))
    settings.write_text(SETTINGS)
    shutil.rmtree(jars, ignore_errors=True)
    goal = ["dependency:copy-dependencies", "-DincludeScope=runtime", f"-DoutputDirectory={jars}"]
    return subprocess.run(
        ["mvn", "-q", "-B", "-s", str(settings), "-f", str(pom), *goal],
        capture_output=True,
        text=True,
        timeout=INSTALL_TIMEOUT_S,
    )


def _pom(version: str, helper_version: str) -> str:
    group = "<exclusion><groupId>{}</groupId><artifactId>*</artifactId></exclusion>"
    exclusions = "".join(group.format(name) for name in PROVIDED)
    return POM.format(
        scala=_scala_version(), spark=version, helper=helper_version, exclusions=exclusions
    )


def _scala_version() -> str:
    """The binary version that pyspark's own jars are built for, such as 2.13."""
    for path in (Path(pyspark.__file__).parent / "jars").glob("spark-sql_*.jar"):
        if match := re.match(r"spark-sql_([\d.]+)-", path.name):
            return match[1]
    raise ConnectorMissing("The installed pyspark brings no jars.")
