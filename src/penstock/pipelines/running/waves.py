"""In a run that ends by itself, a flow starts after those that write what it reads."""

from penstock.pipelines.specification.handing_over import reads
from penstock.pipelines.specification.lineage import sources_of
from penstock.pipelines.specification.model import Pipeline


def flows_before(pipeline: Pipeline) -> dict[str, frozenset[str]]:
    """By flow, in the pipeline's order: the flows that have to end before it begins.

    Flows that hand over to each other in a circle go by their order in the file.
    """
    before: dict[str, frozenset[str]] = {}
    for flow in pipeline.flows.values():
        sources = [pipeline.sources[name] for name in sources_of(pipeline, [flow.input])]
        before[flow.name] = frozenset(
            name
            for name in before
            if any(reads(source, pipeline.flows[name]) for source in sources)
        )
    return before
