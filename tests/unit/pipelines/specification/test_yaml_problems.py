"""What is wrong in a YAML file is told with its line, its column and the word, and all at once."""

from pathlib import Path

import pytest

from tests.unit.pipelines.specification.files import SMALLEST, problems

# Lines that follow the smallest pipeline, whose last part is flows, begin in line 7.
AFTER = [
    ("setings: {}", "7:1: The key setings is unknown in the pipeline; the nearest is settings."),
    (
        "restart: {attemps: 3}",
        "7:11: The key attemps is unknown in restart of the pipeline; the nearest is attempts.",
    ),
    (
        "restart: {pause: 3}",
        "7:18: The key pause in restart of the pipeline must be a time such as 10 seconds or "
        '5 minutes, not "3".',
    ),
    ("flows: {}", "7:1: The key flows is given twice, first in line 5."),
    (
        "  out: {from: readings, too: console}",
        "7:25: The key too is unknown in the flow out; the nearest is to.",
    ),
    ("  out: {from: readings}", "7:3: The key to is missing in the flow out."),
    (
        "  out: {from: reading, to: console}",
        "7:15: There is no dataset reading, which the flow out takes; the nearest is readings.",
    ),
    (
        "  out: {from: readings_rejected, to: console}",
        "7:15: There is no dataset readings_rejected, which the flow out takes: "
        "readings has no rule that routes.",
    ),
    (
        "  out: {from: readings_undecodable, to: console}",
        "7:15: There is no dataset readings_undecodable, which the flow out takes: "
        "readings decodes nothing.",
    ),
    (
        "  out: {from: shown, to: console}",
        "7:15: There is no dataset shown, which the flow out takes: "
        "it is a flow, which takes readings.",
    ),
    (
        "  out: {from: readings, to: console, every: 5}",
        "7:45: The key every in the flow out must be a time such as 10 seconds or 5 minutes, "
        'not "5".',
    ),
    (
        "  out: {from: readings, to: console, mode: apend}",
        '7:44: The key mode in the flow out must be append, update or complete, not "apend".',
    ),
    (
        "  out: {from: readings, to: {topc: a}}",
        "7:30: The key topc is unknown in to of the flow out; the nearest is topic.",
    ),
    (
        "  out: {from: readings, to: {topic: a/b}}",
        "7:37: The option topic must be a name of at most 249 letters, digits, dots, underscores "
        'and hyphens, not "a/b".',
    ),
    (
        "  out: {from: readings, to: {topic: a, includeTimestamp: true}}",
        "7:40: The key includeTimestamp is unknown in to of the flow out; "
        "put it under options: {includeTimestamp: ...}.",
    ),
    (
        "  out: {from: readings, to: {topic: a, options: {kafka.ackss: all}}}",
        "7:50: kafka.ackss is not a setting of the Kafka client; the nearest is kafka.acks.",
    ),
    (
        "  out: {from: readings, to: {topic: a, options: {topic: b}}}",
        "7:50: The option topic is already given by the key topic.",
    ),
    (
        "  out: {from: readings, to: {topic: a, delta: b}}",
        "7:40: A flow goes to either topic or delta, not both.",
    ),
    (
        "  out: {from: readings, to: {partition_by: a}}",
        "7:29: The key to of the flow out does not say where the rows go: "
        "give topic, parquet, delta, iceberg, console or function.",
    ),
    (
        "  out: {from: readings, to: {console: many}}",
        "7:39: The key console in to of the flow out must be a whole number of at least 1, "
        'not "many".',
    ),
    (
        "  out: {from: readings, to: nowhere}",
        '7:29: The key to of the flow out must be a map of keys and values, not "nowhere".',
    ),
    (
        "  out: {from: readings, to: {function: nothing.py:run}}",
        "7:40: There is no file nothing.py.",
    ),
    (
        "  out: {from: readings, to: {function: run}}",
        '7:40: A function is named like anomalies.py:find_anomalies, not like "run".',
    ),
    (
        "  out: {from: rooms, to: console}",
        "7:3: The flow out does not read a stream: what it takes from rooms never changes while a "
        "pipeline runs.",
    ),
    (
        "  Shown: {from: readings, to: console}",
        "7:3: There is already a flow Shown.",
    ),
    (
        "  a b: {from: readings, to: console}",
        '7:3: The name of the flow "a b" must hold only letters, digits, underscores and hyphens.',
    ),
    (
        "  a: {from: readings, to: {delta: x}}\n  b: {from: readings, to: {parquet: ./x}}",
        "8:28: The flow b writes parquet where the flow a writes delta.",
    ),
    (
        "steps:\n  a: {sql: SELECT * FROM reedings}",
        "8:26: There is no dataset reedings, which the step a takes; the nearest is readings.",
    ),
    (
        "steps:\n  a:\n    sql: |\n      SELECT *\n        FROM readings JOIN x ON true",
        "11:28: There is no dataset x, which the step a takes; there are: readings, rooms, a.",
    ),
    (
        "steps:\n  a:\n    sql: |\n      SELECT *\n      FORM readings WHERE",
        '11:12: The query can\'t be read near "readings" in the step a; if Spark accepts it, '
        "name the datasets that it reads, as in inputs: [readings].",
    ),
    (
        "steps:\n  a: {function: steps.py:find}",
        "8:17: The file steps.py does not define a function find; there is: found.",
    ),
    (
        "steps:\n  a: {sql: SELECT 1, function: x}",
        "8:22: The step a is either sql or function, not both.",
    ),
    (
        "steps:\n  a: {watermark: {column: at, delay: 1 day}}",
        "8:3: The step a does not say what it does: give sql, function or deduplicate.",
    ),
    (
        "steps:\n  a: {deduplicate: readings}",
        "8:3: The key by is missing in the step a: it lists the columns to compare.",
    ),
    (
        "steps:\n  readings: {sql: SELECT * FROM rooms}",
        "8:3: The name readings is given twice: there is already a source of that name.",
    ),
    (
        "steps:\n  a: {sql: SELECT * FROM b}\n  b: {sql: SELECT * FROM a}",
        "8:3: The steps a, b and a depend on each other.",
    ),
    (
        "tests:\n  - {given: {reading: []}, expect: {readings: []}}",
        '8:14: There is no source reading, which the test "test 1" gives; the nearest is readings.',
    ),
    (
        "tests:\n  - {given: {readings: [1]}, expect: {readings: []}}",
        '8:25: A row of readings in the test "test 1" must be a map of columns, not "1".',
    ),
    (
        "tests: {}",
        "7:8: The key tests in the pipeline must be a list, not a map.",
    ),
]


@pytest.mark.parametrize(("text", "problem"), AFTER, ids=[problem for _, problem in AFTER])
def test_what_is_wrong_after_the_sources(tmp_path: Path, text: str, problem: str) -> None:
    (tmp_path / "steps.py").write_text("def found(readings): ...\n")
    assert problems(tmp_path, f"{SMALLEST}{text}\n") == [problem]


# Sources that stand in line 3.
SOURCES = [
    (
        "a: {topic: t, starting: {t: [23]}}",
        "31: The topic t in the key starting must be a map of keys and values, not a list.",
    ),
    (
        "a: {topic: t, starting: {t: {0: [23]}}}",
        "35: The offset of partition 0 in the key starting must be a number, not a list.",
    ),
    ("x: {topik: a}", "7: The key topik is unknown in the source x; the nearest is topic."),
    (
        "x: {brokers: host:1}",
        "3: The source x does not say what it reads: "
        "give topic, topics, pattern, files, table or archive.",
    ),
    ("x: {topic: a, table: b}", "17: The source x reads either topic or table, not both."),
    (
        "x: {topic: a, options: {maxOffsetPerTrigger: 5}}",
        "27: There is no option maxOffsetPerTrigger; the nearest is maxOffsetsPerTrigger.",
    ),
    (
        "x: {topic: a, failOnDataLoss: false}",
        "17: The key failOnDataLoss is unknown in the source x; "
        "put it under options: {failOnDataLoss: ...}.",
    ),
    (
        "x: {topic: a, options: {failOnDataLoss: maybe}}",
        '27: The option failOnDataLoss must be true or false, not "maybe".',
    ),
    (
        "x: {topic: a, brokers: nowhere:port}",
        '26: The option kafka.bootstrap.servers holds "nowhere:port", but it must be '
        "HOST:PORT, as in 127.0.0.1:9092 or [::1]:9092.",
    ),
    (
        "x: {topic: a, decode: {format: jason, schema: a STRING}}",
        "34: The key format in decode of the source x must be text, json, avro or protobuf, "
        'not "jason".',
    ),
    (
        "x: {topic: a, decode: {format: json}}",
        "25: The key schema is missing in decode of the source x: the format json needs a schema.",
    ),
    (
        "x: {topic: a, decode: {format: avro, schema: a.avsc}}",
        '48: There is no file "a.avsc" with the schema.',
    ),
    (
        "x: {topic: a, decode: {format: text, keep: [offsets]}}",
        "47: A record has no column offsets to keep in decode of the source x; "
        "the nearest is offset.",
    ),
    (
        "x: {topic: a, dead_letters: b}",
        "31: The key dead_letters needs decode: only what can't be decoded is a dead letter.",
    ),
    (
        "x: {topic: a, watermark: {column: at, delay: 10 secs}}",
        "48: The key delay in watermark of the source x must be a time such as 10 seconds or "
        '5 minutes, not "10 secs".',
    ),
    (
        "x: {topic: a, rules: {r: {condition: a > 0, action: reroute}}}",
        "55: The key action in the rule r of the source x must be keep, drop, route or fail, "
        'not "reroute".',
    ),
    (
        "x: {topic: a, rules: {r: {action: drop}}}",
        "28: The key condition is missing in the rule r of the source x.",
    ),
    (
        "x: {files: a, format: csb, schema: a STRING}",
        "25: The key format in the source x must be csv, json, parquet, orc, text, xml or "
        'binaryFile, not "csb".',
    ),
    ("x: {files: a, format: csv}", "3: The key schema is missing in the source x."),
    (
        "x: {table: a, format: delta, stream: 1}",
        '40: The key stream in the source x must be true or false, not "1".',
    ),
    ("x: [topic, a]", "6: The source x must be a map of keys and values, not a list."),
    ("x: {topic: !secret a}", "14: The tag !secret is not known here."),
    (
        "a-b: {topic: a}",
        '3: The name of the source "a-b" must start with a letter and hold only letters, digits '
        "and underscores.",
    ),
]


@pytest.mark.parametrize(("text", "problem"), SOURCES, ids=[problem for _, problem in SOURCES])
def test_what_is_wrong_with_a_source(tmp_path: Path, text: str, problem: str) -> None:
    name = text.partition(":")[0]
    whole = f"pipeline: iot\nsources:\n  {text}\nflows:\n  out: {{from: {name}, to: console}}\n"
    assert problems(tmp_path, whole) == [f"3:{problem}"]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "The file is empty."),
        ("a: {b", "1:6: This is not valid YAML: while parsing a flow mapping, expected ',' or '}', "
         "but got '<stream end>'."),
        ("a: {b: ${c}}", "1:9: Inside braces and brackets a text with ${...} needs quotes around "
         "it."),
        ("a: \x07", "1:4: The character '\\x07' is not allowed in YAML."),
        ("- a", '1:1: The pipeline must be a map of keys and values, not a list.'),
        ("pipeline: Iot\nsources: {a: {topic: a}}\nflows: {a: {from: a, to: console}}",
         "1:11: The name of a pipeline must start with a letter and hold only lower-case letters,"
         " digits, "
         'underscores and hyphens, not "Iot".'),
        ("pipeline: iot\nflows: {a: {from: a, to: console}}",
         "1:1: The key sources is missing in the pipeline, which reads nothing without it."),
        ("pipeline: iot\nsources: {a: {topic: a}}",
         "1:1: The key flows is missing in the pipeline, which writes nothing without it."),
        ("a: " + "[" * 1000, "The file is nested too deeply."),
    ],
    ids=lambda text: text[:30],
)  # fmt: skip
def test_what_is_wrong_with_the_file(tmp_path: Path, text: str, problem: str) -> None:
    assert problem in problems(tmp_path, text)


@pytest.mark.parametrize(
    "sql",
    [
        "|\n      SELECT *\n      FROM x",
        "|2\n      SELECT *\n      FROM x",
        ">\n      SELECT *\n      FROM x",
        ">-  # folded\n\n      SELECT *\n      FROM x\n\n",
        "SELECT *\n      FROM x",
        "'SELECT *\n      FROM x'",
        '"SELECT *\n      FROM x"',
        "SELECT '${a}${a}',\n      1\n      FROM x",
    ],
)
def test_a_word_of_sql_is_found_however_it_is_written(tmp_path: Path, sql: str) -> None:
    text = f"{SMALLEST}parameters: {{a: b}}\nsteps:\n  a:\n    sql: {sql}\n"
    line = next(number for number, one in enumerate(text.split("\n"), 1) if "FROM x" in one)
    column = text.split("\n")[line - 1].index("x") + 1
    assert problems(tmp_path, text) == [
        f"{line}:{column}: There is no dataset x, which the step a takes; "
        "there are: readings, rooms, a."
    ]


def test_all_problems_are_told_in_the_order_of_the_file(tmp_path: Path) -> None:
    """A part with a problem still counts as declared, so that nothing is told that follows."""
    found = problems(
        tmp_path,
        """\
        pipeline: iot
        sources:
          readings: {topic: readings, decode: {format: jsn}}
        steps:
          a: {sql: SELECT * FROM readings JOIN readings_undecodable USING (key)}
          b: {sql: SELECT * FROM}
          c: {deduplicate: B, by: x}
        flows:
          out: {from: b, to: {}}
          in: {from: d, mode: all, to: console}
        """,
    )
    assert [problem.partition(": ")[0] for problem in found] == [
        "3:48",
        "6:21",
        "9:22",
        "10:14",
        "10:23",
    ]


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    from penstock.pipelines.specification.problems import SpecificationRefused
    from penstock.pipelines.specification.reading import read_pipeline

    (tmp_path / "iot.json").write_text("{}")
    for name, sentence in (
        ("no.yaml", "There is no such file."),
        (".", "This is a folder, not a file."),
        ("iot.json", "A pipeline is described in a file that ends with .yaml, .yml or .py."),
    ):
        with pytest.raises(SpecificationRefused, match=sentence):
            read_pipeline(tmp_path / name)
