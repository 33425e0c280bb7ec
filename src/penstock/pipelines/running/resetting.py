"""Makes flows forget how far they have come."""

from collections.abc import Sequence
from difflib import get_close_matches
from pathlib import Path

from penstock.pipelines.running.guarding import allow_new_start
from penstock.pipelines.running.progress import ProgressLog
from penstock.pipelines.running.refusals import RunRefused
from penstock.pipelines.running.run_record import sole_run
from penstock.pipelines.running.sink_names import sink_name
from penstock.pipelines.running.storage import FlowFolder, Storage, claim, remove_folder
from penstock.pipelines.specification.model import LakeSink, Pipeline


def chosen_flows(pipeline: Pipeline, names: Sequence[str]) -> list[str]:
    """The named flows in the pipeline's order, or all; raises RunRefused for an unknown one."""
    for name in names:
        if name not in pipeline.flows:
            near = get_close_matches(name, pipeline.flows, n=1)
            hint = f"; did you mean {near[0]}?" if near else "."
            raise RunRefused(f"The pipeline {pipeline.name} has no flow {name}{hint}")
    return [name for name in pipeline.flows if not names or name in names]


def tables_of(pipeline: Pipeline, flows: Sequence[str]) -> list[str]:
    """The tables that the flows write, each once."""
    sinks = [pipeline.flows[name].sink for name in flows]
    return list(dict.fromkeys(sink_name(sink) for sink in sinks if isinstance(sink, LakeSink)))


def reset_pipeline(pipeline: Pipeline, flows: Sequence[str], *, with_tables: bool) -> None:
    """Raises RunRefused while the pipeline runs, or where its storage is another pipeline's.

    So it does for a table that other flows write as well, which would not write their rows again.
    """
    if with_tables:
        _refuse_shared_tables(pipeline, flows)
    storage = Storage(Path(pipeline.storage))
    with sole_run(storage):
        claim(storage, pipeline.name)
        for name in flows:
            forget(storage.flow(name))
            if with_tables:
                _clear(pipeline, name)


def forget(folder: FlowFolder) -> None:
    """The permission comes first: without it a half-done reset would look like a loss."""
    allow_new_start(folder)
    # Whose checkpoint it was goes after the checkpoint itself, which would be a foreign one then.
    remove_folder(folder.checkpoint)
    folder.record.unlink(missing_ok=True)
    ProgressLog(folder.progress).remove()


def _refuse_shared_tables(pipeline: Pipeline, flows: Sequence[str]) -> None:
    others = [name for name in pipeline.flows if name not in flows]
    for name in others:
        for table in tables_of(pipeline, [name]):
            if table in tables_of(pipeline, flows):
                raise RunRefused(
                    f"The table {table} also holds rows of the flow {name}, which would be lost:"
                    f" reset that flow as well, or leave out --tables."
                )


def _clear(pipeline: Pipeline, name: str) -> None:
    sink = pipeline.flows[name].sink
    if not isinstance(sink, LakeSink):
        return
    from penstock.pipelines.running.extras import require_spark
    from penstock.pipelines.sinks.building import build_sink

    require_spark()
    build_sink(sink).clear()
