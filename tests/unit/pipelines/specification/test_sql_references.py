"""The tables of queries as people write them for Spark are found, and nothing else."""

import pytest

from penstock.pipelines.specification.sql_references import (
    SqlNotRead,
    table_references,
    tables_of,
)


@pytest.mark.parametrize(
    ("sql", "tables"),
    [
        ("SELECT 1", ()),
        ("SELECT * FROM a JOIN b USING (x) LEFT SEMI JOIN c ON a.x = c.x", ("a", "b", "c")),
        ("SELECT * FROM a, LATERAL (SELECT * FROM b WHERE b.x = a.x)", ("a", "b")),
        ("SELECT * FROM a WHERE x IN (SELECT x FROM b) AND EXISTS (SELECT 1 FROM c)", tuple("abc")),
        ("SELECT x FROM a UNION ALL SELECT x FROM b", ("a", "b")),
        ("WITH c AS (SELECT * FROM a), d AS (SELECT * FROM c) SELECT * FROM c JOIN d", ("a",)),
        ("WITH a AS (SELECT * FROM a WHERE x > 0) SELECT * FROM a", ("a",)),
        ("SELECT * FROM a JOIN A AS other", ("a",)),
        ("SELECT * FROM `odd name`", ("odd name",)),
        ("SELECT * FROM a LATERAL VIEW explode(xs) t AS x", ("a",)),
        ("SELECT /*+ BROADCAST(b) */ * FROM a JOIN b", ("a", "b")),
        ("SELECT * FROM db.t, parquet.`/lake/x`, range(10), VALUES (1) AS v(x), a", ("a",)),
        ("SELECT window.start FROM a GROUP BY window(at, '1 minute', '10 seconds'), x", ("a",)),
        ("SELECT window(at, '1 minute') AS window FROM a GROUP BY window", ("a",)),
        ("SELECT row_number() OVER w FROM a WINDOW w AS (PARTITION BY x)", ("a",)),
        ("SELECT count(*) FROM a GROUP BY session_window(at, '5 minutes')", ("a",)),
        ("SELECT * FROM a JOIN b ON a.at >= b.at - INTERVAL 5 MINUTES", ("a", "b")),
        ("SELECT to_json(struct(*)) AS value, transform(xs, x -> x + 1) FROM a", ("a",)),
        ("SELECT * FROM STREAM a JOIN STREAM(b)", ("a", "b")),
        ("FROM a |> WHERE x > 0", ("a",)),
        ("SELECT * FROM a -- and from b\n", ("a",)),
    ],
)
def test_tables(sql: str, tables: tuple[str, ...]) -> None:
    assert tables_of(sql) == tables


def test_where_a_table_is_mentioned() -> None:
    sql = "SELECT *\nFROM (SELECT * FROM readings)"
    (table,) = table_references(sql)
    assert sql[table.position :].startswith("readings")


@pytest.mark.parametrize(
    ("sql", "sentence", "rest"),
    [
        ("SELECT *\nFORM a WHERE", 'The query can\'t be read near "a".', "a WHERE"),
        ("SELECT (1 FROM a", 'The query can\'t be read near "FROM".', "FROM a"),
        ("SELECT * FROM a WHERE", 'The query can\'t be read near "WHERE".', "WHERE"),
        (" ", "There is no query.", " "),
        ("SELECT 1; SELECT 2", "There is more than one statement; give one query.", None),
        (
            "INSERT INTO a SELECT 1",
            "This is not a query: it must start with SELECT, FROM or WITH.",
            None,
        ),
    ],
)
def test_what_can_not_be_read(sql: str, sentence: str, rest: str | None) -> None:
    with pytest.raises(SqlNotRead) as refused:
        tables_of(sql)
    assert str(refused.value) == sentence
    assert sql[refused.value.position :] == (sql if rest is None else rest)
