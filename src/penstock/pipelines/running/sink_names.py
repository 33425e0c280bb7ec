"""What a sink is called in sentences and on screens."""

from penstock.pipelines.specification.model import (
    ConsoleSink,
    FunctionSink,
    LakeSink,
    Sink,
    TopicSink,
)


def sink_name(sink: Sink) -> str:
    """Such as "topic alerts" or "delta /lake/averages"."""
    match sink:
        case TopicSink():
            options = {name.lower(): value for name, value in sink.options.items()}
            return f"topic {options['topic']}" if "topic" in options else "topics"
        case LakeSink():
            return f"{sink.format} {sink.path}"
        case ConsoleSink():
            return "console"
        case FunctionSink():
            return f"function {sink.function.name}"
