"""Says in a few words what a source, a step or a flow is, for pictures and lists."""

from pathlib import Path

from penstock.pipelines.specification.model import (
    UNDECODABLE,
    ArchiveSource,
    ConsoleSink,
    DeduplicateStep,
    FileSource,
    Flow,
    FunctionReference,
    FunctionStep,
    LakeSink,
    OutputMode,
    Pipeline,
    Sink,
    Source,
    Step,
    TableSource,
    TopicSink,
    TopicSource,
)


def source_details(source: Source, pipeline: Pipeline) -> tuple[str, ...]:
    """Where it comes from, then what is done to its rows."""
    details = [_origin(source, pipeline)]
    if isinstance(source, TopicSource | ArchiveSource) and source.decoding is not None:
        details.append(f"decoded from {source.decoding.format}")
    return (*details, *_shape_details(source))


def step_details(step: Step) -> tuple[str, ...]:
    return (_work(step), *_shape_details(step))


def side_details(name: str) -> tuple[str, ...]:
    return ("can't be decoded" if name.endswith(UNDECODABLE) else "broke a rule",)


def flow_details(flow: Flow, pipeline: Pipeline) -> tuple[str, ...]:
    """Where it goes, then how often."""
    details = [_target(flow.sink, pipeline)]
    if flow.interval is not None:
        details.append(f"every {flow.interval}")
    if flow.mode is not OutputMode.APPEND:
        details.append(f"mode {flow.mode}")
    return tuple(details)


def _origin(source: Source, pipeline: Pipeline) -> str:
    match source:
        case TopicSource():
            return _topics(source)
        case FileSource():
            said = f"{source.format} {_short(source.path, pipeline)}"
        case TableSource():
            said = f"{source.format} {_short(source.path, pipeline)}"
        case ArchiveSource():
            said = f"archive {_short(source.path, pipeline)}"
    return said if source.is_stream else f"{said}, read at the start"


def _topics(source: TopicSource) -> str:
    options = {name.lower(): value for name, value in source.options.items()}
    if "subscribepattern" in options:
        return f"topics like {options['subscribepattern']}"
    if "subscribe" not in options:
        return f"partitions {options.get('assign', '')}"
    topics = options["subscribe"].split(",")
    return f"topic{'s' if len(topics) > 1 else ''} {', '.join(topics)}"


def _shape_details(dataset: Source | Step) -> list[str]:
    details = []
    if dataset.watermark is not None:
        details.append(f"watermark {dataset.watermark.delay} on {dataset.watermark.column}")
    if dataset.rules:
        details.append("rules " + ", ".join(rule.name for rule in dataset.rules))
    return details


def _work(step: Step) -> str:
    match step:
        case FunctionStep():
            return f"function {_function(step.function)}"
        case DeduplicateStep():
            return f"deduplicated by {', '.join(step.by)}"
        case _:
            return "SQL"


def _target(sink: Sink, pipeline: Pipeline) -> str:
    match sink:
        case TopicSink():
            return f"topic {sink.options['topic']}" if "topic" in sink.options else "topics"
        case LakeSink():
            return f"{sink.format} {_short(sink.path, pipeline)}"
        case ConsoleSink():
            return "console"
        case _:
            return f"function {_function(sink.function)}"


def _function(reference: FunctionReference) -> str:
    return f"{Path(reference.file).name}:{reference.name}" if reference.file else reference.name


def _short(path: str, pipeline: Pipeline) -> str:
    """Relative to the pipeline's folder where it is in there."""
    folder = Path(pipeline.file).parent
    return str(Path(path).relative_to(folder)) if Path(path).is_relative_to(folder) else path
