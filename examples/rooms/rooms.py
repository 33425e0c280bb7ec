"""Average temperatures of rooms: the Python form of a pipeline.

    penstock pipeline run rooms.py

It reads the readings that examples/iot sends, takes each of them once, looks up the room of its
sensor in a table, and keeps an average per room and minute.
"""

from pyspark.sql import DataFrame
from pyspark.sql import functions as sf

from penstock import pipelines as dp

brokers = dp.parameter("brokers", default="127.0.0.1:9092", environment="PENSTOCK_BOOTSTRAP")
lake = dp.parameter("lake", default="./lake")

dp.pipeline("rooms", settings={"spark.sql.shuffle.partitions": 2})

dp.create_source(
    "readings",
    topic="readings",
    brokers=brokers,
    decode={
        "format": "json",
        "schema": "sensor STRING, number BIGINT, temperature DOUBLE, at TIMESTAMP",
        "keep": [],
    },
    watermark=("at", "30 seconds"),
    rules={"possible": ("temperature BETWEEN -60 AND 100", "drop")},
)

# Read once when the pipeline starts.
dp.create_source(
    "rooms",
    files="rooms.csv",
    format="csv",
    schema="sensor STRING, room STRING",
    stream=False,
    options={"header": True},
)


@dp.temporary_view
def once(readings: DataFrame) -> DataFrame:
    """A sensor that got no answer sends a reading again."""
    return readings.dropDuplicatesWithinWatermark(["sensor", "number"])


@dp.temporary_view
def placed(once: DataFrame, rooms: DataFrame) -> DataFrame:
    return once.join(rooms, "sensor")


@dp.table(format="iceberg", path=f"{lake}/rooms", every="10 seconds")
def room_averages(placed: DataFrame) -> DataFrame:
    grouped = placed.groupBy(sf.window("at", "1 minute"), "room")
    averages = grouped.agg(sf.count("*").alias("readings"), sf.avg("temperature").alias("average"))
    return averages.select(sf.col("window.start").alias("minute"), "room", "readings", "average")


dp.test(
    "a reading that comes twice counts once, in the room of its sensor",
    given={
        "rooms": [{"sensor": "a", "room": "attic"}, {"sensor": "b", "room": "attic"}],
        "readings": [
            [
                {"sensor": "a", "number": 0, "temperature": 20.0, "at": "2026-01-01T00:00:01Z"},
                {"sensor": "b", "number": 0, "temperature": 24.0, "at": "2026-01-01T00:00:02Z"},
                {"sensor": "a", "number": 0, "temperature": 20.0, "at": "2026-01-01T00:00:01Z"},
            ],
            [{"sensor": "a", "number": 1, "temperature": 20.0, "at": "2026-01-01T00:02:00Z"}],
        ],
    },
    expect={
        "room_averages": [
            {"minute": "2026-01-01T00:00:00Z", "room": "attic", "readings": 2, "average": 22.0}
        ]
    },
)
