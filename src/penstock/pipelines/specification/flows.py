"""Reads the flows of a pipeline: which dataset goes to which sink, how often and in which mode."""

from penstock.pipelines.specification.context import Context
from penstock.pipelines.specification.fields import Fields
from penstock.pipelines.specification.model import (
    UNDECODABLE,
    ArchiveSource,
    Flow,
    OutputMode,
    TopicSink,
    TopicSource,
)
from penstock.pipelines.specification.problems import Place
from penstock.pipelines.specification.shaping import read_interval
from penstock.pipelines.specification.sinks import read_sink
from penstock.pipelines.specification.steps import InputPlaces
from penstock.pipelines.specification.topic_options import BOOTSTRAP, BROKERS_DEFAULT
from penstock.pipelines.specification.tree import Node

KEYS = ("from", "to", "every", "mode", "settings")


def read_flow(
    name: str, place: Place, node: Node, context: Context, places: InputPlaces
) -> Flow | None:
    """One flow, or None after its problems were reported; notes in `places` where its input"
    " stands."""
    before = len(context.problems)
    owner = f"the flow {name}"
    fields = Fields(node, context, owner=owner, known=KEYS, place=place)
    dataset = fields.needed_text("from")
    if dataset:
        places[name, dataset] = fields.text_place("from")
    to = fields.node("to")
    if to is None:
        context.problem(fields.place, f"The key to is missing in {owner}.")
    sink = None if to is None else read_sink(to, context, owner=owner)
    interval = read_interval(fields, "every", context, owner=owner)
    mode = fields.choice("mode", OutputMode, OutputMode.APPEND)
    settings = fields.pairs("settings")
    if sink is None or len(context.problems) > before:
        return None
    return Flow(
        name=name,
        input=dataset,
        sink=sink,
        interval=interval,
        mode=mode,
        settings=settings,
        place=place,
    )


def dead_letters_flow(source: TopicSource | ArchiveSource, topic: str, place: Place) -> Flow:
    """What `dead_letters: TOPIC` in a source stands for."""
    brokers = source.options.get(BOOTSTRAP, BROKERS_DEFAULT)
    return Flow(
        name=f"{source.name}_dead_letters",
        input=source.name + UNDECODABLE,
        sink=TopicSink(options={BOOTSTRAP: brokers, "topic": topic}, place=place),
        place=place,
    )
