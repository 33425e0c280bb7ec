"""Proves that a pipeline is checked without data and broker: each problem at its line and word."""

from pathlib import Path

from pyspark.sql import SparkSession

from penstock.pipelines.building.blank_reader import BlankReader
from penstock.pipelines.building.datasets import Datasets
from penstock.pipelines.checking.checking import check
from penstock.pipelines.checking.state_signature import state_signature
from penstock.pipelines.specification.reading import read_pipeline

WRONG = """\
pipeline: wrong
sources:
  readings:
    topic: readings
    decode: {format: json, schema: "sensor STRING, temperature DOUBLE, at TIMESTAMP"}
    watermark: {column: att, delay: 10 seconds}
    rules:
      plausible: {condition: temprature BETWEEN -50 AND 80, action: route}
      known: {condition: sensor IS NOT NUL, action: drop}
      odd: {condition: temperature + 1, action: drop}
  fine:
    topic: fine
    decode: {format: json, schema: "sensor STRING, temperature DOUBLE, at TIMESTAMP"}
    watermark: {column: at, delay: 10 seconds}
  typed:
    topic: typed
    decode:
      format: json
      schema: "sensor STRING, room STRNG"
  clash:
    topic: clash
    decode: {format: json, schema: "offset INT", keep: [offset]}
  rooms: {files: rooms.csv, format: csv, schema: "sensor STRING, room STRIN", stream: false}
  history: {table: lake/none, format: parquet}
steps:
  averages:
    sql: |
      SELECT window.start AS start, sensor,
             avrg(temperature) AS average
      FROM readings
      GROUP BY window(at, '10 seconds'), sensor
  counts:
    sql: SELECT sensor, count(*) AS n FROM fine GROUP BY sensor
  beyond:
    sql: >
      SELECT sensor, humidity
      FROM fine
  placed: {sql: "SELECT r.sensor, m.room FROM fine r JOIN rooms m ON r.sensor = m.sensor"}
  dangerous: {sql: DROP TABLE fine, inputs: [fine]}
  anomalies: {function: steps.py:find}
  nothing: {function: steps.py:nothing}
  unique: {deduplicate: fine, by: [sensor, whn]}
flows:
  appended: {from: counts, to: {console: 5}}
  completed:
    from: counts
    to: {delta: lake/counts}
    mode: complete
  partitioned: {from: fine, to: {parquet: lake/fine, partition_by: [sensr]}}
  plain: {from: fine, to: {console: 5}, mode: complete}
  set: {from: fine, to: {console: 5}, settings: {spark.sql.warehouse.dir: x}}
  late: {from: placed, to: {console: 5}}
  keyed: {from: readings, to: {topic: alerts, key: rooom}}
"""
STEPS = """\
from pyspark.sql import functions as sf


def find(fine):
    cold = fine.where(sf.col("temperature") < 0)
    return cold.select("sensor", sf.col("tempe"))


def nothing(fine):
    pass
"""
# Behind each place, how the sentence begins.
FOUND = """\
wrong.yaml:6:25: There is no column att; there are: sensor, temperature, at, key, topic, partition
wrong.yaml:8:30: There is no column temprature; the nearest are temperature, at
wrong.yaml:9:40: The SQL is wrong at or near 'NUL'.
wrong.yaml:10:24: The rule odd must be true or false, but is double.
wrong.yaml:19:36: There is no type STRNG.
wrong.yaml:22:37: The source clash keeps the record's column offset, and the decoded value
wrong.yaml:23:71: There is no type STRIN.
wrong.yaml:24:3: The table lake/none of the source history does not exist yet
wrong.yaml:29:14: There is no function avrg in SQL.
wrong.yaml:36:22: There is no column humidity; the nearest are
wrong.yaml:39:20: The SQL is wrong at or near 'DROP'.
wrong.yaml:41:23: The function nothing must return a DataFrame, not nothing.
wrong.yaml:42:44: The dataset fine has no column whn; there are: sensor, temperature
wrong.yaml:44:3: The flow appended can't run: the mode append needs a watermark
wrong.yaml:48:11: The flow completed writes to a table, and tables are append-only
wrong.yaml:49:69: The table 'lake/fine' can't be partitioned by 'sensr'
wrong.yaml:50:47: The flow plain can't run: the mode complete is only for streams that are
wrong.yaml:51:50: Cannot modify the value of the static Spark config: "spark.sql.warehouse.dir".
wrong.yaml:53:52: The sink's key is the column 'rooom', which the rows do not have
steps.py:6:42: There is no column tempe; the nearest are
"""

SIGNED = """\
pipeline: signed
sources:
  fine:
    topic: fine
    decode: {{format: json, schema: "sensor STRING, temperature DOUBLE, at TIMESTAMP{field}"}}
    watermark: {{column: at, delay: {delay}}}
steps:
  averages:
    sql: |
      SELECT window.start, sensor, {function}(temperature) AS {name}
      FROM fine {filter}
      GROUP BY window(at, '{size}'), sensor
  unique: {{deduplicate: fine, by: [sensor, at]}}
  pairs: {{sql: "SELECT a.sensor FROM fine a JOIN averages b ON a.sensor = b.sensor"}}
  days: {{sql: "SELECT date(at) AS day, * FROM fine"}}
  daily: {{sql: "SELECT day, max(temperature) AS m FROM days GROUP BY day"}}
  counted: {{function: counting.py:count}}
flows:
  all: {{from: averages, to: {{console: 1}}}}
"""
COUNTING = """\
from pyspark.sql.streaming import StatefulProcessor


class Counter(StatefulProcessor):
    def init(self, handle):
        self._count = handle.getValueState("count", "n BIGINT")

    def handleInputRows(self, key, rows, timerValues):
        yield from ()

    def close(self):
        pass


def count(fine):
    return fine.groupBy("sensor").transformWithState(
        Counter(), "sensor STRING, n BIGINT", "append", "none"
    )
"""
FIRST = {
    "field": "",
    "delay": "10 seconds",
    "function": "avg",
    "name": "average",
    "filter": "",
    "size": "10 seconds",
}


def test_every_problem_is_found_at_once(spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "wrong.yaml"
    path.write_text(WRONG)
    (tmp_path / "steps.py").write_text(STEPS)
    problems = check(read_pipeline(path), spark)
    found = [str(problem).replace(f"{tmp_path}/", "") for problem in problems]
    for line, beginning in zip(found, FOUND.splitlines(), strict=True):
        assert line.startswith(beginning)
        assert line.endswith(".")


def signatures(spark: SparkSession, folder: Path, **changes: str) -> dict[str, tuple[str, ...]]:
    path = folder / "signed.yaml"
    path.write_text(SIGNED.format(**FIRST | changes))
    (folder / "counting.py").write_text(COUNTING)
    datasets = Datasets(read_pipeline(path), spark, BlankReader(spark))
    names = ("fine", "averages", "unique", "pairs", "daily", "counted")
    return {name: state_signature(datasets.frame(name)) for name in names}


def test_a_signature_changes_with_the_meaning_of_the_state_alone(
    spark: SparkSession, tmp_path: Path
) -> None:
    window = "struct<start:timestamp,end:timestamp>"
    averages = (
        f"aggregation by window of 10 s on at {window}, sensor string: avg(temperature) double"
    )
    first = signatures(spark, tmp_path)
    assert first == {
        "fine": (),
        "averages": (averages,),
        "unique": ("deduplication within the watermark by sensor string, at timestamp",),
        "pairs": ("join of streams, Inner, on (sensor = sensor)", averages),
        "daily": ("aggregation by cast(at as date) date: max(temperature) double",),
        "counted": ("function with state by sensor string, NoTime",),
    }
    harmless = {"field": ", room STRING", "delay": "1 minute", "name": "mean"}
    harmless["filter"] = "WHERE temperature > 0"
    assert signatures(spark, tmp_path, **harmless) == first
    longer = signatures(spark, tmp_path, size="20 seconds")
    assert [name for name in first if first[name] != longer[name]] == ["averages", "pairs"]
    other = signatures(spark, tmp_path, function="sum")
    assert [name for name in first if first[name] != other[name]] == ["averages", "pairs"]
