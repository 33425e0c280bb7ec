"""Proves from which commit to which a stream of a table reads, through restarts and faults."""

from datetime import date
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from penstock.pipelines.lakes.data_files import DataFileWriter
from penstock.pipelines.lakes.delta_table import DeltaTable
from penstock.pipelines.lakes.lake_table import LakeRefused
from penstock.pipelines.lakes.table_source_options import table_source_options
from penstock.pipelines.lakes.table_source_planning import (
    FILE_BYTES_COST,
    TASK_BYTES_MAX,
    TASK_BYTES_MIN,
    Position,
    TableFile,
    TablePlanner,
    shared_out,
    table_files,
)
from penstock.pipelines.sinks.sink import Epoch


class FakeTable:
    """One file per commit, named by its number."""

    def __init__(self, folder: Path) -> None:
        self.root = str(folder)
        self.commits = 0

    def add(self, commits: int = 1) -> None:
        for _ in range(commits):
            Path(self.root, f"{self.commits}.parquet").write_bytes(b"x" * 10)
            self.commits += 1

    def version(self) -> int:
        return self.commits - 1

    def paths(self, after: int = -1, until: int | None = None) -> list[str]:
        last = self.version() if until is None else until
        return [f"{self.root}/{number}.parquet" for number in range(after + 1, last + 1)]


@pytest.fixture
def table(tmp_path: Path) -> FakeTable:
    return FakeTable(tmp_path)


def planner(table: Any, **options: str) -> TablePlanner:
    return TablePlanner(table, table_source_options(options, table.root))


def numbers(files: list[TableFile]) -> list[int]:
    return [int(Path(file.path).stem) for file in files]


def run(plan: TablePlanner, start: Position | None = None) -> list[list[int]]:
    """The files of each batch until nothing is new."""
    batches = []
    position = start or plan.initial()
    while (end := plan.end(position, limited=True)) != position:
        batches.append(numbers(plan.files(position, end)))
        position = Position.from_json(end.to_json())
    return batches


def test_a_stream_goes_through_all_commits_within_its_limit(table: FakeTable) -> None:
    table.add(5)
    assert run(planner(table)) == [[0, 1, 2, 3, 4]]
    assert run(planner(table, maxCommitsPerTrigger="2")) == [[0, 1], [2, 3], [4]]
    assert run(planner(table, MAXCOMMITSPERTRIGGER="2"), Position(version=2)) == [[3, 4]]
    plan = planner(table, maxCommitsPerTrigger="2")
    assert plan.end(plan.initial(), limited=False).to_json() == {"start": -1, "version": 4}
    assert plan.latest == 4


def test_a_stream_begins_where_it_is_told(table: FakeTable) -> None:
    table.add(4)
    assert run(planner(table, startingVersion="2")) == [[2, 3]]
    assert run(planner(table, startingVersion="EARLIEST")) == [[0, 1, 2, 3]]
    latest = planner(table, startingVersion="latest")
    assert latest.initial() == Position(start=3)
    table.add()
    # Spark asks again, and what came between must not be left out.
    assert latest.initial() == Position(start=3)
    assert run(latest) == [[4]]


def test_a_start_ahead_of_the_table_waits_for_it(table: FakeTable) -> None:
    table.add(2)
    plan = planner(table, startingVersion="5")
    assert run(plan) == []
    table.add(5)
    assert run(plan) == [[5, 6]]


def test_a_first_batch_that_died_is_repeated_from_where_it_began(table: FakeTable) -> None:
    table.add(2)
    plan = planner(table, startingVersion="latest")
    table.add(2)
    start = plan.initial()
    end = plan.end(start, limited=True)
    table.add(3)
    again = planner(table, startingVersion="latest")
    assert again.initial() != start
    assert numbers(again.files(again.initial(), end)) == numbers(plan.files(start, end))


def test_a_run_that_ends_by_itself_goes_no_further_than_its_start(table: FakeTable) -> None:
    table.add(3)
    plan = planner(table, maxCommitsPerTrigger="2")
    plan.stop_at_now()
    table.add(2)
    assert run(plan) == [[0, 1], [2]]


def test_an_empty_table_gives_nothing_and_then_what_comes(table: FakeTable) -> None:
    plan = planner(table)
    start = plan.initial()
    assert plan.end(start, limited=True) == start
    # Spark notes even that as a batch, and goes on from it after a restart.
    assert plan.files(start, start) == []
    table.add(2)
    assert run(planner(table), Position.from_json(start.to_json())) == [[0, 1]]


def test_a_table_made_anew_is_refused(table: FakeTable) -> None:
    table.add(2)
    with pytest.raises(LakeRefused) as refused:
        planner(table).end(Position(version=7), limited=True)
    assert "is 1, but the flow has read up to commit 7" in str(refused.value)


def test_a_file_that_is_gone_is_named(table: FakeTable) -> None:
    table.add(2)
    Path(table.root, "1.parquet").unlink()
    with pytest.raises(LakeRefused, match=r"The file '.*/1\.parquet' of the table '.*' is gone"):
        planner(table).files(Position(start=-1), Position(start=-1, version=1))


def test_columns_that_the_files_of_delta_do_not_hold_come_with_them(tmp_path: Path) -> None:
    delta = DeltaTable(str(tmp_path / "a b[c]"))
    schema = pa.schema([("sensor", pa.string()), ("day", pa.date32()), ("n", pa.int64())])
    by = ["sensor", "day"]
    rows: list[dict[str, Any]] = [
        {"sensor": "a b%/=é", "day": date(2026, 1, 31), "n": 0},
        {"sensor": None, "day": None, "n": 1},
    ]
    for batch, row in enumerate(rows):
        folder = f"data/q/{batch}-x"
        with DataFileWriter(
            delta.root, folder, schema, by, keeps_partition_columns=False
        ) as writer:
            writer.write(pa.RecordBatch.from_pylist([row], schema))
            files = writer.close()
        epoch = Epoch(query="q", batch=batch, pipeline="iot", flow="flow")
        assert delta.commit(epoch, files, schema, by, {})

    values = [{"sensor": "a b%/=é", "day": "2026-01-31"}, {"sensor": None, "day": None}]
    assert [file.outside for file in table_files(delta)] == values
    # From the log of single commits, as a stream goes on.
    last = delta.version()
    assert [file.outside for file in table_files(delta, last - 2, last - 1)] == values[:1]
    assert [file.outside for file in table_files(delta, last - 1)] == values[1:]


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"maxCommitsPerTrigger": "0"}, "must be a positive whole number"),
        ({"startingVersion": "-3"}, "must be earliest, latest or the number of a commit"),
    ],
)
def test_wrong_options_are_refused_in_one_sentence(options: dict[str, str], sentence: str) -> None:
    with pytest.raises(LakeRefused) as refused:
        table_source_options(options, "/lake/readings")
    text = str(refused.value)
    assert text.startswith("The table '/lake/readings' can't be read: the option ")
    assert sentence in text
    assert text.endswith(".")


def test_options_of_the_table_are_left_to_it() -> None:
    options = {"maxCommitsPerTrigger": "3", "Catalog": "x"}
    assert table_source_options(options, "t").table == {"Catalog": "x"}


def test_files_are_shared_out_by_size_and_in_order() -> None:
    def sizes(count: int, size: int, tasks: int) -> list[int]:
        files = [TableFile(path=str(n), size=size, outside={}) for n in range(count)]
        shares = shared_out(files, tasks)
        assert [file.path for share in shares for file in share] == [str(n) for n in range(count)]
        return [len(share) for share in shares]

    assert sizes(0, 1, 2) == []
    assert sizes(3, 1, 2) == [3]
    few = TASK_BYTES_MIN - FILE_BYTES_COST
    assert sizes(4, few, 2) == [2, 2]
    assert sizes(4, 2 * TASK_BYTES_MAX, 2) == [1, 1, 1, 1]
    assert max(sizes(1000, TASK_BYTES_MAX // 10, 2)) == 9
