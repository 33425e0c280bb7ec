"""Refuses to go on from a checkpoint that is not the flow's, or no longer fits it.

`flow.json` says whose checkpoint is beside it and what the flow was like when it began. It is
written before Spark makes the checkpoint and completed with the query's id afterwards, so that a
crash at any moment leaves either nothing or something that can be told apart from a foreign one.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from penstock.pipelines.running.checkpoint_folder import last_planned, query_id
from penstock.pipelines.running.progress import ProgressLog
from penstock.pipelines.running.refusals import RunRefused
from penstock.pipelines.running.source_signature import are_same_sources
from penstock.pipelines.running.storage import FlowFolder, read_json, write_json
from penstock.pipelines.sinks.sink import Sink


@dataclass(frozen=True, slots=True, kw_only=True)
class FlowRecord:
    """`flow.json`."""

    pipeline: str
    pipeline_id: str
    flow: str
    query: str | None = None
    """None until Spark has made the checkpoint."""
    sources: tuple[str, ...] = ()
    """The streams that it reads, in the order of the checkpoint."""
    state: tuple[str, ...] = ()
    """The operators that keep state."""
    mode: str = "append"
    sink: str = ""
    earlier: tuple[str, ...] = ()
    """Queries of this flow whose rows were in the sink when it was allowed to start again."""


def check_flow(folder: FlowFolder, flow: FlowRecord, sink: Sink, *, file: str) -> FlowRecord:
    """What to keep of the flow that is about to start; RunRefused if it must not.

    `flow` is the flow as it is described now, without a query.
    """
    found = read_record(folder)
    query = query_id(folder.checkpoint)
    how = _how_to_reset(file, flow.flow)
    if found is None:
        if _has_content(folder.checkpoint):
            raise RunRefused(
                f"The checkpoint {folder.checkpoint} was not made by the flow {flow.flow} of the "
                f"pipeline {flow.pipeline}: {how}"
            )
        return _begin(folder, flow, sink, known=frozenset(), how=how)
    _check_owner(folder, found, flow)
    if found.query is None and query is None:
        return _begin(folder, flow, sink, known=frozenset(found.earlier), how=how)
    _check_checkpoint(folder, found, query, how)
    if last_planned(folder.checkpoint) is not None:
        # Before its first batch a flow has read nothing and keeps nothing, so it may still change.
        _check_fit(folder, found, flow, how)
    return replace(flow, query=query, earlier=found.earlier)


def allow_new_start(folder: FlowFolder) -> None:
    """A reset: the next start of the flow makes a new checkpoint, whatever the sink holds."""
    write_json(folder.reset, {"allowed": True})


def keep_record(folder: FlowFolder, record: FlowRecord) -> None:
    """After this the permission of a reset is used up."""
    write_json(folder.record, asdict(record))
    folder.reset.unlink(missing_ok=True)


def read_record(folder: FlowFolder) -> FlowRecord | None:
    content = read_json(folder.record)
    if content is None:
        return None
    lists = {name: tuple(content[name]) for name in ("sources", "state", "earlier")}
    return FlowRecord(**(content | lists))


def _begin(
    folder: FlowFolder, flow: FlowRecord, sink: Sink, *, known: frozenset[str], how: str
) -> FlowRecord:
    """A flow without a checkpoint may start if its sink has nothing of it that we don't know of."""
    in_sink = sink.queries_before(flow.pipeline, flow.flow)
    if not folder.reset.exists() and in_sink - known:
        raise RunRefused(
            f"The checkpoint {folder.checkpoint} is lost: {flow.sink} holds rows that the flow "
            f"{flow.flow} has written, and it would write them again; restore the folder, or "
            f"{how}"
        )
    return replace(flow, earlier=tuple(sorted(in_sink)))


def _check_owner(folder: FlowFolder, found: FlowRecord, flow: FlowRecord) -> None:
    if (found.pipeline_id, found.flow) != (flow.pipeline_id, flow.flow):
        raise RunRefused(
            f"The checkpoint {folder.checkpoint} belongs to the flow {found.flow} of "
            f"{_whose(found, flow)}, not to the flow {flow.flow} of this one: give the pipeline "
            f"another `storage:`, or remove the folder {folder.path}."
        )


def _whose(found: FlowRecord, flow: FlowRecord) -> str:
    if found.pipeline == flow.pipeline:
        is_same = found.pipeline_id == flow.pipeline_id
        return "this pipeline" if is_same else f"another pipeline {found.pipeline}"
    return f"the pipeline {found.pipeline}"


def _check_checkpoint(folder: FlowFolder, found: FlowRecord, query: str | None, how: str) -> None:
    if query is None:
        raise RunRefused(
            f"The checkpoint {folder.checkpoint} is lost: without it the flow {found.flow} would "
            f"read everything again; restore the folder, or {how}"
        )
    if found.query is not None and query != found.query:
        raise RunRefused(
            f"The checkpoint {folder.checkpoint} belongs to another query ({query}), not to the "
            f"one of the flow {found.flow} ({found.query}): restore the right one, or {how}"
        )
    last = ProgressLog(folder.progress).last()
    planned = last_planned(folder.checkpoint)
    if last and last[0].query == query and (planned is None or planned < last[0].batch):
        raise RunRefused(
            f"The checkpoint {folder.checkpoint} is older than the flow {found.flow}, which had "
            f"reached batch {last[0].batch}: restore a newer one, or {how}"
        )


def _check_fit(folder: FlowFolder, found: FlowRecord, flow: FlowRecord, how: str) -> None:
    if not are_same_sources(found.sources, flow.sources):
        change = f"it read {_list(found.sources)}, and now reads {_list(flow.sources)}"
    elif found.state != flow.state:
        change = f"it kept {_list(found.state)}, and would now keep {_list(flow.state)}"
    elif flow.state and found.mode != flow.mode:
        change = f"its mode was {found.mode}, and is now {flow.mode}"
    else:
        return
    raise RunRefused(
        f"The flow {flow.flow} has changed, so the checkpoint {folder.checkpoint} no longer "
        f"fits: {change}; undo the change, or {how}"
    )


def _list(parts: Sequence[str]) -> str:
    return " and ".join(parts) or "nothing"


def _how_to_reset(file: str, flow: str) -> str:
    return f"`penstock pipeline reset {file} --flow {flow}` makes it start from the beginning."


def _has_content(folder: Path) -> bool:
    return folder.is_dir() and any(folder.iterdir())
